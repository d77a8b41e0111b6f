"""`/acp` with the mock: what editors see and do, each message of both sides against the protocol's own schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, WSServerHandshakeError
from pydantic import SecretStr

from shim.main.app import BACKEND
from shim.main.backend import Backend
from shim.store.sqlite import SqliteStore
from tests.http.doors import GOOD, OWN_PAGE, PASSWORD
from tests.support.acp import WAIT_S, Editor, allow, editor
from tests.support.live import Live, live
from universal.permissions import Access
from universal.session.changes import RequestClosed, RequestOpened
from universal.session.values import PermissionRequest


@pytest.fixture
async def client(server: Live) -> AsyncIterator[Editor]:
    """An editor that allows what is asked."""
    async with editor(server, reply=allow) as connected:
        yield connected


def backend_of(server: Live) -> Backend:
    """The parts of a server in this process."""
    backend = server.api.raw.server.app[BACKEND].value
    assert backend is not None
    return backend


# --- the beginning ----------------------------------------------------------------------------------------------


async def test_the_first_request_is_initialize(server: Live) -> None:
    async with server.api.raw.ws_connect("/acp") as socket:
        assert len(socket._response.headers["Acp-Connection-Id"]) == 16
        bare = Editor(socket, server.directory)
        assert "initialize" in (await bare.refusal("session/new", cwd="/", mcpServers=[]))["message"]
        result = await bare.call("initialize", protocolVersion=7)
        assert (result["protocolVersion"], result["authMethods"]) == (1, [])
        assert result["agentCapabilities"]["loadSession"] is True


@pytest.mark.parametrize(
    ("line", "code"),
    [("{", -32700), ("[]", -32600), ("7", -32600), ('{"id": 1}', -32600), ('{"id": {}, "method": "x"}', -32600)],
)
async def test_a_broken_message_is_answered(client: Editor, line: str, code: int) -> None:
    await client.socket.send_str(line)
    answer = await client.next()
    assert (answer["id"], answer["error"]["code"]) == (None, code)
    assert await client.prompt(await client.open(), "echo still here") == "end_turn"


async def test_unknown_methods_and_wrong_parameters_are_errors(client: Editor) -> None:
    for method, params, code in (
        ("session/fly", {}, -32601),
        ("session/new", {"cwd": "relative", "mcpServers": []}, -32602),
        ("session/new", {"cwd": 7}, -32602),
        ("session/new", {"cwd": "/not/there", "mcpServers": []}, -32602),
        ("session/new", {"cwd": "/", "mcpServers": [{"name": "x"}]}, -32602),
        ("session/load", {"sessionId": "ses_x", "cwd": "/", "mcpServers": []}, -32002),
        ("session/prompt", {"sessionId": "ses_x", "prompt": []}, -32002),
        ("session/close", {"sessionId": "ses_x"}, -32002),
        ("authenticate", {"methodId": "x"}, -32602),
    ):
        client.last_id += 1
        await client.socket.send_str(json.dumps({"jsonrpc": "2.0", "id": client.last_id, "method": method, "params": params}))
        answer = await client.answer(client.last_id)
        assert answer["error"]["code"] == code, (method, answer)
        assert len(answer["error"]["message"]) > 10


# --- turns ------------------------------------------------------------------------------------------------------


async def test_a_turn(client: Editor) -> None:
    session = await client.open()
    assert await client.prompt(session, "echo hello there") == "end_turn"
    assert client.words() == "hello there"
    assert client.updates("user_message_chunk") == []  # the editor has shown it itself
    assert client.updates("session_info_update")[-1]["title"] == "echo hello there"
    assert client.seen[-1]["result"] == {"stopReason": "end_turn"}
    before = len(client.seen)
    assert (await client.call("session/list"))["sessions"][0]["sessionId"] == session
    assert len(client.seen) == before + 1  # nothing of the turn came after its answer


async def test_thoughts_tools_plans_and_usage(client: Editor) -> None:
    session = await client.open()
    await client.prompt(session, "think")
    assert client.words("agent_thought_chunk")
    assert client.updates("usage_update")[-1]["size"] > client.updates("usage_update")[-1]["used"] > 0
    await client.prompt(session, "todo")
    assert {row["status"] for row in client.updates("plan")[-1]["entries"]} == {"completed"}
    await client.prompt(session, "tool")
    first, *rest = [row for row in client.updates() if row["sessionUpdate"].startswith("tool_call") and row["name"] == "bash"]
    assert (first["sessionUpdate"], first["status"], first["kind"]) == ("tool_call", "pending", "execute")
    assert {row["sessionUpdate"] for row in rest} == {"tool_call_update"}
    assert rest[-1]["status"] == "completed"
    assert rest[-1]["rawOutput"]["output"] == rest[-1]["content"][0]["content"]["text"]
    await client.prompt(session, "failtool")
    assert client.updates("tool_call_update")[-1]["status"] == "failed"


async def test_an_edit_has_a_diff_and_a_place(client: Editor) -> None:
    (client.directory / "a.txt").write_text("one\n")
    await client.prompt(await client.open(), "edit a.txt")
    done = client.updates("tool_call_update")[-1]
    path = str(client.directory / "a.txt")
    assert done["locations"] == [{"path": path}]
    [diff] = [row for row in done["content"] if row["type"] == "diff"]
    assert (diff["path"], diff["oldText"]) == (path, "one\n")
    assert diff["newText"] == (client.directory / "a.txt").read_text()


async def test_text_images_and_resources_reach_the_agent(server: Live, client: Editor) -> None:
    session = await client.open()
    (client.directory / "linked.txt").write_text("linked words")
    blocks: list[dict[str, Any]] = [
        {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="},
        {"type": "resource_link", "name": "linked.txt", "uri": (client.directory / "linked.txt").as_uri()},
        {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "embedded words", "mimeType": "text/plain"}},
    ]
    assert await client.prompt(session, "echo", *blocks) == "end_turn"
    parts = [part for message in await server.messages(session) for part in message["parts"] if message["info"]["role"] == "user"]
    assert "data:image/png;base64,iVBORw0KGgo=" in [part.get("url") for part in parts]
    texts = "\n".join(part.get("text", "") for part in parts)
    assert "linked words" in texts
    assert "embedded words" in texts
    error = await client.refusal(
        "session/prompt", sessionId=session, prompt=[{"type": "audio", "data": "", "mimeType": "audio/x"}]
    )
    assert "audio" in error["message"]


async def test_a_slash_command_runs(server: Live, client: Editor) -> None:
    session = await client.open()
    commands = await client.until(
        lambda m: m.get("params", {}).get("update", {}).get("sessionUpdate") == "available_commands_update"
    )
    assert "init" in {row["name"] for row in commands["params"]["update"]["availableCommands"]}
    await client.prompt(session, "/init with care")
    assert "AGENTS.md" in json.dumps((await server.messages(session))[0])


@pytest.mark.parametrize(("scene", "words"), [("error", "overloaded"), ("exit", ""), ("crash", "")])
async def test_a_turn_that_fails_is_an_error(client: Editor, scene: str, words: str) -> None:
    session = await client.open()
    answer = await client.answer(await client.begin_prompt(session, scene))
    assert answer["error"]["code"] == -32603
    assert words in answer["error"]["message"].lower()
    assert await client.prompt(session, "echo again") == "end_turn"


async def test_a_cancel_ends_the_turn_with_its_reason(client: Editor) -> None:
    session = await client.open()
    running = await client.begin_prompt(session, "hang")
    await client.notify("session/cancel", sessionId=session)  # also at once, before the prompt was accepted
    assert (await client.answer(running))["result"] == {"stopReason": "cancelled"}
    running = await client.begin_prompt(session, "hang")
    await client.notify("$/cancel_request", requestId=running)
    assert (await client.answer(running))["result"] == {"stopReason": "cancelled"}
    assert await client.prompt(session, "echo on") == "end_turn"


async def test_prompts_that_wait_are_answered_at_the_end_of_their_turn(client: Editor) -> None:
    session = await client.open()
    first, second = await client.begin_prompt(session, "slow 1"), await client.begin_prompt(session, "echo second")
    assert (await client.answer(first))["result"]["stopReason"] == "end_turn"
    said = client.words()
    if not any(message.get("id") == second for message in client.seen):
        await client.answer(second)
    assert "second" in client.words()
    assert said
    assert sum("result" in message and message.get("id") in (first, second) for message in client.seen) == 2


# --- what is asked ----------------------------------------------------------------------------------------------


async def test_a_permission_is_answered_by_the_editor(server: Live) -> None:
    async with editor(server) as client:
        session = await client.open()
        running = await client.begin_prompt(session, "permission")
        asked = await client.request("session/request_permission")
        assert asked["params"]["toolCall"]["title"] == "git push origin main"
        assert [row["kind"] for row in asked["params"]["options"]] == ["allow_once", "allow_always", "reject_once"]
        assert [row["id"] for row in (await server.api.get("/permission", status=200)).body] == [asked["id"]]
        await client.answer_with(asked["id"], {"outcome": {"outcome": "selected", "optionId": "reject"}})
        await client.answer(running)
        assert "failed" in [row.get("status") for row in client.updates("tool_call_update")]


@pytest.mark.parametrize("result", [{}, {"outcome": 7}, {"outcome": {"outcome": "selected", "optionId": "nonsense"}}])
async def test_an_answer_that_is_not_understood_allows_nothing(server: Live, result: Any) -> None:
    async with editor(server) as client:
        running = await client.begin_prompt(await client.open(), "permission")
        asked = await client.request("session/request_permission")
        await client.socket.send_str(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
        await client.answer(running)
        assert "failed" in [row.get("status") for row in client.updates("tool_call_update")]


async def test_a_question_is_a_form(server: Live) -> None:
    def fill(message: dict[str, Any]) -> Any:
        return {"action": "accept", "content": {"q0": "Blue", "q1_other": "wheels"}}

    async with editor(server, reply=fill) as client:
        session = await client.open()
        assert await client.prompt(session, "question") == "end_turn"
        assert "Blue" in client.words()
        assert "wheels" in client.words()
        client.reply = lambda message: {"action": "decline"}
        await client.prompt(session, "question 1")
        assert client.updates("tool_call_update")[-1]["status"] == "failed"


async def test_without_forms_a_question_is_asked_as_a_choice(server: Live) -> None:
    async with editor(server, reply=allow, forms=False) as client:
        assert await client.prompt(await client.open(), "question") == "end_turn"
        assert len([m for m in client.seen if m.get("method") == "session/request_permission"]) == 2
        assert "Red" in client.words()


async def test_a_client_that_cannot_show_a_form_is_asked_as_a_choice(server: Live) -> None:
    async with editor(server) as client:
        running = await client.begin_prompt(await client.open(), "question 1")
        asked = await client.request("elicitation/create")
        await client.send({"id": asked["id"], "error": {"code": -32601, "message": "no forms"}})
        client.reply = allow
        assert (await client.answer(running))["result"] == {"stopReason": "end_turn"}
        assert "Red" in client.words()


async def test_a_subagent_asks_in_its_parents_session(server: Live, client: Editor) -> None:
    session = await client.open()
    child = await server.session(parentID=session)
    stranger = await server.session()
    services = backend_of(server).services
    request = PermissionRequest("per_child", Access("bash", ("ls",)))
    for id_, opened in ((stranger, PermissionRequest("per_other", Access("bash", ("ls",)))), (child, request)):
        services.sessions.deps.changes.publish([RequestOpened(opened)], await services.sessions.session(id_), 0)
    asked = await client.request("session/request_permission")
    assert (asked["id"], asked["params"]["sessionId"]) == ("per_child", session)
    services.sessions.deps.changes.publish([RequestClosed(request, "accept")], await services.sessions.session(child), 0)
    assert "per_other" not in {message.get("id") for message in client.seen}


# --- several clients --------------------------------------------------------------------------------------------


async def test_the_prompt_of_another_client_is_shown(server: Live, client: Editor) -> None:
    session = await client.open()
    async with editor(server) as other:
        await other.load(session, "session/resume")
        await client.prompt(session, "echo from the first")
        await other.until(lambda message: other.words("agent_message_chunk") == "from the first")
        assert other.words("user_message_chunk") == "echo from the first"
    await server.ask(session, "echo from the web")
    await client.until(lambda message: client.words().endswith("from the web"))
    assert client.words("user_message_chunk") == "echo from the web"


async def test_either_client_answers_and_the_other_sees_it_closed(server: Live) -> None:
    async with editor(server) as client, server.api.stream("/event") as events:
        session = await client.open()
        running = await client.begin_prompt(session, "permission")
        asked = await client.request("session/request_permission")
        await server.api.post(f"/permission/{asked['id']}/reply", {"reply": "once"}, status=200)
        closed = await client.until(lambda message: message.get("method") == "$/cancel_request")
        assert closed["params"] == {"requestId": asked["id"]}
        await client.answer_with(asked["id"], {"outcome": {"outcome": "cancelled"}})  # too late, which harms nothing
        assert (await client.answer(running))["result"] == {"stopReason": "end_turn"}

        running = await client.begin_prompt(session, "permission")
        asked = await client.request("session/request_permission")
        await client.answer_with(asked["id"], allow(asked))
        async with asyncio.timeout(WAIT_S):
            while (event := await events.next())["type"] != "permission.replied" or event["properties"]["requestID"] != asked[
                "id"
            ]:
                pass
        assert event["properties"]["reply"] == "once"
        await client.answer(running)


async def test_a_turn_outlives_its_client(server: Live) -> None:
    async with editor(server) as client:
        session = await client.open()
        await client.begin_prompt(session, "permission")
        asked = await client.request("session/request_permission")
    async with editor(server) as client:
        await client.load(session)
        again = [message for message in client.seen if message.get("method") == "session/request_permission"]
        assert [message["id"] for message in again] == [asked["id"]]
        assert client.words("user_message_chunk") == "permission"
        await client.answer_with(asked["id"], allow(asked))
        await client.until(lambda message: client.words().endswith("Pushed."))
        assert client.words() == "I want to push.Pushed."


async def test_a_history_is_sent_before_the_answer(tmp_path: Path) -> None:
    """Also one whose beginning is packed, and was stored by the server before."""
    many = 110
    said = "".join(f"{number}." for number in range(many))
    async with live(tmp_path, store=SqliteStore(tmp_path / "sessions.db")) as server, editor(server) as client:
        session = await client.open()
        for number in range(many):
            await client.prompt(session, f"echo {number}.")
    async with live(tmp_path, store=SqliteStore(tmp_path / "sessions.db")) as server, editor(server) as other:
        result = await other.load(session)
        assert other.words() == said
        assert other.words("user_message_chunk") == "".join(f"echo {number}." for number in range(many))
        assert result["modes"]["currentModeId"] == "build"
        assert len(other.updates("usage_update")) == 1
        async with editor(server) as client:
            await client.load(session, "session/resume")
            await client.prompt(session, "echo more")
            assert client.words() == "more"
        await other.until(lambda message: other.words() == said + "more")


async def test_close_ends_the_own_turn_and_no_other(server: Live, client: Editor) -> None:
    session = await client.open()
    await server.prompt(session, "hang")
    await client.until(lambda message: client.words("user_message_chunk") == "hang")
    await client.call("session/close", sessionId=session)
    assert session in (await server.api.get("/session/status", status=200)).body
    await server.api.post(f"/session/{session}/abort", status=200)
    await client.load(session, "session/resume")
    running = await client.begin_prompt(session, "hang")
    await client.until(lambda message: True)
    await client.call("session/close", sessionId=session)
    assert {"id": running, "jsonrpc": "2.0", "result": {"stopReason": "cancelled"}} in client.seen
    assert session not in (await server.api.get("/session/status", status=200)).body


# --- choices ----------------------------------------------------------------------------------------------------


async def test_mode_model_and_effort(server: Live, client: Editor) -> None:
    session = await client.open()
    async with editor(server) as other:
        await other.load(session)
        await client.call("session/set_mode", sessionId=session, modeId="plan")
        assert (await other.update("current_mode_update"))["currentModeId"] == "plan"
        options = (await client.call("session/set_config_option", sessionId=session, configId="effort", value="high"))[
            "configOptions"
        ]
        assert {row["id"]: row["currentValue"] for row in options} == {"mode": "plan", "model": "mock/mock", "effort": "high"}
        assert (await other.update("config_option_update"))["configOptions"] == options
    await client.call("session/set_config_option", sessionId=session, configId="model", value="mock/mock")
    await client.prompt(session, "echo x")
    info = (await server.messages(session))[0]["info"]
    assert info["agent"] == "plan"
    for option, value in (("mode", "fly"), ("model", "mock/none"), ("effort", "huge"), ("colour", "red")):
        error = await client.refusal("session/set_config_option", sessionId=session, configId=option, value=value)
        assert error["code"] == -32602
        assert "none" not in error["message"].partition("It has")[2]


async def test_mcp_servers_of_the_client_are_added(server: Live, client: Editor) -> None:
    servers = [
        {"name": "one", "command": "/bin/x", "args": ["a"], "env": [{"name": "K", "value": "v"}]},
        {"type": "http", "name": "two", "url": "http://127.0.0.1:9/mcp", "headers": [{"name": "H", "value": "v"}]},
    ]
    await client.call("session/new", cwd=str(client.directory), mcpServers=servers)
    listed = (await server.api.get("/api/mcp", status=200)).body["data"]
    assert {"one", "two"} <= {row["name"] for row in listed}


async def test_lists_have_pages(server: Live, client: Editor) -> None:
    made = [await server.session() for _ in range(120)]
    listed: list[str] = []
    more: dict[str, Any] = {}
    while True:
        page = await client.call("session/list", **more)
        listed += [row["sessionId"] for row in page["sessions"]]
        if "nextCursor" not in page:
            break
        more = {"cursor": page["nextCursor"]}
    assert sorted(listed) == sorted(made)
    assert (await client.call("session/list", cwd="/"))["sessions"] == []


# --- who may ----------------------------------------------------------------------------------------------------


async def test_the_password_and_the_origin_are_checked_at_the_door(tmp_path: Path) -> None:
    async with live(tmp_path, password=SecretStr(PASSWORD)) as server:
        for headers in ({}, {"Authorization": f"Bearer {PASSWORD}x"}, {"Authorization": GOOD, "Origin": "https://evil.example"}):
            with pytest.raises(WSServerHandshakeError) as refused:
                async with server.api.raw.ws_connect("/acp", headers=headers):
                    pass
            assert refused.value.status == (403 if "Origin" in headers else 401)
        async with editor(server, Authorization=GOOD, Origin=OWN_PAGE) as client:
            await client.call("authenticate", methodId="password")


async def test_directories_outside_of_the_roots_are_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    async with live(tmp_path, store=store) as server:
        outside = (await server.api.post("/session", params={"directory": str(tmp_path)}, status=200)).body["id"]
    again = SqliteStore(tmp_path / "sessions.db")
    async with live(tmp_path, store=again, roots=(tmp_path / "project",)) as server, editor(server) as client:
        assert (await client.refusal("session/new", cwd=str(tmp_path), mcpServers=[]))["data"]["name"] == "OutsideRoots"
        assert (await client.refusal("session/list", cwd=str(tmp_path)))["data"]["name"] == "OutsideRoots"
        assert (await client.call("session/list"))["sessions"] == []
        for method in ("session/load", "session/resume"):
            error = await client.refusal(method, sessionId=outside, cwd=str(server.directory), mcpServers=[])
            assert error["data"]["name"] == "OutsideRoots"
        assert await client.prompt(await client.open(), "echo inside") == "end_turn"


async def test_a_request_without_an_upgrade_is_refused(server: Live) -> None:
    async with server.api.raw.get("/acp") as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["code"] == -32602


# --- bounds -----------------------------------------------------------------------------------------------------


def connections() -> int:
    """How many connections of `/acp` the server has."""
    return sum(task.get_name() == "acp out" and not task.done() for task in asyncio.all_tasks())


async def test_a_slow_reader_is_cut_off(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shim.faces.acp.connection.OUTBOX_BYTES", 2**20)
    async with editor(server) as slow, editor(server) as client:
        session = await client.open()
        await slow.load(session, "session/resume")
        assert connections() == 2
        for _ in range(100):
            await client.prompt(session, f"echo {'x' * 500_000}")
            if connections() == 1:
                break
        assert connections() == 1
        assert await client.prompt(session, "echo on") == "end_turn"


async def test_a_message_of_very_many_values_is_refused(client: Editor) -> None:
    await client.socket.send_str('{"jsonrpc": "2.0", "id": 7, "method": "session/new", "params": [' + "[]," * 600_000 + "[]]}")
    answer = await client.next()
    assert (answer["id"], answer["error"]["data"]["name"]) == (None, "PayloadTooLarge")
    error = await client.refusal("session/new", cwd="/" + "x" * 5000, mcpServers=[])
    assert "cwd" in error["message"]
    assert await client.prompt(await client.open(), "echo still here") == "end_turn"


async def test_too_many_requests_are_refused(client: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shim.faces.acp.connection.MAX_REQUESTS", 0)
    assert "at work" in (await client.refusal("session/list"))["message"]


async def test_a_connection_ends_with_the_server(server: Live, client: Editor) -> None:
    backend_of(server).services.sessions.deps.feed.close()
    frame = await client.socket.receive(WAIT_S)
    assert (frame.type, frame.data) == (WSMsgType.CLOSE, 1001)
