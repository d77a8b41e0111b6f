"""Named people: what each role may do, what people with roots see, and how they come in and go."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from shim.cli import pair, screen
from shim.host.git.projects import Identity
from shim.http.audit import FILE
from shim.http.operation import SERVICES
from shim.http.people import NOWHERE, OPEN, ROLES, VIEW, WORK, Role, meet, needed_role, without_secrets
from shim.lib.clock import ManualClock
from shim.lib.errors import LimitReached, ShimError
from shim.lib.settings import Settings
from shim.routes import FACES, modules
from shim.routes.table import _shared_table  # pyright: ignore[reportPrivateUsage] - the table without services
from shim.sessions.index.accounts import NAMESPACE as SPENDING
from shim.sessions.prompts.prompt_request import PromptRequest
from shim.sessions.prompts.submit import submit
from shim.store.memory import MemoryStore
from shim.store.rows import event_of, row_of, wire_of
from tests.http.doors import base64_text
from tests.support.acp import Editor, leave
from tests.support.live import Live, live
from tests.support.mcp_client import McpClient
from universal.events import UniversalEvent
from universal.lib.jsonvalue import obj
from universal.lib.paths import is_in
from universal.session.values import Text

PASSWORD = "the password"
WAIT_S = 10.0
SECRET = "A title that only some may read"
STREAMS = ("/event", "/global/event", "/api/event", "/events", "/log")
"""Ends of paths whose answers do not end."""


def as_(secret: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64_text(f'opencode:{secret}')}"}


OWNER = as_(PASSWORD)


@dataclass
class House:
    """A server with a password. `inside` and `outside`: sessions in the two directories, of which people may see one."""

    server: Live
    other: Path
    inside: str = ""
    outside: str = ""

    async def add(self, name: str, role: Role, *roots: Path) -> dict[str, str]:
        """Let a person in. Their headers."""
        body = {"name": name, "role": role, "roots": [str(root) for root in roots]}
        answer = await self.server.api.post("/api/people", body, headers=OWNER, status=200)
        return as_(answer.body["token"])

    async def ask(self, method: str, route: str, headers: dict[str, str], body: Any = None, **query: str) -> tuple[int, str]:
        """The status and the text of an answer; "" for one that does not end."""
        async with (
            asyncio.timeout(WAIT_S),
            self.server.api.raw.request(method, route, headers=headers, json=body, params=query) as answer,
        ):
            endless = answer.content_type == "text/event-stream"
            return answer.status, "" if endless else (await answer.read()).decode(errors="replace")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    other = tmp_path / "other"
    other.mkdir()
    (other / "secret.txt").write_text(SECRET)
    async with live(tmp_path, store=MemoryStore(), password=SecretStr(PASSWORD)) as server:
        made = House(server, other)
        for name, directory, title in (("inside", server.directory, "A common title"), ("outside", other, SECRET)):
            answer = await server.api.post(
                "/session", {"title": title}, params={"directory": str(directory)}, headers=OWNER, status=200
            )
            setattr(made, name, answer.body["id"])
        yield made


# --- roles ---------------------------------------------------------------------------------------------------------------


def routes() -> set[tuple[str, str]]:
    """(method, path) of all that the server serves, by its own table."""
    table = _shared_table(FACES, tuple(modules()))
    return {
        (route.method, route.resource.canonical.rstrip("/") or "/")
        for route in table.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }


def test_the_tables_name_no_route_that_is_not_there() -> None:
    assert (OPEN | VIEW | WORK) - routes() == set()


def test_a_route_in_no_table_is_for_admins_and_what_changes_something_is_not_for_who_looks() -> None:
    assert needed_role("POST", "/made/up") == needed_role("GET", "/made/up") == "admin"
    assert needed_role("HEAD", "/session") == "view"
    assert {row for row in VIEW if row[0] != "GET"} == {("POST", "/api/pair")}, "a device has no more than its person"
    for opened in ("/pty", "/session/{sessionID}/shell", "/config", "/auth/{providerID}", "/api/people", "/global/dispose"):
        methods = {method for method, path in routes() if path == opened} - {"GET"}
        assert {needed_role(method, opened) for method in methods} == {"admin"}, opened


@pytest.mark.parametrize("role", ROLES)
async def test_each_route_is_refused_to_those_whose_role_is_too_low(house: House, role: Role) -> None:
    """The answer is a 403 that names the role, or anything else: what the route says of a made-up id."""
    headers = await house.add("one", role)
    for method, path in sorted(routes()):
        needed = needed_role(method, path)
        if needed is None or path.endswith(STREAMS) or "service/stop" in path or "dispose" in path:
            continue
        filled = path.replace("{", "").replace("}", "")
        if ROLES.index(role) >= ROLES.index(needed) and (method, path) not in VIEW:
            continue  # it would be done, or wait
        status, text = await house.ask(method, filled, headers)
        is_refused = status == 403 and f"has the role {role}, and this needs {needed}" in text
        assert is_refused == (ROLES.index(role) < ROLES.index(needed)), (method, path, status, text)


async def test_a_viewer_reads_a_session_and_does_not_prompt(house: House) -> None:
    viewer, worker = await house.add("vera", "view"), await house.add("wim", "work")
    body = {"parts": [{"type": "text", "text": "echo hello"}]}
    status, text = await house.ask("POST", f"/session/{house.inside}/message", viewer, body)
    assert (status, json.loads(text)["data"]["message"]) == (
        403,
        "vera has the role view, and this needs work. Whoever runs the server can change it:"
        " opencode-shim people change vera --role work.",
    )
    assert (await house.ask("POST", f"/session/{house.inside}/message", worker, body))[0] == 200
    assert "hello" in (await house.ask("GET", f"/session/{house.inside}/message", viewer))[1]
    assert (await house.ask("POST", f"/session/{house.inside}/shell", worker, {"command": "ls", "agent": "build"}))[0] == 403


def test_secrets_of_a_configuration_are_for_admins() -> None:
    config = {"model": "a/b", "mcp": {"x": {"type": "local", "environment": {"KEY": "s"}, "enabled": True}}, "provider": 3}
    assert without_secrets(config) == {"model": "a/b", "mcp": {"x": {"type": "local", "enabled": True}}, "provider": 3}


# --- roots ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["view", "work"])
async def test_people_with_roots_learn_nothing_of_other_directories(house: House, role: Role) -> None:
    """Every route that is not for admins, with the other session's id, with the other directory, and without either."""
    headers = await house.add("one", role, house.server.directory)
    for method, path in sorted(VIEW | (WORK if role == "work" else set())):
        filled = path.replace("{sessionID}", house.outside).replace("{session_id}", house.outside)
        named = {"directory": str(house.other)}
        if "{sessionID}" in path:
            status, text = await house.ask(method, filled.replace("{", "").replace("}", ""), headers)
            assert status in (403, 404), (method, path, status, text)
            assert SECRET not in text, path
        if path == "/api/pair":  # of the person, not of a directory
            continue
        status, text = await house.ask(method, filled.replace("{", "").replace("}", ""), headers, **named)
        assert status in (403, 404), (method, path, status, text)
        if method == "GET" and not path.endswith(STREAMS):
            status, text = await house.ask(method, filled.replace("{", "").replace("}", ""), headers)
            for hidden in (SECRET, house.outside, str(house.other)):
                assert hidden not in text or status >= 400, (path, hidden, text[:500])


async def test_a_body_may_not_name_what_lies_outside_of_the_roots(house: House) -> None:
    headers = await house.add("one", "work", house.server.directory)
    part = {"type": "file", "mime": "text/plain", "filename": "f", "url": f"file://{house.other}/secret.txt"}
    for method, path, body in (
        ("POST", f"/session/{house.inside}/prompt_async", {"parts": [part]}),
        ("POST", "/session", {"parentID": house.outside}),
        ("POST", "/api/session", {"location": {"directory": str(house.other)}}),
        ("POST", "/api/session", {"location": {"directory": "../other"}}),
    ):
        status, text = await house.ask(method, path, headers, body)
        assert (status, SECRET in text) == (403, False), (path, text)
    assert (await house.ask("GET", "/file/content", headers, path="../other/secret.txt"))[1].count(SECRET) == 0
    words = {"parts": [{"type": "text", "text": "File: ../other/secret.txt is what I mean"}]}
    assert (await house.ask("POST", f"/session/{house.inside}/prompt_async", headers, words))[0] == 204


async def test_an_ask_of_another_directory_is_not_answered_by_the_id_of_a_session_in_the_roots(house: House) -> None:
    """The id of an ask is not told to who may not see it, but may be known."""
    headers = await house.add("one", "work", house.server.directory)
    body = {"parts": [{"type": "text", "text": "permission"}], "model": {"providerID": "mock", "modelID": "mock"}}
    await house.server.api.post(f"/session/{house.outside}/prompt_async", body, headers=OWNER, status=204)
    async with asyncio.timeout(WAIT_S):
        while not (asks := json.loads((await house.ask("GET", "/permission", OWNER))[1])):
            pass
    [ask] = asks
    for path, answer in (
        (f"/permission/{ask['id']}/reply", {"reply": "once"}),
        (f"/session/{house.inside}/permissions/{ask['id']}", {"response": "once"}),
        (f"/api/session/{house.inside}/permission/{ask['id']}/reply", {"decision": {"type": "allow_once"}}),
    ):
        assert (await house.ask("POST", path, headers, answer))[0] == 403, path
    assert json.loads((await house.ask("GET", "/permission", headers))[1]) == []
    assert json.loads((await house.ask("GET", "/permission", OWNER))[1]) == asks


async def test_streams_of_people_with_roots_have_only_events_in_them(house: House) -> None:
    headers = await house.add("one", "view", house.server.directory)
    for path in ("/global/event", "/api/event"):
        async with asyncio.timeout(WAIT_S), house.server.api.raw.get(path, headers=headers) as stream:
            for session, directory in ((house.outside, house.other), (house.inside, house.server.directory)):
                body = {"title": f"renamed by {path}: {session}"}
                params = {"directory": str(directory)}
                await house.server.api.patch(f"/session/{session}", body, params=params, headers=OWNER, status=200)
            seen = ""
            while f"renamed by {path}: {house.inside}" not in seen:
                seen += (await stream.content.readuntil(b"\n\n")).decode()
            assert house.outside not in seen
            assert str(house.other) not in seen


def test_roots_that_share_nothing_are_not_all_directories() -> None:
    assert meet(("/a",), ("/b",)) == NOWHERE
    assert meet((), ("/b",)) == ("/b",)
    assert set(meet(("/a", "/b/c"), ("/a/d", "/b"))) == {"/a/d", "/b/c"}
    assert not is_in("/ab", ("/a",))


async def test_the_audit_log_says_who_has_asked_for_what(house: House, tmp_path: Path) -> None:
    file = tmp_path / "data" / FILE
    await house.ask("POST", "/session", OWNER, {})
    assert not file.exists(), "there is nobody else"
    vera, wim = await house.add("vera", "view"), await house.add("wim", "work")
    assert (await house.ask("POST", "/session", {**wim, "Content-Encoding": "gzip"}))[0] == 400, "refused before the gate"
    for headers, status in ((vera, 403), (wim, 200), (as_("wrong"), 401)):
        assert (await house.ask("PATCH", f"/session/{house.inside}", headers, {"title": "new"}))[0] == status
    await house.ask("GET", "/session", wim)
    audit = house.server.api.raw.app[SERVICES].audit
    assert audit is not None
    await audit.close()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["person"], row["method"], row["route"], row["status"]) for row in rows] == [
        ("", "POST", "/api/people", 200),
        ("", "POST", "/api/people", 200),
        ("", "POST", "/session", 400),
        ("vera", "PATCH", "/session/{sessionID}", 403),
        ("wim", "PATCH", "/session/{sessionID}", 200),
        ("", "PATCH", "/session/{sessionID}", 401),
    ]
    assert {row["names"].get("sessionID") for row in rows[3:]} == {house.inside}
    assert [bool(row["device"]) for row in rows] == [False, False, False, True, True, False]
    assert "new" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


# --- whose doing ---------------------------------------------------------------------------------------------------------


MOCK = {"providerID": "mock", "modelID": "mock"}


def prompt_body(text: str) -> dict[str, Any]:
    return {"parts": [{"type": "text", "text": text}]}


async def journal(house: House, session: str) -> list[dict[str, Any]]:
    """The events of a session, as `/v1` has them."""
    return json.loads((await house.ask("GET", f"/v1/sessions/{session}/events", OWNER, limit="5000"))[1])["events"]


def doings(events: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Person -> what they did: types of events, with the role or the label of an item, or the reason of an end."""
    found: dict[str, set[str]] = {}
    for event in events:
        if "by" in event:
            data: Any = event["data"]
            item: Any = data.get("item") or {"content": [], "role": None}
            labels: list[str] = [part["label"] for part in item["content"] if part["type"] == "status"]
            role = [] if labels else [item["role"]]
            words: list[str] = [event["type"], *labels, *role, obj(data.get("metadata")).get("reason") or ""]
            found.setdefault(event["by"], set()).add(" ".join(filter(None, words)))
    return found


async def open_ask(house: House) -> str:
    """The id of the permission that is asked for."""
    async with asyncio.timeout(WAIT_S):
        while not (asks := json.loads((await house.ask("GET", "/permission", OWNER))[1])):
            await asyncio.sleep(0)
    return asks[0]["id"]


async def wait_for_idle(house: House, *sessions: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while json.loads((await house.ask("GET", "/session/status", OWNER))[1]).keys() & set(sessions):
            await asyncio.sleep(0)


async def test_events_say_whose_doing_they_are_on_each_wire(house: House) -> None:
    """A client cannot claim to be another: neither a header between servers nor a field of a body says who it is."""
    wim, ada = await house.add("wim", "work"), await house.add("ada", "admin")
    forged = {**wim, "X-Shim-Person": '{"name": "ada", "role": "admin"}', "X-Shim-Token": "", "X-Forwarded-User": "ada"}
    body = {"title": "wim's", "metadata": {"owner": "ada", "by": "ada"}, "by": "ada", "owner": "ada"}
    made = json.loads((await house.ask("POST", "/session", forged, body))[1])
    session = made["id"]
    assert made["metadata"] == {"owner": "wim", "by": "ada"}
    assert (await house.ask("POST", f"/session/{session}/prompt_async", forged, {**prompt_body("permission"), "by": "ada"}))[
        0
    ] == 204
    ask = await open_ask(house)
    assert (await house.ask("POST", f"/permission/{ask}/reply", ada, {"reply": "once"}))[0] == 200
    await wait_for_idle(house, session)
    assert (await house.ask("POST", f"/api/session/{session}/prompt", ada, {"text": "hang"}))[0] == 200
    assert (await house.ask("POST", f"/session/{session}/abort", wim))[0] == 200
    assert (await house.ask("PATCH", f"/session/{session}", wim, {"title": "new", "metadata": {"owner": "ada", "a": 1}}))[
        0
    ] == 200
    assert (await house.ask("POST", f"/v1/sessions/{session}/messages", OWNER, {"message": "echo hello"}))[0] == 204
    await wait_for_idle(house, session)
    events = await journal(house, session)
    by = doings(events)
    assert by.keys() == {"wim", "ada"}
    assert by["wim"] >= {"session.started", "item.completed user", "turn.started", "turn.ended aborted", "item.completed session"}
    assert by["ada"] >= {"permission.resolved", "item.completed user", "turn.started"}
    assert not [event for event in events if "by" in event and event["source"] == "agent" and "resolved" not in event["type"]]
    last = [event for event in events if event["type"] == "turn.started"][-1]
    assert "by" not in last, "who has the password has no name"
    info = json.loads((await house.ask("GET", f"/session/{session}", ada))[1])
    assert info["metadata"] == {"owner": "wim", "a": 1}
    rows = json.loads((await house.ask("GET", "/v1/sessions", wim, owner="me"))[1])["sessions"]
    assert [(row["openCodeSessionId"], row["owner"]) for row in rows] == [(session, "wim")]
    assert json.loads((await house.ask("GET", "/v1/sessions", ada, owner="me"))[1])["sessions"] == []
    listed = json.loads((await house.ask("GET", "/inspector/api/sessions", ada, search="wim"))[1])["sessions"]
    assert [row["owner"] for row in listed] == ["wim"]


async def test_a_deletion_says_whose_doing_it_is_to_who_reads(house: House) -> None:
    wim = await house.add("wim", "work")
    async with (
        asyncio.timeout(WAIT_S),
        house.server.api.raw.get(f"/v1/sessions/{house.inside}/events/sse", headers=OWNER) as stream,
    ):
        assert (await house.ask("DELETE", f"/session/{house.inside}", wim))[0] == 200
        text = (await stream.read()).decode()
    last = json.loads([line for line in text.splitlines() if line.startswith("data:")][-1].removeprefix("data:"))
    assert (last["type"], last["by"]) == ("session.ended", "wim")


async def test_an_agent_that_goes_on_after_a_request_is_not_its_persons_doing(house: House) -> None:
    """An agent, its timers and its subagents begin in the task of a request, or inherit its context."""
    wim = await house.add("wim", "work")
    assert (await house.ask("POST", f"/session/{house.inside}/message", wim, prompt_body("subagent")))[0] == 200
    sessions = json.loads((await house.ask("GET", f"/session/{house.inside}/children", OWNER))[1])
    assert len(sessions) == 1
    for session in (house.inside, *(child["id"] for child in sessions)):
        for event in await journal(house, session):
            if event["type"] in ("turn.ended", "item.started", "item.delta") or event["source"] == "agent":
                assert "by" not in event, event


def test_events_of_before_people_are_read_beside_those_of_today() -> None:
    """The body of a row has `by` only where there is a person, so servers of both versions read what neither has said."""
    event = UniversalEvent.model_validate(
        {
            "event_id": "evt_1",
            "sequence": 1,
            "time": "2026-11-29T12:00:00.000Z",
            "session_id": "ses_1",
            "source": "daemon",
            "synthetic": True,
            "type": "session.ended",
            "data": {"reason": "terminated", "terminated_by": "daemon"},
        }
    )
    before, today = row_of(event), row_of(event.model_copy(update={"by": "vera"}))
    assert '"by"' not in before.body
    assert event_of(before).by is None
    assert "by" not in event_of(before).model_dump()
    assert event_of(today).by == event_of(today).model_dump()["by"] == "vera"
    wire = wire_of(today, "ses_1", include_raw=False)
    assert wire is not None
    assert json.loads(wire)["by"] == "vera"


# --- quotas --------------------------------------------------------------------------------------------------------------


async def prompts_on_each_wire(house: House, headers: dict[str, str], session: str) -> dict[str, str]:
    """Prompt one session in every way that there is. Wire -> "" for what was taken, else the words of the refusal."""
    answers: dict[str, str] = {}
    for method, route, body in (
        ("POST", f"/session/{session}/message", prompt_body("echo hello")),
        ("POST", f"/session/{session}/prompt_async", prompt_body("echo hello")),
        ("POST", f"/session/{session}/command", {"command": "init", "arguments": ""}),
        ("POST", f"/session/{session}/summarize", MOCK),
        ("POST", f"/api/session/{session}/prompt", {"text": "echo hello"}),
        ("POST", f"/api/session/{session}/compact", {}),
        ("POST", f"/api/session/{session}/resume", {}),
        ("POST", f"/v1/sessions/{session}/messages", {"message": "echo hello"}),
        ("POST", f"/v1/sessions/{session}/messages/stream", {"message": "echo hello"}),
    ):
        status, words = await house.ask(method, route, headers, body)
        assert status in (200, 204, 429), (route, status, words)
        answers[route.replace(session, "ID")] = words if status == 429 else ""
    try:
        await McpClient(house.server, **headers).use("prompt", session=session, prompt="echo hello")
        answers["/mcp"] = ""
    except AssertionError as error:
        answers["/mcp"] = str(error)
    async with house.server.api.raw.ws_connect("/acp", headers=headers) as socket:
        client = Editor(socket, house.server.directory, leave)
        await client.call("initialize", protocolVersion=1, clientCapabilities={})
        await client.load(session)
        answer = await client.answer(await client.begin_prompt(session, "echo hello"))
        answers["/acp"] = json.dumps(answer.get("error")) if "error" in answer else ""
    return answers


async def test_a_quota_holds_on_each_wire(tmp_path: Path) -> None:
    async with live(tmp_path, store=MemoryStore(), password=SecretStr(PASSWORD), mcp=True) as server:
        house = House(server, tmp_path)
        ada = await house.add("ada", "admin")
        limits = {"limits": {"max_running": 1, "max_queued": 1}}
        assert (await house.ask("PATCH", "/api/people/ada", OWNER, limits))[0] == 204
        busy, idle = [json.loads((await house.ask("POST", "/session", ada, {}))[1])["id"] for _ in range(2)]
        assert (await house.ask("POST", f"/session/{idle}/message", ada, prompt_body("echo before")))[0] == 200
        assert (await house.ask("POST", f"/session/{busy}/prompt_async", ada, prompt_body("hang")))[0] == 204
        answers = await prompts_on_each_wire(house, ada, idle)
        words = "1 agents work for ada already. Wait for one, or stop one. Whoever runs the server can change it"
        assert {wire for wire, said in answers.items() if words not in said} == set()
        assert (await house.ask("POST", f"/session/{busy}/prompt_async", ada, prompt_body("echo one")))[0] == 204
        status, said = await house.ask("POST", f"/session/{busy}/prompt_async", ada, prompt_body("echo two"))
        assert (status, "1 prompts of ada wait already" in said, "max_queued = 1" in said) == (429, True, True)
        assert (await house.ask("POST", f"/session/{busy}/prompt_async", OWNER, prompt_body("echo three")))[0] == 204
        before = len(json.loads((await house.ask("GET", "/session", ada))[1]))
        words = await McpClient(server, **ada).refusal("start_session", agent="mock", prompt="echo hello")
        assert "agents work for ada already" in words
        assert len(json.loads((await house.ask("GET", "/session", ada))[1])) == before, "a refused prompt leaves no session"
        child = server.api.raw.app[SERVICES].sessions.create(
            str(server.directory), Identity("global", "/"), parent_id=busy, agent_name="mock", is_delegated=True
        )
        assert child.owner == "ada"
        with pytest.raises(LimitReached, match="1 agents work for ada"):
            await submit(server.api.raw.app[SERVICES].sessions, child.id, PromptRequest((Text("", "echo"),)))
        [row] = json.loads((await house.ask("GET", "/api/people", OWNER))[1])
        assert (row["limits"]["max_running"], row["usage"]["running"], row["usage"]["queued"]) == (1, 1, 1)
        assert (await house.ask("POST", f"/session/{busy}/abort", ada))[0] == 200
        await wait_for_idle(house, busy)
        assert (await house.ask("POST", f"/session/{idle}/message", ada, prompt_body("echo hello")))[0] == 200


async def test_the_cost_of_a_day_outlives_its_session_and_the_server_and_ends_with_the_day(tmp_path: Path) -> None:
    store, clock = MemoryStore(), ManualClock(1_800_000_000_000)
    server_settings: dict[str, Any] = {"store": store, "clock": clock, "password": SecretStr(PASSWORD)}
    async with live(tmp_path, **server_settings) as server:
        house = House(server, tmp_path)
        wim = await house.add("wim", "work")
        session = json.loads((await house.ask("POST", "/session", wim, {}))[1])["id"]
        assert (await house.ask("POST", f"/session/{session}/message", wim, prompt_body("subagent")))[0] == 200
        [row] = json.loads((await house.ask("GET", "/api/people", OWNER))[1])
        spent = row["usage"]["cost_day"]
        assert spent > 0
        assert (await house.ask("DELETE", f"/session/{session}", wim))[0] == 200
        assert (await house.ask("PATCH", "/api/people/wim", OWNER, {"limits": {"max_cost_day": spent}}))[0] == 204
    async with live(tmp_path, **server_settings) as server:
        house = House(server, tmp_path)
        session = json.loads((await house.ask("POST", "/session", wim, {}))[1])["id"]
        status, said = await house.ask("POST", f"/session/{session}/message", wim, prompt_body("echo"))
        assert (status, "USD for wim today. Go on tomorrow (UTC)." in said) == (429, True)
        assert (await house.ask("POST", f"/session/{session}/message", OWNER, prompt_body("echo")))[0] == 200
        clock.value_ms += 24 * 3600 * 1000
        assert (await house.ask("POST", f"/session/{session}/message", wim, prompt_body("echo")))[0] == 200
    clock.value_ms += 24 * 3600 * 1000
    async with live(tmp_path, **server_settings):
        assert await store.values(SPENDING) == {}


async def test_a_change_of_a_person_keeps_the_token_and_closes_streams(house: House) -> None:
    wim = await house.add("wim", "work")
    async with asyncio.timeout(WAIT_S), house.server.api.raw.get("/event", headers=wim) as stream:
        assert (await house.ask("PATCH", "/api/people/wim", OWNER, {"limits": {"max_running": 3}}))[0] == 204
        assert "server.connected" in (await stream.content.readuntil(b"\n\n")).decode()
        assert (await house.ask("PATCH", "/api/people/wim", OWNER, {"role": "view"}))[0] == 204
        with pytest.raises(Exception, match=r"closed|reset|payload"):
            while await stream.content.readuntil(b"\n\n"):
                pass
            raise ConnectionResetError("closed")
    assert (await house.ask("POST", "/session", wim, {}))[0] == 403
    assert (await house.ask("PATCH", "/api/people/wim", wim, {"role": "admin"}))[0] == 403
    assert (await house.ask("PATCH", "/api/people/nobody", OWNER, {"role": "view"}))[0] == 400
    assert (await house.ask("PATCH", "/api/people/wim", OWNER, {"role": "admin", "ownSessions": True}))[0] == 400
    [row] = json.loads((await house.ask("GET", "/api/people", OWNER))[1])
    assert (row["role"], row["limits"]["max_running"]) == ("view", 3)


# --- sessions of one's own -----------------------------------------------------------------------------------------------


async def add_alone(house: House, name: str) -> dict[str, str]:
    headers = await house.add(name, "work")
    assert (await house.ask("PATCH", f"/api/people/{name}", OWNER, {"ownSessions": True}))[0] == 204
    return headers


async def test_people_with_sessions_of_their_own_learn_nothing_of_others(house: House) -> None:
    """Every route that is for them, with another's session, and without one."""
    wim = await add_alone(house, "wim")
    for method, path in sorted(VIEW | WORK):
        filled = path.replace("{sessionID}", house.outside).replace("{session_id}", house.outside)
        filled = filled.replace("{", "").replace("}", "")
        if path.startswith(("/v1/sessions", "/v1/x-sessions")) or "{sessionID}" in path:
            status, text = await house.ask(method, filled, wim)
            assert (status in (403, 404), SECRET in text) == (True, False), (method, path, status, text)
        elif method == "GET" and not path.endswith(STREAMS) and path != "/file/content":
            status, text = await house.ask(method, filled, wim, directory=str(house.other))
            assert (house.outside in text, SECRET in text) == (False, False), (path, text)
    for body in ({"parentID": house.outside}, {"sessionID": house.outside}):
        assert (await house.ask("POST", "/session", wim, body))[0] in (400, 404), body
    await house.server.api.post(f"/session/{house.outside}/prompt_async", prompt_body("permission"), headers=OWNER, status=204)
    ask = await open_ask(house)
    assert json.loads((await house.ask("GET", "/permission", wim))[1]) == []
    assert (await house.ask("POST", f"/permission/{ask}/reply", wim, {"reply": "once"}))[0] == 404
    made = json.loads((await house.ask("POST", "/session", wim, {"title": "mine"}))[1])["id"]
    assert [row["id"] for row in json.loads((await house.ask("GET", "/session", wim))[1])] == [made]
    assert (await house.ask("POST", f"/session/{made}/message", wim, prompt_body("echo hello")))[0] == 200


@pytest.mark.parametrize("path", ["/event", "/global/event", "/api/event"])
async def test_a_stream_of_sessions_of_ones_own_has_no_others_in_it(house: House, path: str) -> None:
    """Neither live, nor in what a new stream tells of running turns and open asks; a deletion of one's own is told."""
    wim = await add_alone(house, "wim")
    made = json.loads((await house.ask("POST", "/session", wim, {}))[1])["id"]
    await house.server.api.post(f"/session/{house.inside}/prompt_async", prompt_body("permission"), headers=OWNER, status=204)
    ask = await open_ask(house)
    async with asyncio.timeout(WAIT_S), house.server.api.raw.get(path, headers=wim) as stream:
        assert (await house.ask("POST", f"/permission/{ask}/reply", OWNER, {"reply": "once"}))[0] == 200
        await wait_for_idle(house, house.inside)
        assert (await house.ask("POST", f"/session/{made}/message", wim, prompt_body("echo hello")))[0] == 200
        assert (await house.ask("DELETE", f"/session/{house.inside}", OWNER))[0] == 200
        assert (await house.ask("DELETE", f"/session/{made}", wim))[0] == 200
        seen = ""
        while "session.deleted" not in seen:
            seen += (await stream.content.readuntil(b"\n\n")).decode()
    assert "hello" in seen
    assert house.inside not in seen
    assert ask not in seen


# --- coming in and going -------------------------------------------------------------------------------------------------


async def test_people_are_added_listed_and_removed_by_commands(house: House, tmp_path: Path) -> None:
    settings = Settings(directory=tmp_path, data_dir=tmp_path / "data", password=SecretStr(PASSWORD))
    url = str(house.server.api.raw.make_url("")).rstrip("/")
    shown = io.StringIO()
    out = screen.console(shown)
    await pair.add_person(settings, url, "vera", {"role": "view", "roots": [str(house.server.directory)]}, out)
    headers = as_(shown.getvalue().split()[0])
    async with house.server.api.raw.get("/event", headers=headers) as stream:
        assert stream.status == 200
        code = json.loads((await house.ask("POST", "/api/pair", headers))[1])["code"]
        device = as_(json.loads((await house.ask("GET", f"/auth/connect/{code}", {}))[1])["token"])
        assert (await house.ask("POST", "/session", device, {}))[0] == 403, "it has the role of its person"
        await pair.show_people(settings, url, out)
        assert "vera  view  until" in shown.getvalue()
        await pair.remove_person(settings, url, "vera", out)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(Exception, match=r"closed|reset|payload"):
                while await stream.content.readuntil(b"\n\n"):
                    pass
                raise ConnectionResetError("closed")
    assert [(await house.ask("GET", "/path", one))[0] for one in (headers, device)] == [401, 401]
    with pytest.raises(ShimError, match="There is nobody with the name vera"):
        await pair.remove_person(settings, url, "vera", out)


async def test_a_new_token_ends_the_earlier_one_of_the_name_and_a_restart_ends_none(tmp_path: Path) -> None:
    store = MemoryStore()
    async with live(tmp_path, store=store, password=SecretStr(PASSWORD)) as server:
        house = House(server, tmp_path)
        first, second = await house.add("vera", "view"), await house.add("vera", "work", server.directory)
        assert (await house.ask("GET", "/path", first))[0] == 401
    async with live(tmp_path, store=store, password=SecretStr(PASSWORD)) as server:
        house = House(server, tmp_path)
        assert (await house.ask("POST", "/session", second, {}))[0] == 200
        assert (await house.ask("GET", "/path", second, directory="/"))[0] == 403
        [row] = json.loads((await house.ask("GET", "/api/people", OWNER))[1])
        assert (row["name"], row["role"], row["roots"]) == ("vera", "work", [str(server.directory)])
    async with live(tmp_path, store=store, password=SecretStr("another")) as server:
        assert (await House(server, tmp_path).ask("GET", "/path", second))[0] == 401


async def test_a_person_needs_a_password_of_the_server_and_an_admin_has_no_roots(tmp_path: Path, house: House) -> None:
    for body in (
        {"name": "a", "role": "admin", "roots": ["/srv"]},
        {"name": "a b", "role": "view"},
        {"name": "a", "role": "king"},
    ):
        assert (await house.ask("POST", "/api/people", OWNER, body))[0] == 400
    (tmp_path / "open").mkdir()
    async with live(tmp_path / "open") as server:
        answer = await server.api.post("/api/people", {"name": "a", "role": "view"}, status=400)
        assert "This server has no password, so everybody may do all" in str(answer.body)


async def test_a_proxy_names_who_has_signed_in(tmp_path: Path) -> None:
    proxy = {"password": SecretStr(PASSWORD), "trusted_user_header": "X-Forwarded-User"}
    async with live(tmp_path, store=MemoryStore(), trust_proxy=True, **proxy) as server:
        house = House(server, tmp_path)
        await house.add("vera", "view")
        vera, stranger = {"X-Forwarded-User": "vera"}, {"X-Forwarded-User": "stranger"}
        assert (await house.ask("GET", "/session", vera))[0] == 200
        assert (await house.ask("POST", "/session", vera, {}))[0] == 403
        assert "does not know stranger" in (await house.ask("GET", "/session", stranger))[1]
        assert (await house.ask("GET", "/session", {"X-Forwarded-User": "owner, vera"}))[0] == 200, (
            "the proxy's own entry is last"
        )
        assert (await house.ask("GET", "/session", {}))[0] == 401
    (tmp_path / "direct").mkdir()
    async with live(tmp_path / "direct", **proxy) as server:
        assert (await House(server, tmp_path).ask("GET", "/session", {"X-Forwarded-User": "vera"}))[0] == 401


async def test_mcp_servers_of_a_session_are_for_admins(house: House) -> None:
    """They run programs, as those of `POST /mcp` do; a session without any is not."""
    work = await house.add("wim", "work")
    body = {"agent": "mock", "directory": str(house.server.directory), "mcp": {"x": {"type": "local", "command": "touch"}}}
    status, words = await house.ask("POST", "/v1/sessions/own", work, body)
    assert (status, "needs admin" in words) == (403, True), words
    status, words = await house.ask("POST", "/v1/sessions/own", OWNER, body)
    assert (status, "takes no MCP servers" in words) == (400, True), words
    assert (await house.ask("POST", "/v1/sessions/own", work, {**body, "mcp": {}}))[0] == 200
    assert (await house.ask("POST", "/v1/x-sessions/own/mcp", work, {"mcp": {}}))[0] == 403
