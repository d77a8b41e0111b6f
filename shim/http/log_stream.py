"""Streams of a session's log: what is past, then what happens, each with a number that a client can come back with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import structlog
from aiohttp import web

from shim.sessions.feed import Source

KEEP_ALIVE_S = 15.0
"""Without events, a comment is sent so often, so that nothing on the way ends the stream."""
SEND_TIMEOUT_S = 30.0
"""A client that takes nothing for so long is cut off; it comes back with Last-Event-ID."""
HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
CHUNK_BYTES = 256 * 1024
"""Bytes of one write."""

E = TypeVar("E")

log = structlog.get_logger(__name__)


def last_event_id(request: web.Request) -> int | None:
    """Where the client was; None if it does not say, or says what is no sequence."""
    said = request.headers.get("Last-Event-ID", "")
    return int(said) if said.isdecimal() and len(said) < 18 else None


def frame(id_: int, data: bytes) -> bytes:
    """One event of a stream. In: JSON, which has no line breaks."""
    return b"id: %d\ndata: %b\n\n" % (id_, data)


async def stream(
    request: web.Request,
    source: Source[E],
    encode: Callable[[E], bytes],
    *,
    until: Callable[[E], bool] = lambda _: False,
) -> web.StreamResponse:
    """Send what `source` gives, up to and with the event that `until` says; then end.

    How it ends tells the client what to do: cleanly when there is nothing more to come, broken off when it was too slow.
    """
    response = web.StreamResponse(headers=HEADERS)
    response.content_type = "text/event-stream"
    loop = asyncio.get_running_loop()
    try:
        await _send(response.prepare(request))
        await _send(response.write(b": connected\n\n"))
        while not source.over:
            events = await source.take(loop.time() + KEEP_ALIVE_S)
            if not events:
                await _send(response.write(b"" if source.over else b": keep-alive\n\n"))
                continue
            last = next((index for index, event in enumerate(events) if until(event)), None)
            await _write_all(response, map(encode, events if last is None else events[: last + 1]))
            if last is not None:
                break
        await _send(response.write_eof())
    except ConnectionError:
        log.debug("subscriber.gone", path=request.path)
    except TimeoutError:
        log.warning("subscriber.stalled", path=request.path, send_timeout_s=SEND_TIMEOUT_S)
        if request.transport is not None:
            request.transport.abort()
    finally:
        source.close()
    return response


async def _write_all(response: web.StreamResponse, frames: Iterable[bytes]) -> None:
    """In chunks, each with its own time limit."""
    waiting, size = list[bytes](), 0
    for one in frames:
        waiting.append(one)
        size += len(one)
        if size > CHUNK_BYTES:
            await _send(response.write(b"".join(waiting)))
            waiting, size = [], 0
    if waiting:
        await _send(response.write(b"".join(waiting)))


async def _send(sending: Any) -> None:
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await sending
