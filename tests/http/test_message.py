"""Messages, parts and prompt bodies over HTTP."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shim.faces.opencode1.routes import message as message_routes
from shim.faces.opencode1.routes.message import EncodedMessages
from shim.main.app import DATABASE
from shim.sessions.history import journal_loader
from shim.sessions.session.session_state import SessionState
from shim.store.sqlite import SqliteStore
from tests.support.live import Live, live, prompt_body
from universal.events import UniversalEvent
from universal.session.messages import Message

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_pages_of_messages(server: Live) -> None:
    session = await server.session()
    for number in range(3):
        await server.ask(session, f"echo {number}")
    everything = await server.messages(session)
    assert len(everything) == 6
    collected: list[Any] = []
    params: dict[str, str] = {"limit": "4"}
    while True:
        answer = await server.api.get(f"/session/{session}/message", params=params, status=200)
        collected = answer.body + collected
        cursor = answer.headers.get("x-next-cursor")
        if cursor is None:
            break
        assert 'rel="next"' in answer.headers["link"]
        params = {"limit": "4", "before": cursor}
    assert collected == everything
    assert len((await server.api.get(f"/session/{session}/message", params={"limit": "0"}, status=200)).body) == 6
    await server.api.get(f"/session/{session}/message", params={"limit": "2", "before": "nonsense"}, status=400)
    for limit in ("abc", "-1"):
        await server.api.get(f"/session/{session}/message", params={"limit": limit}, status=400)


async def test_one_message_and_its_parts_can_be_changed_and_removed(server: Live) -> None:
    session = await server.session()
    answer = await server.ask(session, "echo hello")
    path = f"/session/{session}/message/{answer['info']['id']}"
    assert (await server.api.get(path, status=200)).body == answer
    text = next(p for p in answer["parts"] if p["type"] == "text")
    changed = {**text, "text": "changed"}
    assert (await server.api.patch(f"{path}/part/{text['id']}", changed, status=200)).body == changed
    assert changed in (await server.api.get(path, status=200)).body["parts"]
    await server.api.patch(f"{path}/part/{text['id']}", {**changed, "id": "prt_other"}, status=400)
    async with server.api.stream("/event") as events:
        assert (await server.api.delete(f"{path}/part/{text['id']}", status=200)).body is True
        await events.until("message.part.removed")
        assert (await server.api.delete(path, status=200)).body is True
        await events.until("message.removed")
    await server.api.get(path, status=404)
    await server.api.delete(path, status=404)
    await server.api.delete(f"{path}/part/{text['id']}", status=404)


async def test_ids_made_by_the_client_are_kept(server: Live) -> None:
    session = await server.session()
    body = prompt_body("echo x", messageID="msg_client")
    body["parts"][0]["id"] = "prt_client"
    await server.api.post(f"/session/{session}/message", body, status=200)
    user = (await server.messages(session))[0]
    assert (user["info"]["id"], user["parts"][0]["id"]) == ("msg_client", "prt_client")
    again = await server.api.post(f"/session/{session}/message", body, status=409)
    assert "messageID" in again.body["data"]["message"]


@pytest.mark.parametrize("message_id", ["msg_000000000000AAAAAAAAAAAAAA", "msg_zzzzzzzzzzzzzzzzzzzzzzzzzz", "msg_custom"])
async def test_any_valid_id_gets_an_answer(server: Live, message_id: str) -> None:
    session = await server.session()
    answer = await server.ask(session, "echo x", messageID=message_id)
    assert answer["info"]["parentID"] == message_id
    assert [m["info"]["role"] for m in await server.messages(session)] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"messageID": "abc"}, "msg"),
        ({"model": {"providerID": "nosuch", "modelID": "x"}}, "Provider not found"),
        ({"model": {"providerID": "mock", "modelID": "nosuch"}}, "Model not found"),
        ({"agent": "nosuch"}, "Agent not found"),
        ({"parts": "no"}, "parts"),
        ({"parts": [{"type": "text"}]}, "text"),
        ({"parts": [{"type": "nosuch"}]}, "nosuch"),
        ({"format": {"type": "json_schema", "schema": {"type": 5}}}, "type"),
    ],
)
async def test_a_wrong_prompt_is_refused_before_anything_is_stored(server: Live, change: dict[str, Any], says: str) -> None:
    session = await server.session()
    for route in ("message", "prompt_async"):
        answer = await server.api.post(f"/session/{session}/{route}", prompt_body("echo x") | change, status=400)
        assert says in answer.body["data"]["message"]
    assert await server.messages(session) == []


async def test_malformed_json_is_400(server: Live) -> None:
    session = await server.session()
    answer = await server.api.request("POST", f"/session/{session}/message", data=b'{"parts": [', status=400)
    assert answer.body["name"] == "BadRequest"


async def test_no_reply_stores_context_and_runs_nothing(server: Live) -> None:
    session = await server.session()
    answer = (await server.api.post(f"/session/{session}/message", prompt_body("know this", noReply=True), status=200)).body
    assert answer["info"]["role"] == "user"
    assert (await server.api.get("/session/status", status=200)).body == {}
    assert len(await server.messages(session)) == 1


async def test_fields_of_a_prompt_are_on_the_user_message(server: Live) -> None:
    session = await server.session()
    await server.ask(session, "echo x", system="be brief", agent="plan", variant="high", tools={"bash": False})
    user, assistant = (m["info"] for m in await server.messages(session))
    assert (user["system"], user["agent"], user["tools"]) == ("be brief", "plan", {"bash": False})
    assert user["model"] == {"providerID": "mock", "modelID": "mock", "variant": "high"}
    assert (assistant["mode"], assistant["variant"]) == ("plan", "high")
    info = (await server.api.get(f"/session/{session}", status=200)).body
    assert info["permission"] == [{"permission": "bash", "pattern": "*", "action": "deny"}]
    assert info["model"] == {"id": "mock", "providerID": "mock", "variant": "high"}


async def test_the_python_sdks_flat_body(server: Live) -> None:
    session = await server.session()
    body = {"providerID": "mock", "modelID": "mock", "parts": [{"type": "text", "text": "echo flat"}]}
    answer = await server.api.post(f"/session/{session}/message", body, status=200)
    assert answer.body["info"]["providerID"] == "mock"


async def test_attached_files_as_native_shows_them(server: Live) -> None:
    file = server.directory / "notes.txt"
    file.write_text("one\ntwo\nthree\n")
    session = await server.session()
    part = {"type": "file", "mime": "text/plain", "filename": "notes.txt", "url": f"file://{file}?start=2&end=3"}
    await server.api.post(f"/session/{session}/message", {**prompt_body("look"), "parts": [part]}, status=200)
    [call, output, kept] = (await server.messages(session))[0]["parts"]
    assert call["text"] == f'Called the Read tool with the following input: {{"filePath":"{file}","offset":2,"limit":2}}'
    assert "2: two\n3: three\n\n(End of file - total 3 lines)" in output["text"]
    assert (call["synthetic"], output["synthetic"], kept["type"]) == (True, True, "file")


async def test_a_missing_file_is_reported_and_the_turn_goes_on(server: Live) -> None:
    session = await server.session()
    part = {"type": "file", "mime": "text/plain", "filename": "x", "url": f"file://{server.directory}/missing.txt"}
    async with server.api.stream("/event") as events:
        body = {**prompt_body(""), "parts": [{"type": "text", "text": "echo on"}, part]}
        await server.api.post(f"/session/{session}/message", body, status=200)
        error = (await events.until("session.error"))[-1]["properties"]["error"]
    assert error["data"]["message"] == f"File not found: {server.directory}/missing.txt"
    user, assistant = await server.messages(session)
    assert [p["type"] for p in user["parts"]] == ["text", "text", "text"]
    assert assistant["info"]["finish"] == "stop"


async def test_the_part_of_an_image_says_what_it_is_whatever_the_client_says(server: Live) -> None:
    """The TUI names every file that a prompt mentions text/plain."""
    (server.directory / "dot.png").write_bytes(base64.b64decode(PNG))
    session = await server.session()
    urls = [(server.directory / "dot.png").as_uri(), f"data:text/plain;base64,{PNG}"]
    parts = [{"type": "file", "mime": "text/plain", "filename": "dot.png", "url": url} for url in urls]
    await server.api.post(f"/session/{session}/message", {**prompt_body("look"), "parts": parts}, status=200)
    files = [part for part in (await server.messages(session))[0]["parts"] if part["type"] == "file"]
    assert [(part["mime"], part["url"]) for part in files] == [("image/png", f"data:image/png;base64,{PNG}")] * 2


async def test_images_and_texts_as_data_urls_reach_the_agent(server: Live) -> None:
    session = await server.session()
    text = "data:text/plain;base64," + base64.b64encode(b"inline text").decode()
    parts = [
        {"type": "text", "text": "what is this?"},
        {"type": "file", "mime": "image/png", "filename": "dot.png", "url": f"data:image/png;base64,{PNG}"},
        {"type": "file", "mime": "text/plain", "filename": "in.txt", "url": text},
    ]
    answer = (await server.api.post(f"/session/{session}/message", {**prompt_body(""), "parts": parts}, status=200)).body
    assert "dot.png" in str(answer["parts"])
    assert "in.txt" in str(answer["parts"])


async def test_a_command_of_the_project(server: Live) -> None:
    folder = server.directory / ".opencode" / "command"
    folder.mkdir(parents=True)
    (folder / "hello.md").write_text("---\ndescription: says hello\n---\necho hello $1 and $ARGUMENTS")
    commands = (await server.api.get("/command", status=200)).body
    assert "hello" in [c["name"] for c in commands]
    session = await server.session()
    async with server.api.stream("/event") as events:
        body = {"command": "hello", "arguments": "big world", "model": "mock/mock"}
        answer = (await server.api.post(f"/session/{session}/command", body, status=200)).body
        seen = await events.until("session.idle")
    assert (await server.messages(session))[0]["parts"][0]["text"] == "echo hello big world and big world"
    executed = next(e["properties"] for e in seen if e["type"] == "command.executed")
    assert executed == {"name": "hello", "arguments": "big world", "sessionID": session, "messageID": answer["info"]["id"]}
    unknown = await server.api.post(f"/session/{session}/command", {**body, "command": "nosuch"}, status=400)
    assert "hello" in unknown.body["data"]["message"]


async def test_an_agents_command_that_a_client_has_too_is_sent_by_its_prefix(server: Live) -> None:
    names = [row["name"] for row in (await server.api.get("/command", status=200)).body]
    assert "mock:help" in names
    assert not {"help", "exit", "mock:exit"} & set(names)
    session = await server.session()
    body = {"command": "mock:help", "arguments": "", "model": "mock/mock"}
    await server.api.post(f"/session/{session}/command", body, status=200)
    [prompt, answer] = await server.messages(session)
    assert prompt["parts"][0]["text"] == "/help"
    assert "markdown" in str(answer["parts"])


async def test_a_command_that_would_end_the_agent_is_refused(server: Live) -> None:
    session = await server.session()
    refused = await server.api.post(f"/session/{session}/command", {"command": "exit", "arguments": ""}, status=400)
    assert refused.body["data"]["message"] == (
        "/exit was not sent to Mock. It would end the agent in the middle of the session. Leave your client instead."
    )
    assert await server.messages(session) == []


async def test_init_and_review_are_the_servers_own_commands(server: Live) -> None:
    session = await server.session()
    for name, words in (("init", "write a file AGENTS.md in"), ("review", "What to review: main")):
        body = {"command": name, "arguments": "main", "model": "mock/mock"}
        await server.api.post(f"/session/{session}/command", body, status=200)
        last = [m for m in await server.messages(session) if m["info"]["role"] == "user"][-1]
        assert words in str(last["parts"])
        assert last["parts"][0]["type"] == ("subtask" if name == "review" else "text")


async def test_a_shell_command(server: Live) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        answer = (
            await server.api.post(f"/session/{session}/shell", {"command": "echo hi; exit 3", "agent": "build"}, status=200)
        ).body
        seen = await events.until("session.idle")
    [tool] = [p for p in answer["parts"] if p["type"] == "tool"]
    assert (tool["state"]["status"], tool["state"]["output"], tool["state"]["metadata"]["exit"]) == ("completed", "hi\n", 3)
    assert [e["type"] for e in seen].count("session.idle") == 1
    await server.prompt(session, "hang")
    busy = await server.api.post(f"/session/{session}/shell", {"command": "ls", "agent": "build"}, status=409)
    assert busy.body["_tag"] == "SessionBusyError"
    await server.api.post(f"/session/{session}/abort", status=200)


class Turns:
    """Counts the turns that the event loop's other tasks had."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@pytest.fixture
async def turns() -> AsyncIterator[Turns]:
    made = Turns()
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()


async def test_a_long_list_is_the_same_and_others_have_their_turn(
    server: Live, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await server.session()
    for number in range(3):
        await server.ask(session, f"echo {number}")
    path, limited = f"/session/{session}/message", {"limit": "5"}
    whole = await server.api.get(path, status=200)
    page = await server.api.get(path, params=limited, status=200)

    seen: list[int] = []
    encode = EncodedMessages.encode

    def count_conversion(encoded: EncodedMessages, message: Message, session_id: str) -> bytes:
        seen.append(turns.count)
        return encode(encoded, message, session_id)

    monkeypatch.setattr(message_routes, "LONG", 2)
    monkeypatch.setattr(message_routes, "LIST_PIECE", 1)
    monkeypatch.setattr(EncodedMessages, "encode", count_conversion)
    again = await server.api.get(path, status=200)
    assert again.body == whole.body
    assert again.headers["content-type"] == whole.headers["content-type"]
    assert len(seen) == len(set(seen)) == 6
    monkeypatch.setattr(message_routes, "LIST_PIECE", 4)
    again = await server.api.get(path, params=limited, status=200)
    assert again.body == page.body
    assert again.headers["x-next-cursor"] == page.headers["x-next-cursor"]
    async with server.api.raw.head(path) as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    async with server.api.raw.get(path, headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert await answer.json() == whole.body


async def test_a_journal_is_read_in_pages_and_others_have_their_turn(
    tmp_path: Path, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "data" / DATABASE)
    async with live(tmp_path, store=store) as server:
        session = await server.session()
        await server.ask(session, "burst 200")
        await server.ask(session, "tool")
        told = await server.messages(session)
    seen: list[tuple[int, int]] = []
    load = SessionState.load

    def count_load(state: SessionState, events: Sequence[UniversalEvent]) -> None:
        seen.append((turns.count, len(events)))
        load(state, events)

    monkeypatch.setattr(SessionState, "load", count_load)
    monkeypatch.setattr(journal_loader, "PAGE", 50)
    monkeypatch.setattr(journal_loader, "SLICE_S", -1.0)
    async with live(tmp_path, store=SqliteStore(tmp_path / "data" / DATABASE)) as server:
        assert await server.messages(session) == told
        assert len({at for at, _ in seen}) == len(seen) > 2
        assert max(size for _, size in seen) == 1
        await server.ask(session, "echo more")
        assert (await server.messages(session))[: len(told)] == told


TEXT = [{"type": "text", "text": "echo hello"}]
MODEL = {"providerID": "mock", "modelID": "mock"}
USED = "msg_01964f9f0001aaaaaaaaaaaaaa"
REFUSED: dict[str, tuple[str, dict[str, Any], int]] = {
    "a prompt for an unknown agent": ("prompt_async", {"parts": TEXT, "agent": "nobody"}, 400),
    "a blocking prompt for an unknown agent": ("message", {"parts": TEXT, "agent": "nobody"}, 400),
    "a prompt for an unknown model": ("prompt_async", {"parts": TEXT, "model": {"providerID": "x", "modelID": "y"}}, 400),
    "a prompt with a wrong schema": (
        "prompt_async",
        {"parts": TEXT, "format": {"type": "json_schema", "schema": {"type": 5}}},
        400,
    ),
    "a prompt with an id of no message": ("prompt_async", {"parts": TEXT, "messageID": "x"}, 400),
    "a prompt with a used id": ("prompt_async", {"parts": TEXT, "model": MODEL, "messageID": USED}, 409),
    "a body that is no prompt": ("prompt_async", {"parts": 5}, 400),
    "an unknown command": ("command", {"command": "nothing", "arguments": ""}, 400),
    "a command with a wrong body": ("command", {"arguments": 5}, 400),
    "a command for an unknown model": ("command", {"command": "init", "arguments": "", "model": "x/y"}, 400),
    "a command with an id of no message": ("command", {"command": "init", "arguments": "", "messageID": "x"}, 400),
    "a shell command for an unknown agent": ("shell", {"command": "ls", "agent": "nobody"}, 400),
    "a shell command with a wrong body": ("shell", {"command": "ls"}, 400),
    "init of an unknown model": ("init", {"providerID": "x", "modelID": "y", "messageID": "msg_x"}, 400),
    "summarize by an unknown model": ("summarize", {"providerID": "x", "modelID": "y"}, 400),
}


@pytest.mark.parametrize("refusal", REFUSED)
async def test_a_refusal_is_an_event_too(refusal: str, server: Live) -> None:
    """Clients do not show the answer to a prompt or command: without the event, a person would see nothing at all."""
    operation, body, status = REFUSED[refusal]
    session = await server.session()
    await server.ask(session, "echo first", messageID=USED)
    async with server.api.stream("/event") as events:
        answer = await server.api.post(f"/session/{session}/{operation}", body, status=status)
        error = (await events.until("session.error"))[-1]["properties"]
    assert (error["sessionID"], error["error"]["data"]["message"]) == (session, answer.body["data"]["message"])
