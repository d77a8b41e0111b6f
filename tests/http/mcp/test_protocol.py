"""The wire of `/mcp`: which messages are answered, who gets in, and what OpenCode has at the same path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from shim.faces.mcp import protocol, tools
from shim.http import log_stream
from tests.http.doors import GOOD, PASSWORD
from tests.http.mcp.test_tools import until, waits
from tests.support.live import Live, live
from tests.support.mcp_client import HEADERS, INITIALIZE, McpClient, call, post

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    async with live(tmp_path, mcp=True) as running:
        yield running


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (PING, 200, None),
        ({**PING, "id": "a"}, 200, None),
        ({**PING, "id": None}, 400, -32600),
        ({**PING, "id": 1.5}, 400, -32600),
        ({**PING, "id": True}, 400, -32600),
        ({**PING, "jsonrpc": "1.0"}, 400, -32600),
        ({"id": 1, "method": "ping"}, 400, -32600),
        ([PING], 400, -32600),
        ([], 400, -32600),
        ("ping", 400, -32600),
        (None, 400, -32700),
        ({**PING, "params": []}, 400, -32600),
        ({**PING, "method": 1}, 400, -32600),
        ({**PING, "method": "sampling/createMessage"}, 200, -32601),
        (call("nothing"), 200, -32602),
        ({**PING, "method": "tools/call"}, 200, -32602),
    ],
)
async def test_messages(server: Live, body: Any, status: int, code: int | None) -> None:
    got, message = await post(server, body)
    assert (got, message.get("error", {}).get("code")) == (status, code)


async def test_notifications_and_answers_get_no_answer(server: Live) -> None:
    for body in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ):
        assert await post(server, body) == (202, None)


async def test_the_version_is_agreed_on(server: Live) -> None:
    for asked in (*protocol.VERSIONS, "1999-01-01"):
        told = (await McpClient(server).ask("initialize", {**INITIALIZE, "protocolVersion": asked}))["protocolVersion"]
        assert told == (asked if asked in protocol.VERSIONS else protocol.VERSIONS[-1])
        status = (await post(server, PING, **{"MCP-Protocol-Version": asked}))[0]
        assert status == (200 if asked in protocol.VERSIONS else 400)


async def test_nothing_is_sent_unasked(server: Live) -> None:
    async with server.api.raw.get("/mcp", headers={"Accept": "text/event-stream"}) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")


async def test_opencodes_operations_stand_at_the_same_path(server: Live) -> None:
    added = {"name": "mine", "config": {"type": "local", "command": ["true"], "enabled": False}}
    assert (await server.api.post("/mcp", added, status=200)).body == {"mine": {"status": "disabled"}}
    assert (await server.api.get("/mcp", status=200)).body == {"mine": {"status": "disabled"}}


async def test_mcp_is_off_unless_asked_for(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        status, message = await post(server, PING)
        assert status == 404
        assert "--mcp" in message["error"]["message"]
        assert (await server.api.get("/mcp", status=200)).body == {}


async def test_mcp_stands_below_a_base_path(tmp_path: Path) -> None:
    async with (
        live(tmp_path, mcp=True, base_path="/agents") as server,
        server.api.raw.post("/agents/mcp", json=PING, headers=HEADERS) as answer,
    ):
        assert (await answer.json())["result"] == {}


# --- who gets in ------------------------------------------------------------------------------------------------------


async def test_mcp_wants_the_password(tmp_path: Path) -> None:
    async with live(tmp_path, mcp=True, password=SecretStr(PASSWORD)) as server:
        for wrong in ({}, {"Authorization": "Bearer nonsense"}, {"Mcp-Session-Id": "forged"}):
            status, message = await post(server, PING, **wrong)
            assert status == 401
            assert message["error"]["code"] == protocol.SERVER_ERROR
        for right in (GOOD, f"Bearer {PASSWORD}"):
            assert (await post(server, PING, Authorization=right))[0] == 200


@pytest.mark.parametrize(
    "header",
    [
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_pages_of_others_do_not_get_in(server: Live, header: dict[str, str]) -> None:
    """Names that DNS has rebound to this machine, and pages of other sites; without a password too."""
    status, message = await post(server, call("start_session", agent="mock", prompt="echo x"), **header)
    assert status == 403
    assert message["error"]["message"]
    assert (await McpClient(server).use("list_sessions"))["total"] == 0


async def test_roots_hold(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    root = tmp_path / "project"
    root.mkdir()
    (root / "in").mkdir()
    (root / "out").symlink_to(tmp_path / "outside")
    async with live(tmp_path, mcp=True, roots=(root,)) as server:
        client = McpClient(server)
        for place in (str(tmp_path / "outside"), "../outside", "in/../../outside", "out", "/"):
            assert "outside of" in await client.refusal("start_session", agent="mock", prompt="x", directory=place)
        inside = await client.use("start_session", agent="mock", prompt="echo x", directory="in")
        assert inside["directory"] == str(root / "in")


async def test_sessions_outside_of_the_roots_are_not_there(tmp_path: Path) -> None:
    from shim.store.sqlite import SqliteStore

    outside = tmp_path / "outside"
    outside.mkdir()
    store = tmp_path / "shim.db"
    async with live(tmp_path, mcp=True, store=SqliteStore(store)) as server:
        client = McpClient(server)
        session = (await client.use("start_session", agent="mock", prompt="permission", directory=str(outside)))["session"]
        await client.use("wait", session=session)
    async with live(tmp_path, mcp=True, store=SqliteStore(store), roots=(tmp_path / "project",)) as server:
        client = McpClient(server)
        assert (await client.use("list_sessions"))["total"] == 0
        for tool in ("wait", "read", "abort"):
            assert "outside of" in await client.refusal(tool, session=session)
        assert "outside of" in await client.refusal("prompt", session=session, prompt="x")


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_bodies_are_bounded(server: Live) -> None:
    assert (await post(server, {**PING, "params": {"x": [0] * 200_000}}))[0] == 413
    deep: Any = 0
    for _ in range(200):
        deep = [deep]
    assert (await post(server, {**PING, "params": {"x": deep}}))[0] == 400
    client = McpClient(server)
    assert "prompt" in await client.refusal("start_session", agent="mock", prompt="x" * (tools.PROMPT_CHARS + 1))


async def test_calls_at_once_are_bounded(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "CALLS_OF_ONE_LIMIT", 2)
    client = McpClient(server)
    session = (await client.use("start_session", agent="mock", prompt="hang"))["session"]
    held = [asyncio.create_task(post(server, call("wait", n, session=session, timeout_s=60))) for n in range(2)]
    await until(lambda: waits() == 2)
    assert (await post(server, call("read", 5, session=session)))[0] == 429
    assert (await post(server, PING))[0] == 200
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 0}}
    assert await post(server, cancel) == (202, None)
    assert await held[0] == (200, None)
    await client.use("abort", session=session)
    assert (await held[1])[1]["result"]["structuredContent"]["state"] == "idle"


async def test_an_id_that_is_in_use_is_refused(server: Live) -> None:
    client = McpClient(server)
    session = (await client.use("start_session", agent="mock", prompt="hang"))["session"]
    held = asyncio.create_task(post(server, call("wait", 7, session=session, timeout_s=60)))
    await until(lambda: waits() == 1)
    assert (await post(server, call("read", 7, session=session)))[1]["error"]["code"] == -32600
    assert (await post(server, call("read", 7, session=session), **{"Mcp-Session-Id": "another"}))[0] == 200
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    await post(server, cancel, **{"Mcp-Session-Id": "another"})
    assert not held.done()
    await post(server, cancel)
    assert await held == (200, None)


async def test_a_wait_of_a_client_that_has_gone_ends(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "QUICK_S", 0.01)
    monkeypatch.setattr(protocol, "PROGRESS_S", 0.05)
    client = McpClient(server)
    session = (await client.use("start_session", agent="mock", prompt="hang"))["session"]
    answer = await server.api.raw.post("/mcp", json=call("wait", session=session, timeout_s=600), headers=HEADERS)
    assert answer.content_type == "text/event-stream"
    answer.close()
    await until(lambda: waits() == 0)


async def test_a_client_that_does_not_read_is_cut_off(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "QUICK_S", 0.0)
    monkeypatch.setattr(protocol, "PROGRESS_S", 0.0001)
    monkeypatch.setattr(log_stream, "SEND_TIMEOUT_S", 0.3)
    client = McpClient(server)
    session = (await client.use("start_session", agent="mock", prompt="hang"))["session"]
    body = call("wait", session=session, timeout_s=600)
    body["params"]["_meta"] = {"progressToken": "x" * 100_000}
    answer = await server.api.raw.post("/mcp", json=body, headers=HEADERS)
    assert answer.content_type == "text/event-stream"
    await until(lambda: waits() == 0)
    answer.close()
