"""Serves a terminal over a WebSocket, in the protocol of OpenCode's clients.

    server -> client   text: output, beginning with the kept output from the client's cursor on
                       binary: 0x00 and `{"cursor": N}`, once after the kept output: the position where live output begins
    client -> server   text or binary: input
    end                close 1000; 1013 for a client that reads too slowly (it reconnects with its cursor). The connection of a
                       client that reads nothing is cut off, because no close would reach it

Source: a live OpenCode 1.18.33.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from aiohttp import ClientWebSocketResponse, WSCloseCode, WSMsgType, web

from shim.host.terminals.scrollback import Watcher
from shim.host.terminals.terminal_manager import Terminal
from shim.http import wire_json
from shim.http.access import CONNECTION, RELAYED, while_good
from shim.lib.tasks import end_tasks

TOKEN_HEADER = "X-Shim-Token"  # noqa: S105 - a name
"""The id of a client's pairing token, between servers of a cluster."""
PING_S = 30.0
"""Seconds between pings. A client that does not answer counts as gone."""
INPUT_LIMIT_BYTES = 2**20
"""Maximum size of one message. A larger paste closes the connection with 1009."""
SEND_S = 20.0
"""Seconds to send one message, or a close, to a client that does not read. Then its connection is cut off."""
STOP_S = 1.0
"""Maximum seconds for a client to answer a close."""

Socket: TypeAlias = web.WebSocketResponse | ClientWebSocketResponse


async def serve(request: web.Request, terminal: Terminal, cursor: int, token_id: str = "") -> web.StreamResponse:
    """Serve until the client disconnects, the terminal ends, or the pairing token (if any) is revoked.

    Raises HTTPBadRequest for a request that does not open a WebSocket.
    """
    with while_good(request, token_id):
        socket = web.WebSocketResponse(heartbeat=PING_S, max_msg_size=INPUT_LIMIT_BYTES, compress=False, timeout=STOP_S)
        if RELAYED in request:  # the client's server ends the connection when the token is revoked
            socket.headers[TOKEN_HEADER] = token_id
        await socket.prepare(request)
        await exchange(socket, terminal, cursor, request[CONNECTION].cut_off)
        return socket


async def exchange(socket: web.WebSocketResponse, terminal: Terminal, cursor: int, cut_off: Callable[[], None]) -> None:
    """Carry output and input until one side ends. In: `cut_off`, which ends the connection at once."""
    backlog, position, watcher = terminal.watch(cursor)
    sending = asyncio.create_task(_send(socket, backlog, position, watcher, cut_off), name=f"terminal {terminal.id}")
    try:
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await terminal.process.write(message.data.encode("utf-8", "replace"))
            elif message.type is WSMsgType.BINARY:
                await terminal.process.write(message.data)
    finally:
        terminal.unwatch(watcher)
        await end_tasks(sending)


async def _send(
    socket: web.WebSocketResponse, backlog: list[str], position: int, watcher: Watcher, cut_off: Callable[[], None]
) -> None:
    try:
        # Not `wait_for`: in Python 3.11 it may swallow the cancellation if the client leaves at once.
        for piece in backlog:
            async with asyncio.timeout(SEND_S):
                await socket.send_str(piece)
        async with asyncio.timeout(SEND_S):
            await socket.send_bytes(b"\0" + wire_json.dumps({"cursor": position}))
        async for text in watcher:
            async with asyncio.timeout(SEND_S):
                await socket.send_str(text)
    except TimeoutError:
        cut_off()
    except (ConnectionError, RuntimeError):  # the client disconnected
        return
    else:
        await close_socket(socket, WSCloseCode.TRY_AGAIN_LATER if watcher.lagged else WSCloseCode.OK, b"", cut_off)


async def close_socket(socket: Socket, code: int, message: bytes, cut_off: Callable[[], None]) -> None:
    """Close a WebSocket, within SEND_S. A client that reads nothing holds up its close as any message; it is cut off."""
    try:
        async with asyncio.timeout(SEND_S):
            await socket.close(code=code, message=message)
    except TimeoutError:
        cut_off()
    except (ConnectionError, RuntimeError):
        pass
