"""What agents may do by `/mcp` with the tokens of their processes: never more than their own sessions. Attacks on that."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from shim.faces.mcp import protocol
from shim.faces.mcp.tools import TOOLS
from shim.http.operation import SERVICES
from shim.lib.errors import Forbidden
from shim.sessions import delegation
from shim.sessions.agent_tokens import READING_TOOLS, SERVER
from shim.sessions.index.manager import SessionManager
from shim.store.sqlite import SqliteStore
from tests.http.doors import GOOD, PASSWORD
from tests.http.mcp.test_tools import until, waits
from tests.support.live import Live, live, prompt_body
from tests.support.mcp_client import HEADERS, McpClient, call, post
from universal.launch import Exit
from universal.permissions import Access
from universal.registry import agents as known_agents

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    async with live(tmp_path, mcp=True) as running:
        yield running


def token_of(server: Live, session: str) -> str:
    """The header that the process of a session has got."""
    tokens = sessions_of(server).deps.agent_tokens
    assert tokens is not None
    return tokens.server(session).headers["Authorization"]


async def agent_of(server: Live, session: str) -> McpClient:
    """The agent of a session, as a client, once its process runs."""
    entry = sessions_of(server).index.get(session)
    await until(lambda: entry.actor is not None and entry.actor.process.is_alive)
    return McpClient(server, Authorization=token_of(server, session))


async def at_work(server: Live, *, prompt: str = "hang", agent: str | None = None, **session: Any) -> tuple[str, McpClient]:
    """A person's session in which a turn runs, and its agent."""
    parent = await server.session(**session)
    await server.prompt(parent, prompt, **({"agent": agent} if agent else {}))
    return parent, await agent_of(server, parent)


def sessions_of(server: Live) -> SessionManager:
    return server.api.raw.app[SERVICES].sessions


# --- what it is for ---------------------------------------------------------------------------------------------------


async def test_a_session_of_an_agent_stands_below_its_own(server: Live) -> None:
    parent, agent = await at_work(server)
    child = await agent.start("echo from below")
    assert (await agent.use("wait", session=child))["state"] == "idle"
    assert (await agent.use("read", session=child))["text"] == "from below"
    told = (await server.api.get(f"/session/{child}", status=200)).body
    assert (told["parentID"], told["directory"]) == (parent, str(server.directory))
    assert [row["id"] for row in (await server.api.get(f"/session/{parent}/children", status=200)).body] == [child]
    assert [row["session"] for row in (await agent.use("list_sessions"))["sessions"]] == [child]


async def test_each_process_gets_a_token_of_its_own(server: Live) -> None:
    parent, _ = await at_work(server)
    actor = await sessions_of(server).actor(parent)
    (ours,) = [one for one in actor.process.setup(with_project=True).servers if one.name == SERVER]
    assert ours.headers["Authorization"] == token_of(server, parent)
    assert ours.url.endswith("/mcp")
    assert ours.headers["Authorization"] not in repr(ours)
    other, _ = await at_work(server)
    assert token_of(server, other) != token_of(server, parent)


async def test_agents_get_nothing_without_the_setting(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        session = await server.session()
        await server.ask(session, "echo x")
        actor = await sessions_of(server).actor(session)
        assert SERVER not in {one.name for one in actor.process.setup(with_project=True).servers}


def test_tools_that_only_read_are_named_for_the_rules() -> None:
    assert {name for name, tool in TOOLS.items() if tool.row["annotations"]["readOnlyHint"]} == set(READING_TOOLS)


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_token_ends_with_its_process(server: Live) -> None:
    parent, agent = await at_work(server)
    await agent.use("list_sessions")
    old = token_of(server, parent)
    await server.api.post("/instance/dispose", {}, status=200)
    assert (await post(server, PING, Authorization=old))[0] == 401
    await server.prompt(parent, "hang")
    await (await agent_of(server, parent)).use("list_sessions")
    assert (await post(server, PING, Authorization=old))[0] == 401


@pytest.mark.parametrize("password", [None, SecretStr(PASSWORD)])
async def test_a_token_opens_nothing_else(tmp_path: Path, password: SecretStr | None) -> None:
    async with live(tmp_path, mcp=True, password=password) as server:
        server.api.raw.session.headers["Authorization"] = GOOD
        parent, _ = await at_work(server)
        token = {"Authorization": token_of(server, parent)}
        raw = server.api.raw
        added = {"name": "evil", "config": {"type": "local", "command": ["evil"]}}
        for method, path, body, headers in (
            ("GET", "/session", None, {}),
            ("GET", "/mcp", None, {}),
            ("GET", "/mcp", None, {"Accept": "text/event-stream"}),
            ("POST", "/mcp", added, {}),
            ("POST", "/mcp/", added, HEADERS),
            ("POST", f"/session/{parent}/abort", {}, HEADERS),
            ("POST", "/nowhere", {}, HEADERS),
            ("PUT", "/mcp", added, HEADERS),
        ):
            async with raw.request(method, path, json=body, headers={**headers, **token}) as answer:
                assert answer.status == 401, (method, path)
        assert (await server.api.get("/mcp", status=200)).body == {}
        assert (await post(server, PING, **token))[0] == 200


@pytest.mark.parametrize("token", ["agent_", "agent_" + "0" * 64, "agent_x"])
async def test_a_made_up_token_is_refused(server: Live, token: str) -> None:
    """Also where no password is set: who shows a token is an agent, and gets no person's rights by a wrong one."""
    await at_work(server)
    for header in (f"Bearer {token}", f"bearer {token}"):
        assert (await post(server, PING, Authorization=header))[0] == 401


async def test_a_token_says_which_session_and_no_client_does(server: Live) -> None:
    """A forged id of a session, an argument or a header, changes nothing."""
    parent, _ = await at_work(server)
    other, agent = await at_work(server)
    theirs = await (await agent_of(server, parent)).start("hang")
    forged = McpClient(server, Authorization=token_of(server, other), **{"Mcp-Session-Id": theirs, "X-Session": parent})
    assert (await forged.use("list_sessions"))["total"] == 0
    for tool, more in (("wait", {}), ("read", {}), ("abort", {}), ("prompt", {"prompt": "x"})):
        for session in (theirs, parent, other, "ses_x"):
            assert "not found" in await forged.refusal(tool, session=session, **more)
    assert "Extra inputs" in await agent.refusal("start_session", agent="mock", prompt="x", caller=parent)
    assert (await server.api.get("/session/status", status=200)).body.keys() >= {theirs, parent, other}


# --- ceilings ---------------------------------------------------------------------------------------------------------


async def test_an_agent_starts_sessions_in_its_directory_alone(server: Live) -> None:
    _, agent = await at_work(server)
    (server.directory / "in").mkdir()
    (server.directory / "link").symlink_to("/")
    for place in ("..", "../..", "/", "in", "in/../..", "link", str(server.directory.parent)):
        assert "where you do" in await agent.refusal("start_session", agent="mock", prompt="x", directory=place)
    for place in ("", ".", "in/..", str(server.directory)):
        await agent.start("echo x", directory=place)


async def test_depth_is_bounded(server: Live) -> None:
    _, agent = await at_work(server)
    for _ in range(delegation.DEPTH_LIMIT):
        agent = await agent_of(server, await agent.start("hang"))
    assert "levels below" in await agent.refusal("start_session", agent="mock", prompt="x")


async def test_the_number_is_bounded_over_all_depths(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation, "BELOW_LIMIT", 3)
    _, agent = await at_work(server)
    below = await agent_of(server, first := await agent.start("hang"))
    await below.start("echo x")
    await agent.start("echo x")
    for one in (agent, below):
        assert "which is the most" in await one.refusal("start_session", agent="mock", prompt="x")
    await server.api.delete(f"/session/{first}", status=200)
    await agent.start("echo x")


async def test_a_mode_is_no_milder(server: Live) -> None:
    _, agent = await at_work(server, agent="plan")
    for more in ({}, {"mode": "build"}):
        assert "in the mode 'plan'" in await agent.refusal("start_session", agent="mock", prompt="x", **more)
    child = await agent.start("echo x", mode="plan")
    await agent.use("wait", session=child)
    await server.ask(child, "echo the person goes on", agent="build")
    assert "in the mode 'plan'" in await agent.refusal("prompt", session=child, prompt="echo x")


@pytest.mark.parametrize(
    ("own", "wanted", "may"),
    [
        ("build", "plan", True),
        ("build", "accept-edits", False),
        ("accept-edits", "auto", False),
        ("auto", "bypass", False),
        ("bypass", "full-access", True),
        ("bypass", "yolo", True),
        ("build", "yolo", False),
        ("", "build", True),
        ("careful", "build", True),
        ("careful", "bypass", False),
    ],
)
def test_modes_are_ranked(own: str, wanted: str, may: bool) -> None:
    """A mode that nobody knows is the mildest; an agent of the configuration runs in the usual one."""
    entry = SimpleNamespace(mode=own, current_record=SimpleNamespace(directory="/"))
    config = SimpleNamespace(primary_agents={"careful": None})
    deps = SimpleNamespace(config_now=lambda _: config)
    manager = SimpleNamespace(index=SimpleNamespace(get=lambda _: entry), deps=deps)
    if may:
        delegation.check_mode(cast("Any", manager), "ses_a", wanted)
    else:
        with pytest.raises(Forbidden):
            delegation.check_mode(cast("Any", manager), "ses_a", wanted)


async def test_rules_of_the_session_hold_below(server: Live) -> None:
    rules = [{"permission": "bash", "pattern": "*", "action": "deny"}]
    _, agent = await at_work(server, permission=rules)
    child = await agent.start("permission")
    assert (await agent.use("wait", session=child))["state"] == "idle"
    parts = [part for message in await server.messages(child) for part in message["parts"] if part["type"] == "tool"]
    assert "rule" in parts[0]["state"]["error"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_rules_of_the_agent_that_a_person_chose_hold_below(tmp_path: Path, restarted: bool) -> None:
    """What the configuration denies the agent `careful` it denies what that has started, in any mode, after a restart."""
    settings = tmp_path / "home" / ".config" / "opencode"
    settings.mkdir(parents=True)
    careful = {"mode": "primary", "permission": {"bash": {"*": "deny", "git status": "allow"}}}
    (settings / "opencode.json").write_text(json.dumps({"permission": {"bash": "allow"}, "agent": {"careful": careful}}))
    store = tmp_path / "shim.db"
    async with live(tmp_path, mcp=True, store=SqliteStore(store)) as server:
        parent, agent = await at_work(server, agent="careful")
        child = await agent.start("echo x")
        await agent.use("wait", session=child)
        free = await server.session()
        if not restarted:
            await check_bash(server, child, free)
    if restarted:
        async with live(tmp_path, mcp=True, store=SqliteStore(store)) as server:
            assert sessions_of(server).index.get(parent).is_delegated is False
            await check_bash(server, child, free)


async def check_bash(server: Live, child: str, free: str) -> None:
    manager = sessions_of(server)
    for session in (child, free):
        await manager.deps.config_refresh((await manager.state(session)).session.record.directory)
    held, own = manager.policy(await manager.state(child)), manager.policy(await manager.state(free))
    assert [policy.action(Access("bash", ("rm x",))) for policy in (held, own)] == ["deny", "allow"]
    assert [policy.action(Access("bash", ("git status",))) for policy in (held, own)] == ["allow", "allow"]
    assert any(rule.permission == "bash" and rule.action == "deny" for rule in held.for_agent())


async def test_an_agent_that_cannot_be_held_to_the_rules_is_not_started(server: Live) -> None:
    rules = [{"permission": "bash", "pattern": "*", "action": "ask"}]
    parent, _ = await at_work(server, permission=rules)
    manager, directory = sessions_of(server), str(server.directory)
    claude, pi_acp = (SimpleNamespace(spec=known_agents()[name]) for name in ("claude", "pi-acp"))
    delegation.check_start(manager, parent, directory, cast("Any", claude), "build")
    with pytest.raises(Forbidden, match="cannot be held to the rules of your session for bash"):
        delegation.check_start(manager, parent, directory, cast("Any", pi_acp), "build")


async def test_the_sandbox_is_no_milder(server: Live) -> None:
    _, agent = await at_work(server, metadata={"sandbox": "strict"})
    child = await agent.start("hang")
    grandchild = await (await agent_of(server, child)).start("echo x")
    for session in (child, grandchild):
        assert (await server.api.get(f"/session/{session}", status=200)).body["metadata"]["sandbox"] == "strict"


# --- who answers ------------------------------------------------------------------------------------------------------


async def test_permissions_are_for_a_person(server: Live) -> None:
    parent, agent = await at_work(server, prompt="permission")
    person = McpClient(server)
    own = (await person.use("wait", session=parent))["requests"][0]["request"]
    assert "not found" in await agent.refusal("answer", request=own, reply="once")
    child = await agent.start("permission")
    found = await agent.use("wait", session=child)
    asked = found["requests"][0]["request"]
    assert found["state"] == "permission"
    for reply in ("once", "always", "reject"):
        assert "A person" in await agent.refusal("answer", request=asked, reply=reply)
    below = await agent_of(server, child)
    for request in (own, asked):
        assert "not found" in await below.refusal("answer", request=request, reply="once")
    open_now = (await server.api.get("/permission", status=200)).body
    assert {row["id"]: row["sessionID"] for row in open_now} == {own: parent, asked: child}
    await server.api.post(f"/permission/{asked}/reply", {"reply": "once"}, status=200)
    assert (await agent.use("wait", session=child))["state"] == "idle"


async def test_an_agent_answers_what_another_one_wants_to_know(server: Live) -> None:
    _, agent = await at_work(server)
    child = await agent.start("question 1")
    asked = (await agent.use("wait", session=child))["requests"][0]
    await agent.use("answer", request=asked["request"], answers=[[asked["questions"][0]["options"][0]["label"]]])
    assert (await agent.use("wait", session=child))["state"] == "idle"


async def test_a_plan_is_for_a_person_to_accept(server: Live) -> None:
    _, agent = await at_work(server)
    child = await agent.start("plan")
    asked = (await agent.use("wait", session=child))["requests"][0]
    answers = [[asked["questions"][0]["options"][0]["label"]]]
    assert "A person" in await agent.refusal("answer", request=asked["request"], answers=answers)
    await server.api.post(f"/question/{asked['request']}/reply", {"answers": answers}, status=200)
    assert (await agent.use("wait", session=child))["state"] == "idle"


async def test_an_agents_own_subagents_are_not_below_it(server: Live) -> None:
    """They are its own process: it answers nothing for them, and no client's session with its own as a parent is its work."""
    parent, agent = await at_work(server, prompt="subagent")
    await until(lambda: bool(sessions_of(server).index.children(parent)))
    subagent = sessions_of(server).index.children(parent)[0].id
    others = await server.session(parentID=parent)
    for session in (subagent, others):
        assert "not found" in await agent.refusal("read", session=session)
    assert (await agent.use("list_sessions"))["total"] == 0


async def test_calls_of_an_agent_do_not_take_the_place_of_others(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "CALLS_OF_ONE_LIMIT", 1)
    parent, agent = await at_work(server)
    child = await agent.start("hang")
    held = asyncio.create_task(agent.use("wait", session=child))
    await until(lambda: waits() == 1)
    status, _ = await post(server, call("read", session=child), **agent.headers)
    assert status == 429
    assert (await McpClient(server).use("read", session=child))["state"] == "busy"
    await server.api.post(f"/session/{parent}/abort", {}, status=200)
    assert (await held)["state"] == "idle"


async def test_a_child_asks_no_person_where_its_parent_asks_none(server: Live) -> None:
    """A prompt whose requests only rules may answer: so it is with what its agent starts."""
    session = await server.session()
    headers = {"X-OpenCode-Shim-Unattended": "rules"}
    await server.api.post(f"/session/{session}/prompt_async", prompt_body("hang"), headers=headers, status=204)
    agent = await agent_of(server, session)
    await until(lambda: sessions_of(server).requests.unattended_policy(session).action == "rules")  # the agent has the prompt
    child = await agent.start("permission")
    assert (await agent.use("wait", session=child))["state"] == "idle"


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_an_abort_reaches_all_below(server: Live) -> None:
    parent, agent = await at_work(server)
    child = await agent.start("hang")
    grandchild = await (await agent_of(server, child)).start("hang")
    other, _ = await at_work(server)
    await server.api.post(f"/session/{parent}/abort", {}, status=200)
    assert (await server.api.get("/session/status", status=200)).body.keys() == {other}
    for session in (child, grandchild):
        assert (await server.messages(session))[-1]["info"]["error"]["name"] == "MessageAbortedError"


async def test_an_agent_that_dies_takes_all_below_along(server: Live) -> None:
    parent, agent = await at_work(server)
    child = await agent.start("hang")
    grandchild = await (await agent_of(server, child)).start("hang")
    actor = sessions_of(server).index.get(parent).actor
    assert actor is not None
    handle = actor.process._handle
    assert handle is not None
    actor.process._exit(actor.process.generation, Exit(None, signal.SIGKILL))
    await handle.stop()  # the mock only seems to have died
    await until(lambda: not sessions_of(server).statuses())
    for session in (child, grandchild):
        assert (await server.messages(session))[-1]["info"]["error"]["name"] == "MessageAbortedError"


async def test_work_below_goes_on_after_an_answer(server: Live) -> None:
    parent, agent = await at_work(server, prompt="think")
    child = await agent.start("hang")
    await until(lambda: sessions_of(server).statuses().keys() == {child})
    await server.api.post(f"/session/{parent}/abort", {}, status=200)
    assert sessions_of(server).statuses() == {}


async def test_nothing_is_started_without_a_turn(server: Live) -> None:
    parent, agent = await at_work(server)
    child = await agent.start("echo x")
    await agent.use("wait", session=child)
    await server.api.post(f"/session/{parent}/abort", {}, status=200)
    assert "No turn" in await agent.refusal("start_session", agent="mock", prompt="x")
    assert "No turn" in await agent.refusal("prompt", session=child, prompt="x")
    assert (await agent.use("read", session=child))["text"] == "x"


async def test_a_session_begun_during_an_abort_ends_too(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The abort comes between the check of the turn and the prompt: no session goes on behind it."""
    parent, agent = await at_work(server)
    submit = delegation.submit

    async def submit_late(manager: SessionManager, session_id: str, body: Any) -> str:
        await manager.abort(parent)
        return await submit(manager, session_id, body)

    monkeypatch.setattr(delegation, "submit", submit_late)
    assert "No turn" in await agent.refusal("start_session", agent="mock", prompt="hang")
    assert (await server.api.get("/session/status", status=200)).body == {}


async def test_a_deletion_takes_all_below(server: Live) -> None:
    parent, agent = await at_work(server)
    child = await agent.start("hang")
    await server.api.delete(f"/session/{parent}", status=200)
    await server.api.get(f"/session/{child}", status=404)
    assert (await post(server, PING, Authorization=agent.headers["Authorization"]))[0] == 401


async def test_a_person_of_the_same_server_has_a_persons_rights(server: Live) -> None:
    parent, agent = await at_work(server)
    child = await agent.start("permission")
    person = McpClient(server)
    assert (await person.use("list_sessions"))["total"] == 2
    asked = (await person.use("wait", session=child))["requests"][0]["request"]
    await person.use("answer", request=asked, reply="once")
    assert (await person.use("wait", session=child))["state"] == "idle"
    assert (await person.use("abort", session=parent))["state"] == "idle"
