"""Serves `/acp`, a WebSocket: each text frame is a message of JSON-RPC, in both directions. `streamable_http` is the other way.

Source: the protocol's remote transport, as @agentclientprotocol/sdk 2.4.0 and agent-client-protocol 0.12.1 speak it. Who may
connect is decided before: `shim.http.access` checks the Host, the Origin and the password of the upgrade.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Awaitable
from types import ModuleType
from typing import Any

import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from shim.faces.acp import streamable_http
from shim.faces.acp.connection import ERRORS, Connection, rpc_error
from shim.faces.acp.methods import METHODS
from shim.http.access import CONNECTION
from shim.http.faces import Face
from shim.http.operation import BODY_LIMIT_BYTES, Ctx, extra
from shim.http.services import need_room
from shim.http.terminal import PING_S, SEND_S, STOP_S, close_socket
from shim.lib.errors import HttpRefused, InvalidRequest, RequestError, row_of
from shim.lib.tasks import end_tasks

log = structlog.get_logger(__name__)


def render(error: RequestError) -> tuple[int, dict[str, Any]]:
    """Render an error as status and body."""
    status = error.status if isinstance(error, HttpRefused) else row_of(ERRORS, error)[0]
    return status, {"jsonrpc": "2.0", "id": None, "error": rpc_error(error)}


FACE = Face("acp", render)


@extra("acp.connect", "GET", "/acp", face=FACE, streams=True)
async def connect(ctx: Ctx) -> web.StreamResponse:
    """Serve a client of the Agent Client Protocol until it disconnects."""
    if not web.WebSocketResponse().can_prepare(ctx.request):
        if streamable_http.CONNECTION_ID in ctx.request.headers:
            return await streamable_http.stream(ctx)
        raise InvalidRequest("This is a WebSocket: connect to it with an upgrade, or POST `initialize` first.", "Headers")
    need_room(ctx.services)
    socket = web.WebSocketResponse(heartbeat=PING_S, max_msg_size=BODY_LIMIT_BYTES, compress=False, timeout=STOP_S)
    name = secrets.token_hex(8)
    socket.headers[streamable_http.CONNECTION_ID] = name
    await socket.prepare(ctx.request)
    cut_off = ctx.request[CONNECTION].cut_off
    connection = Connection(ctx, METHODS, cut_off)
    place = ctx.services.sessions.deps.feed.attend(f"acp {name}")
    work = [
        asyncio.create_task(_send(socket, connection), name="acp out"),
        asyncio.create_task(_close_at_end(socket, place.wait(None), connection), name="acp end"),
    ]
    try:
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                connection.receive(message.data.encode("utf-8", "replace"))
    finally:
        connection.close()
        place.close()
        await end_tasks(*work)
    return socket


@extra("acp.message", "POST", "/acp", face=FACE)
async def take_message(ctx: Ctx) -> web.StreamResponse:
    """Take a message of a client that speaks Streamable HTTP."""
    return await streamable_http.take_message(ctx)


@extra("acp.end", "DELETE", "/acp", face=FACE)
async def end(ctx: Ctx) -> web.StreamResponse:
    """End the connection of a client that speaks Streamable HTTP."""
    return streamable_http.end(ctx)


async def _send(socket: web.WebSocketResponse, connection: Connection) -> None:
    """Send what waits for the client. A client that reads nothing for SEND_S is cut off."""
    try:
        while not connection.outbox.is_over:
            for line in await connection.outbox.take():
                async with asyncio.timeout(SEND_S):
                    await socket.send_str(line.decode())
    except TimeoutError:
        log.warning("acp.stalled", send_timeout_s=SEND_S)
        connection.outbox.cut_off()
    except (ConnectionError, RuntimeError):  # the client has disconnected
        connection.outbox.close()


async def _close_at_end(socket: web.WebSocketResponse, end: Awaitable[None], connection: Connection) -> None:
    """Close the connection when the server stops."""
    await end
    await close_socket(socket, WSCloseCode.GOING_AWAY, b"The server stops.", connection.outbox.cut_off)


MODULES: tuple[ModuleType, ...] = (sys.modules[__name__],)
"""All modules with operations."""
