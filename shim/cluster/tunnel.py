"""Carries a client's WebSocket to the server of the cluster that has the terminal: two WebSockets, and a `Pipe` between them.

    client == WebSocket == its server == pipe == server of the terminal == WebSocket on the private socket (`Relay`)

The first message of the pipe is the status and the headers of the answer to the upgrade. Each later one is a frame: `T` text, `B`
bytes, or `C` and `{"code", "reason"}` for a close. If the other server is lost, the client's WebSocket closes with `LOST`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from shim.cluster.peers import Headers, Pipe, PipeEnded
from shim.http.terminal import INPUT_LIMIT_BYTES, PING_S, SEND_S, STOP_S, Socket, close_socket
from shim.lib.errors import ServerLost, StoreError

LOST = WSCloseCode.BAD_GATEWAY
REASON_BYTES = 120
"""Maximum bytes of the reason of a close; the protocol allows 123."""


class Head(NamedTuple):
    """The answer to an upgrade. `status` 101: the WebSocket is open."""

    status: int
    headers: Headers = ()


def encode_head(head: Head) -> bytes:
    """The first message of a pipe."""
    return json.dumps(head).encode()


def decode_head(message: bytes | None) -> Head:
    """The inverse of `encode_head`. Raises ServerLost if there is none."""
    try:
        status, headers, *_ = json.loads(message or b"")
        return Head(int(status), tuple((str(name), str(value)) for name, value in headers))
    except (ValueError, TypeError) as error:
        raise ServerLost("Another server has sent an answer that cannot be read. Is it of another version?") from error


def _frame(message: WSMessage) -> bytes:
    """A message of a WebSocket as a frame."""
    match message.type:
        case WSMsgType.TEXT:
            return b"T" + message.data.encode("utf-8", "replace")
        case WSMsgType.BINARY:
            return b"B" + message.data
        case WSMsgType.CLOSE:
            return _close_frame(message.data or WSCloseCode.OK, str(message.extra or ""))
        case _:  # cut off, or no close came in time
            return _close_frame(WSCloseCode.GOING_AWAY, "")


def _close_frame(code: int, reason: str) -> bytes:
    return b"C" + json.dumps({"code": code, "reason": reason}).encode()


async def join(socket: Socket, pipe: Pipe, cut_off: Callable[[], None]) -> None:
    """Carry frames both ways until one side closes, and close the other one.

    In: `cut_off`, which ends the connection of a socket that does not read for SEND_S.
    """
    arriving = asyncio.create_task(_to_socket(pipe, socket, cut_off), name="frames of another server")
    try:
        while True:
            message = await socket.receive()
            await pipe.send(_frame(message))
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                break
    except PipeEnded:  # what has come before the end is shown first, with its close: a person may type while a shell ends
        await asyncio.wait([arriving])
    except (ServerLost, StoreError) as error:
        await close_socket(socket, LOST, _short(str(error)), cut_off)
    finally:
        arriving.cancel()
        await asyncio.wait([arriving])


async def _to_socket(pipe: Pipe, socket: Socket, cut_off: Callable[[], None]) -> None:
    code, reason = int(LOST), "The other server has ended the stream."
    try:
        while (frame := await pipe.receive()) is not None:
            if frame.startswith(b"C"):
                close: dict[str, Any] = json.loads(frame[1:])
                code, reason = int(close["code"]), str(close.get("reason", ""))
                break
            async with asyncio.timeout(SEND_S):
                if frame.startswith(b"T"):
                    await socket.send_str(frame[1:].decode("utf-8", "replace"))
                elif frame.startswith(b"B"):  # else of a later version
                    await socket.send_bytes(frame[1:])
    except TimeoutError:  # a client that reads nothing would not get a close either
        cut_off()
        return
    except (ServerLost, StoreError) as error:
        reason = str(error)
    except (ConnectionError, RuntimeError):  # it has disconnected
        return
    await close_socket(socket, code, _short(reason), cut_off)


def _short(reason: str) -> bytes:
    return reason.encode()[:REASON_BYTES]


def socket_of_client() -> web.WebSocketResponse:
    """The WebSocket of a client of this server."""
    return web.WebSocketResponse(heartbeat=PING_S, max_msg_size=INPUT_LIMIT_BYTES, compress=False, timeout=STOP_S)
