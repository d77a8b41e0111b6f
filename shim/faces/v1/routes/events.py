"""Events of a session: pages of its journal, and streams that begin in it and go on live.

Source: the universal API's document; docs/contract.md. `offset` is the last sequence that was seen, as `Last-Event-ID` is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeAlias, TypeVar

import structlog
from aiohttp import web
from pydantic import BaseModel, Field

from shim.faces.v1.routes.endpoint import page, universal, v1
from shim.faces.v1.routes.sessions import SessionPath
from shim.http import wire_json
from shim.http.operation import Ctx
from shim.http.streams import need_room
from shim.services import Universal
from shim.sessions.feed import Source
from shim.store.rows import EventRow, event_of
from universal.events import UniversalEvent

DEFAULT_LIMIT = 1_000
MAX_LIMIT = 10_000
KEEP_ALIVE_S = 15.0
"""Without events, a comment is sent so often, so that nothing on the way ends the stream."""
SEND_TIMEOUT_S = 30.0
"""A client that takes nothing for so long is cut off; it comes back with Last-Event-ID."""
HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}

E = TypeVar("E")

log = structlog.get_logger(__name__)

Entry: TypeAlias = UniversalEvent | EventRow
"""An event that has just been made, or one of the journal as it is stored."""


class EventsQuery(BaseModel):
    """A page: events after `offset`."""

    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=0)] = DEFAULT_LIMIT
    include_raw: bool = False


class SseQuery(BaseModel):
    """A stream: events after `offset`, unless the header `Last-Event-ID` says where it was cut."""

    offset: Annotated[int, Field(ge=0)] = 0
    include_raw: bool = False


def sent(face: Universal, entry: Entry, *, include_raw: bool) -> bytes:
    """The event as it is sent, as JSON. `raw` is always there; null unless asked for.

    What is stored is sent as it is: it was checked when it was written.
    """
    if isinstance(entry, EventRow):
        if (text := face.sessions.wire_of(entry, include_raw=include_raw)) is not None:
            return text
        entry = event_of(entry)
    out = face.sessions.renamed(entry).model_dump(by_alias=True, exclude={"raw"})
    out["raw"] = entry.raw if include_raw else None
    return wire_json.exact(out)


@v1("get_events", "GET", "/v1/sessions/{session_id}/events", tag="sessions", answer="EventsResponse", errors=(400, 404))
async def get_events(ctx: Ctx, path: SessionPath, query: EventsQuery) -> object:
    """Events after `offset`, oldest first; at most `limit`. `hasMore`: there are later ones."""
    face = universal(ctx)
    session_id = face.sessions.id_of(path.session_id)
    limit = min(query.limit, MAX_LIMIT)
    found = await ctx.services.store.rows(session_id, query.offset, limit + 1)
    rows = (sent(face, row, include_raw=query.include_raw) for row in found[:limit])
    return page(b"events", rows, more=len(found) > limit)


@v1("get_events_sse", "GET", "/v1/sessions/{session_id}/events/sse", tag="sessions", form="events", errors=(400, 404))
async def get_events_sse(ctx: Ctx, path: SessionPath, query: SseQuery) -> object:
    """History after `offset` (or `Last-Event-ID`), then live, without a gap and without a duplicate. `id:` is the sequence."""
    face = universal(ctx)
    after = last_event_id(ctx.request)
    need_room(ctx.services)
    follower = await face.sessions.row_follower(face.sessions.id_of(path.session_id), query.offset if after is None else after)
    return await stream(ctx.request, follower, encoder(face, include_raw=query.include_raw))


def last_event_id(request: web.Request) -> int | None:
    """Where the client was; None if it does not say, or says what is no sequence."""
    said = request.headers.get("Last-Event-ID", "")
    return int(said) if said.isdecimal() and len(said) < 18 else None


def encoder(face: Universal, *, include_raw: bool) -> Callable[[Entry], bytes]:
    """How events go onto a stream."""

    def encode(entry: Entry) -> bytes:
        return frame(entry.sequence, sent(face, entry, include_raw=include_raw))

    return encode


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


CHUNK_BYTES = 256 * 1024


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
