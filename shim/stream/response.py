"""Serves one event stream as an HTTP response. Only this module imports aiohttp_sse.

    take -> gather <= 4 ms since the last (none if urgent, little if few frames come) -> join -> one write, with a time limit

aiohttp_sse has the response class and sets TCP_USER_TIMEOUT on the socket. Its ping comment is put off for a day, because each
face has a heartbeat. The end of a stream tells the client what to do: OpenCode's SDK ends its iteration at a clean end, and
reconnects with Last-Event-ID if the connection breaks (source of @opencode-ai/sdk 1.19.3, seen with 1.1.53). So the connection of
a slow reader is broken, and a shutdown ends streams cleanly.
"""

from __future__ import annotations

import asyncio
import ipaddress
import zlib
from collections.abc import Awaitable
from typing import Literal, TypeAlias

import structlog
from aiohttp import web
from aiohttp_sse import EventSourceResponse

from shim.stream.subscription import State, Subscription, WriteQueue

# --- compression --------------------------------------------------------------------------------------------------

# Compresses a stream with gzip, if its client accepts it. Each write is flushed, so that nothing waits in the compressor. A piece
# of text then costs a tenth of its JSON. The window is small, because each of a thousand readers has one.

When: TypeAlias = Literal["auto", "always", "never"]
"""`auto`: only for clients on other machines. Between programs of one machine, compression only costs time."""

WINDOW_BITS = 13
MEMORY_LEVEL = 5
GZIP = 16
"""Added to the window, zlib writes gzip's header and trailer."""


class Gzip:
    """The gzip compressor of one stream. A client can decode each `write` at once."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(6, zlib.DEFLATED, GZIP + WINDOW_BITS, MEMORY_LEVEL)

    def write(self, data: bytes) -> bytes:
        """Compress all of `data`."""
        return self._zlib.compress(data) + self._zlib.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        """Return the trailer."""
        return self._zlib.flush(zlib.Z_FINISH)


def wants_gzip(accept_encoding: str, peer: str | None, when: When) -> bool:
    """Whether a client gets gzip. In: its Accept-Encoding, and its address as the server sees it."""
    if when == "never" or not _takes_gzip(accept_encoding):
        return False
    return when == "always" or not _is_here(peer)


def _takes_gzip(accept_encoding: str) -> bool:
    for choice in accept_encoding.lower().split(","):
        name, _, weight = choice.strip().partition(";")
        if name.strip() in ("gzip", "x-gzip"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _is_here(peer: str | None) -> bool:
    try:
        return peer is None or ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


# --- the answer ---------------------------------------------------------------------------------------------------

GATHER_S = 0.004
"""Seconds between writes while many frames come, except for urgent ones. One write for many frames costs a tenth."""
SEND_TIMEOUT_S = 30.0
"""Seconds after which a client that reads nothing counts as gone."""
END_GRACE_S = 0.2
"""Seconds for all remaining writes once the stream is to end."""
PING_INTERVAL_S = 86_400.0
"""Required by aiohttp_sse for its ping comment, which no client needs."""

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}
"""The headers of OpenCode 1.18.33."""

log = structlog.get_logger()


async def stream(
    request: web.Request,
    subscription: Subscription,
    *,
    heartbeat_s: float | None = None,
    gather_s: float = GATHER_S,
    send_timeout_s: float = SEND_TIMEOUT_S,
    gzip: bool = False,
    write_queue: WriteQueue | None = None,
) -> web.StreamResponse:
    """Send a subscription to a client until one of them ends, then close it.

    In: `heartbeat_s`, if it is not that of the encoder; `gzip`, whether the body is compressed; `write_queue`, shared by all
    streams. Raises HTTPMethodNotAllowed if it is not a GET, and nothing for a client that went away.
    """
    response = EventSourceResponse(sep="\n", send_timeout=send_timeout_s, ping_interval=PING_INTERVAL_S)
    response.headers.update(HEADERS)
    response.headers.popall("Connection", None)
    if gzip:
        response.headers["Content-Encoding"] = "gzip"
    sender = _Sender(subscription, send_timeout_s)
    write_queue = write_queue or WriteQueue()
    heartbeat_s = subscription.encoder.heartbeat_s if heartbeat_s is None else heartbeat_s
    try:
        if request.transport is None:  # it left while the request was read
            return web.Response()
        await response.prepare(request)
        with write_queue.stream(lambda: request.transport is None, subscription.close):
            async with response:
                pump = _pump(response, subscription, sender, heartbeat_s, gather_s, Gzip() if gzip else None, write_queue)
                await asyncio.create_task(pump, name="stream")  # a piece wakes this task alone, not all that await the response
        if subscription.state is State.DROPPED:
            _break_off(request)
    except ConnectionError:
        log.debug("subscriber.gone", scope=subscription.scope)
    except TimeoutError:
        if subscription.state is State.OPEN:
            log.warning("subscriber.stalled", scope=subscription.scope, send_timeout_s=send_timeout_s)
        _break_off(request)
    finally:
        subscription.close()
    return response


async def _pump(
    response: EventSourceResponse,
    subscription: Subscription,
    sender: _Sender,
    heartbeat_s: float,
    gather_s: float,
    gzip: Gzip | None,
    write_queue: WriteQueue,
) -> None:
    """Send frames and heartbeats until the subscription is over, then end the body.

    Raises TimeoutError, ConnectionError.
    """
    loop = asyncio.get_running_loop()
    heartbeat_at = loop.time() + heartbeat_s
    while True:
        batches = await subscription.take(gather_s, heartbeat_at)
        if not batches and subscription.over:
            break
        if batches:
            await write_queue.enter()
            data = batches[0].data if len(batches) == 1 else b"".join([batch.data for batch in batches])
            await sender.send(response.write(data if gzip is None else gzip.write(data)))
        if loop.time() >= heartbeat_at:
            subscription.send_heartbeat()
            heartbeat_at = loop.time() + heartbeat_s
    if subscription.state is State.ENDING:
        if gzip is not None:
            await sender.send(response.write(gzip.end()))
        await sender.send(response.write_eof())


class _Sender:
    """The writes of one stream: each within its time limit, and all within END_GRACE_S once the stream is to end."""

    def __init__(self, subscription: Subscription, timeout_s: float) -> None:
        self._subscription = subscription
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._end_at: float | None = None
        self._limit: asyncio.Timeout | None = None
        subscription.on_end = self._shorten
        if subscription.state is not State.OPEN:
            self._shorten()

    async def send(self, sending: Awaitable[None]) -> None:
        """Wait for a write. Raises TimeoutError."""
        until = self._loop.time() + self._timeout_s
        async with asyncio.timeout_at(until if self._end_at is None else min(until, self._end_at)) as self._limit:
            try:
                await sending
            finally:
                self._limit = None  # also when the client is gone: an expired limit cannot be changed

    def _shorten(self) -> None:
        """Shorten a running write's time limit, because the stream is to end: to nothing if the reader was dropped."""
        self._end_at = self._loop.time() + (END_GRACE_S if self._subscription.state is State.ENDING else 0.0)
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(min(self._end_at, self._limit.when() or self._end_at))


def _break_off(request: web.Request) -> None:
    """Close the connection in the middle of the body, which the client sees as an error and not as an end."""
    if request.transport is not None:
        request.transport.abort()
