"""`/acp` over Streamable HTTP: messages by POST, all answers and updates on one event stream, in their order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from aiohttp import ClientResponse, ClientWebSocketResponse, WSMessage, WSMsgType
from pydantic import SecretStr

from shim.faces.acp import streamable_http
from tests.http.doors import GOOD, PASSWORD
from tests.support.acp import FORMS, WAIT_S, Editor, allow
from tests.support.live import Live, live

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


class HttpSocket:
    """A connection of Streamable HTTP in the form of a WebSocket."""

    def __init__(self, server: Live) -> None:
        self.server = server
        self.headers: dict[str, str] = {}
        self.waiting: list[str] = []
        self.stream: ClientResponse | None = None

    async def post(self, text: str) -> ClientResponse:
        return await self.server.api.raw.post("/acp", data=text, headers={"Content-Type": "application/json", **self.headers})

    async def send_str(self, text: str) -> None:
        answer = await self.post(text)
        if self.headers:
            assert (answer.status, await answer.read()) == (202, b"")
            return
        assert answer.status == 200
        self.headers = {"Acp-Connection-Id": answer.headers["Acp-Connection-Id"]}
        self.waiting.append(await answer.text())
        self.stream = await self.server.api.raw.get("/acp", headers={**self.headers, "Accept": "text/event-stream"})
        assert self.stream.content_type == "text/event-stream"

    async def receive(self, _timeout: float) -> WSMessage:
        assert self.stream is not None
        while not self.waiting:
            async with asyncio.timeout(WAIT_S):
                line = await self.stream.content.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                self.waiting.append(line[6:].decode())
        return WSMessage(WSMsgType.TEXT, self.waiting.pop(0), None)


@asynccontextmanager
async def http_editor(server: Live) -> AsyncIterator[tuple[Editor, HttpSocket]]:
    socket = HttpSocket(server)
    client = Editor(cast("ClientWebSocketResponse", socket), server.directory, allow)
    await client.call("initialize", protocolVersion=1, clientCapabilities=FORMS)
    yield client, socket
    if socket.stream is not None:
        socket.stream.close()


async def test_a_turn_with_a_permission(server: Live) -> None:
    async with http_editor(server) as (client, socket):
        session = await client.open()
        async with server.api.raw.get("/acp", headers={**socket.headers, "Acp-Session-Id": session}) as empty:
            assert await client.prompt(session, "echo hi") == "end_turn"
            assert client.words() == "hi"
            assert await client.prompt(session, "permission") == "end_turn"
            assert any(m.get("method") == "session/request_permission" for m in client.seen)
            await server.api.raw.delete("/acp", headers=socket.headers)
            async with asyncio.timeout(WAIT_S):
                assert b"data" not in await empty.read(), "a session's stream is empty, and ends with the connection"


async def test_an_answer_comes_after_all_updates_of_its_turn(server: Live) -> None:
    async with http_editor(server) as (client, _):
        session = await client.open()
        assert await client.prompt(session, "burst 200") == "end_turn"
        assert client.words() == "".join(p.get("text", "") for p in (await server.messages(session))[-1]["parts"])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session/list", "params": {}}).encode(), 400),
        (json.dumps({**INITIALIZE, "params": {}}).encode(), 400),
    ],
)
async def test_a_request_that_begins_no_connection_is_refused(server: Live, body: bytes, status: int) -> None:
    answer = await server.api.raw.post("/acp", data=body, headers={"Content-Type": "application/json"})
    assert answer.status == status
    assert "error" in await answer.json()
    assert streamable_http.CLIENTS == {}


async def test_a_connection_that_is_over_is_not_found(server: Live) -> None:
    async with http_editor(server) as (_, socket):
        assert (await server.api.raw.delete("/acp", headers=socket.headers)).status == 202
        for method in ("POST", "GET", "DELETE"):
            answer = await server.api.raw.request(method, "/acp", headers=socket.headers)
            assert answer.status == 404, method
            assert "initialize" in (await answer.json())["error"]["message"]


async def test_a_stream_is_read_once_and_ends_its_connection(server: Live) -> None:
    async with http_editor(server) as (client, socket):
        session = await client.open()
        again = await server.api.raw.get("/acp", headers={**socket.headers, "Accept": "text/event-stream"})
        assert again.status == 400
        await client.begin_prompt(session, "hang")
        async with asyncio.timeout(WAIT_S):
            while (await server.api.get("/session/status", status=200)).body.keys() != {session}:
                pass  # it was sent, and has not begun
        assert socket.stream is not None
        socket.stream.close()
        async with asyncio.timeout(WAIT_S):
            while streamable_http.CLIENTS:
                await asyncio.sleep(0)
        assert (await server.api.get("/session/status", status=200)).body.keys() == {session}, "the turn goes on"


async def test_an_unread_connection_ends(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamable_http, "UNREAD_S", 0)
    answer = await server.api.raw.post("/acp", json=INITIALIZE)
    assert answer.status == 200
    async with asyncio.timeout(WAIT_S):
        while streamable_http.CLIENTS:
            await asyncio.sleep(0)


async def test_each_request_shows_the_password(tmp_path: Path) -> None:
    """The name of a connection opens nothing."""
    async with live(tmp_path, password=SecretStr(PASSWORD)) as server:
        shown = {"Authorization": GOOD}
        assert (await server.api.raw.post("/acp", json=INITIALIZE)).status == 401
        answer = await server.api.raw.post("/acp", json=INITIALIZE, headers=shown)
        assert answer.status == 200
        named = {"Acp-Connection-Id": answer.headers["Acp-Connection-Id"]}
        for method in ("POST", "GET", "DELETE"):
            assert (await server.api.raw.request(method, "/acp", headers=named)).status == 401
        assert (await server.api.raw.delete("/acp", headers={**named, **shown})).status == 202
