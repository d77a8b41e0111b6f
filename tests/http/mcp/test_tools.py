"""What a person's own client of MCP can do, with the mock agent. The SDK's own client: tests/e2e/test_delegation.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import mcp_types
import pytest

from shim.faces.mcp import protocol, tools
from shim.http.operation import SERVICES
from tests.support.live import Live, live
from tests.support.mcp_client import HEADERS, INITIALIZE, McpClient, call


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    async with live(tmp_path, mcp=True) as running:
        yield running


@pytest.fixture
def client(server: Live) -> McpClient:
    return McpClient(server)


async def test_a_session_is_started_waited_for_and_read(server: Live, client: McpClient) -> None:
    session = await client.start("echo hello there")
    assert await client.use("wait", session=session) == {"session": session, "state": "idle"}
    assert await client.use("read", session=session) == {
        "session": session,
        "state": "idle",
        "text": "hello there",
        "length": 11,
    }
    told = (await server.api.get(f"/session/{session}", status=200)).body
    assert told["directory"] == str(server.directory)
    (row,) = (await client.use("list_sessions"))["sessions"]
    assert (row["session"], row["agent"], row["state"]) == (session, "mock", "idle")


async def test_the_list_of_tools_has_all(client: McpClient) -> None:
    listed = mcp_types.ListToolsResult.model_validate(await client.ask("tools/list")).tools
    assert {tool.name for tool in listed} == {
        "list_agents", "start_session", "prompt", "wait", "read", "answer", "abort", "list_sessions",
    }  # fmt: skip
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in listed)
    greeting = mcp_types.InitializeResult.model_validate(await client.ask("initialize", INITIALIZE))
    assert greeting.capabilities.tools is not None
    assert greeting.instructions


async def test_agents_are_listed_with_models_and_modes(client: McpClient) -> None:
    (mock,) = (await client.use("list_agents"))["agents"]
    assert (mock["agent"], mock["default_model"]) == ("mock", "mock")
    assert "plan" in mock["modes"]


async def test_an_answer_has_pages(client: McpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "PAGE_CHARS", 4)
    session = await client.start("echo 0123456789")
    await client.use("wait", session=session)
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await client.use("read", session=session, offset=offset)
        pages.append(page["text"])
        offset = page.get("next_offset")
    assert pages == ["0123", "4567", "89"]


async def test_earlier_answers_are_read(client: McpClient) -> None:
    session = await client.start("echo one")
    await client.use("wait", session=session)
    await client.use("prompt", session=session, prompt="echo two")
    await client.use("wait", session=session)
    assert [(await client.use("read", session=session, back=n))["text"] for n in range(3)] == ["two", "one", ""]


async def test_a_permission_ends_the_wait_and_is_answered(client: McpClient) -> None:
    session = await client.start("permission")
    found = await client.use("wait", session=session)
    (request,) = found["requests"]
    assert (found["state"], request["permission"]) == ("permission", "bash")
    busy = await client.use("wait", session=session, ignore=[request["request"]], timeout_s=0)
    assert busy["state"] == "busy"
    await client.use("answer", request=request["request"], reply="once")
    assert (await client.use("wait", session=session))["state"] == "idle"


async def test_a_question_ends_the_wait_and_is_answered(client: McpClient) -> None:
    session = await client.start("question 1")
    found = await client.use("wait", session=session)
    (request,) = found["requests"]
    assert found["state"] == "question"
    label = request["questions"][0]["options"][0]["label"]
    assert "not" not in await client.refusal("answer", request=request["request"], reply="once")
    await client.use("answer", request=request["request"], answers=[[label]])
    assert (await client.use("wait", session=session))["state"] == "idle"
    assert label in (await client.use("read", session=session))["text"]


async def test_an_abort_ends_the_turn(client: McpClient) -> None:
    session = await client.start("hang")
    assert (await client.use("wait", session=session, timeout_s=0))["state"] == "busy"
    found = await client.use("abort", session=session)
    assert found["state"] == "idle"


async def test_a_wait_names_the_failure(client: McpClient) -> None:
    session = await client.start("error")
    found = await client.use("wait", session=session)
    assert found["state"] == "idle"
    assert found["error"]


async def test_a_wait_ends_with_its_session(server: Live, client: McpClient) -> None:
    session = await client.start("hang")
    waiting = asyncio.create_task(client.use("wait", session=session))
    await until(lambda: waits() == 1)
    await server.api.delete(f"/session/{session}", status=200)
    assert await waiting == {"session": session, "state": "idle", "error": "Aborted"}
    assert "not found" in await client.refusal("wait", session=session)


async def test_a_long_call_shows_its_progress(server: Live, client: McpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "QUICK_S", 0.01)
    monkeypatch.setattr(protocol, "PROGRESS_S", 0.05)
    session = await client.start("hang")
    body = call("wait", session=session, timeout_s=1)
    body["params"]["_meta"] = {"progressToken": "p"}
    async with server.api.raw.post("/mcp", json=body, headers=HEADERS) as answer:
        frames = [json.loads(line[6:]) for line in (await answer.read()).splitlines() if line.startswith(b"data: ")]
    *progress, result = frames
    told = [row["params"] for row in progress]
    assert len(told) > 3
    assert [row["progress"] for row in told] == sorted(row["progress"] for row in told)
    assert {(row["progressToken"], row["message"]) for row in told} == {("p", "at work")}
    assert result["result"]["structuredContent"]["state"] == "busy"
    await client.use("abort", session=session)


async def test_a_wait_ends_at_the_end_of_the_turn_and_not_before(server: Live, client: McpClient) -> None:
    """Idle once for each turn: whoever waits gets it at once, and a wait that begins later gets it too."""
    session = await client.start("permission")
    asked = (await client.use("wait", session=session))["requests"][0]["request"]
    waiting = [asyncio.create_task(client.use("wait", session=session, ignore=[asked])) for _ in range(3)]
    await until(lambda: waits() == 3)
    assert not any(wait.done() for wait in waiting)
    await server.api.post(f"/permission/{asked}/reply", {"reply": "once"}, status=200)
    assert [found["state"] for found in await asyncio.gather(*waiting)] == ["idle"] * 3
    state = await server.api.raw.app[SERVICES].sessions.state(session)
    assert not state.machine.busy


def waits() -> int:
    return sum(task.get_name().startswith(protocol.WAITS) for task in asyncio.all_tasks())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_refusal_says_what_is_wrong(server: Live, client: McpClient) -> None:
    assert "no agent" in (await client.refusal("start_session", agent="nobody", prompt="x")).lower()
    assert "no model" in await client.refusal("start_session", agent="mock", prompt="x", model="nothing")
    assert "no directory" in await client.refusal("start_session", agent="mock", prompt="x", directory="/nowhere")
    assert "prompt" in await client.refusal("start_session", agent="mock")
    assert "more" in await client.refusal("wait", session="ses_x", more=1)
    assert "not found" in await client.refusal("wait", session="ses_x")
    assert "not found" in await client.refusal("abort", session="ses_x")
    assert "waits for an answer" in await client.refusal("answer", request="per_x", reply="once")
    assert (await client.use("list_sessions"))["total"] == 0
