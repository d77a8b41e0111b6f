"""The WebSocket of a terminal ends in a bounded time, whatever its client does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from aiohttp import ClientSession, WSCloseCode, web
from aiohttp.test_utils import TestServer

from shim.host.terminals.scrollback import LAG_UNITS, Scrollback
from shim.host.terminals.terminal_manager import Terminal
from shim.host.values import TerminalInfo
from shim.http import terminal as terminals

SEEN_S = 15
MUCH = 64 * 2**20
"""More than sockets take from a server whose client reads nothing."""
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)

Serve: TypeAlias = Callable[[web.WebSocketResponse, asyncio.Transport], Awaitable[None]]


def new_terminal(*, is_open: bool = True) -> Terminal:
    info = TerminalInfo("pty_1", "Terminal", "/bin/sh", (), "/", 1)
    process: Any = SimpleNamespace(is_open=is_open)
    return Terminal("/", "prj", info, process, Scrollback(), set())


@asynccontextmanager
async def server_of(serve: Serve) -> AsyncGenerator[tuple[TestServer, asyncio.Event]]:
    """A server of one WebSocket. The event: its handler has returned."""
    ended = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(heartbeat=terminals.PING_S, compress=False, timeout=terminals.STOP_S)
        await socket.prepare(request)
        assert isinstance(request.transport, asyncio.Transport)
        try:
            await serve(socket, request.transport)
        finally:
            ended.set()
        return socket

    app = web.Application()
    app.router.add_get("/", handle)
    async with TestServer(app) as server:
        yield server, ended


@asynccontextmanager
async def silent_client(server: TestServer) -> AsyncGenerator[None]:
    """A client that opens the WebSocket and reads nothing."""
    _, writer = await asyncio.open_connection(server.host, server.port, limit=1024)
    writer.write(UPGRADE)
    try:
        yield
    finally:
        writer.transport.abort()


async def test_a_client_that_reads_no_output_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminals, "SEND_S", 0.2)
    terminal = new_terminal()

    async def serve(socket: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        transport.write(b"x" * MUCH)
        terminal.scrollback.add("output" * 100_000)
        await terminals.exchange(socket, terminal, 0, transport.abort)

    async with server_of(serve) as (server, ended), silent_client(server), asyncio.timeout(SEEN_S):
        await ended.wait()
    assert terminal.watchers == set()


async def test_a_client_that_does_not_read_the_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The close waits behind what is not read, and no ping is sent any more."""
    monkeypatch.setattr(terminals, "SEND_S", 0.2)

    async def serve(socket: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        transport.write(b"x" * MUCH)
        await terminals.exchange(socket, new_terminal(is_open=False), 0, transport.abort)

    async with server_of(serve) as (server, ended), silent_client(server), asyncio.timeout(SEEN_S):
        await ended.wait()


async def test_a_client_that_falls_behind_gets_the_code_for_coming_again() -> None:
    terminal = new_terminal()

    async with (
        server_of(lambda socket, transport: terminals.exchange(socket, terminal, 0, transport.abort)) as (server, _),
        ClientSession() as client,
        client.ws_connect(server.make_url("/")) as socket,
        asyncio.timeout(SEEN_S),
    ):
        await socket.receive_bytes()
        for watcher in terminal.watchers:
            watcher.put("x" * (LAG_UNITS + 1))
        await socket.receive()
        assert socket.close_code == WSCloseCode.TRY_AGAIN_LATER
