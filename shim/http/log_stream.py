"""Streams a session's log: past events, then live ones, each with a number from which a client can resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import structlog
from aiohttp import web

from shim.sessions.feed import Source

KEEP_ALIVE_S = 15.0
"""Seconds without events after which the stream sends a comment, so that no proxy closes it."""
SEND_TIMEOUT_S = 30.0
"""Seconds after which a client that reads nothing is cut off. It reconnects with Last-Event-ID."""
HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
CHUNK_BYTES = 256 * 1024
"""Maximum bytes of one write."""

E = TypeVar("E")

log = structlog.get_logger(__name__)


def last_event_id(request: web.Request) -> int | None:
    """Return the client's Last-Event-ID; None if it is missing or no sequence number."""
    value = request.headers.get("Last-Event-ID", "")
    return int(value) if value.isdecimal() and len(value) < 18 else None


def frame(id_: int, data: bytes) -> bytes:
    """Format one event of a stream. In: JSON without line breaks."""
    return b"id: %d\ndata: %b\n\n" % (id_, data)


async def stream(
    request: web.Request,
    source: Source[E],
    encode: Callable[[E], bytes],
    *,
    until: Callable[[E], bool] = lambda _: False,
) -> web.StreamResponse:
    """Send the events of `source`, up to and including the first one for which `until` is true.

    The stream ends cleanly if no more events follow. A too slow client gets a broken connection, so that it reconnects.
    """
    response = event_response()
    loop = asyncio.get_running_loop()
    with closing(source), cut_off_stalled(request):
        await send(response.prepare(request))
        await send(response.write(b": connected\n\n"))
        while not source.over:
            events = await source.take(loop.time() + KEEP_ALIVE_S)
            if not events:
                await send(response.write(b"" if source.over else b": keep-alive\n\n"))
                continue
            last = next((index for index, event in enumerate(events) if until(event)), None)
            await _write_all(response, map(encode, events if last is None else events[: last + 1]))
            if last is not None:
                break
        await send(response.write_eof())
    return response


def event_response() -> web.StreamResponse:
    """The answer that an event stream is."""
    response = web.StreamResponse(headers=HEADERS)
    response.content_type = "text/event-stream"
    return response


@contextmanager
def cut_off_stalled(request: web.Request) -> Generator[None]:
    """Send a stream in this block (`send`). A client that is gone ends it, and one that reads nothing is cut off."""
    try:
        yield
    except ConnectionError:
        log.debug("subscriber.gone", path=request.path)
    except TimeoutError:
        log.warning("subscriber.stalled", path=request.path, send_timeout_s=SEND_TIMEOUT_S)
        if request.transport is not None:
            request.transport.abort()


async def _write_all(response: web.StreamResponse, frames: Iterable[bytes]) -> None:
    """Write frames in chunks, each with its own time limit."""
    waiting, size = list[bytes](), 0
    for piece in frames:
        waiting.append(piece)
        size += len(piece)
        if size > CHUNK_BYTES:
            await send(response.write(b"".join(waiting)))
            waiting, size = [], 0
    if waiting:
        await send(response.write(b"".join(waiting)))


async def send(sending: Any) -> None:
    """Wait for a write. Raises TimeoutError."""
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await sending
