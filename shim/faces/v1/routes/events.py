"""Serves a session's events: pages of its journal, and streams that start in the journal and continue live.

Source: the universal API's document; docs/contract.md. `offset`, like `Last-Event-ID`, is the last sequence that the client has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

from pydantic import BaseModel, Field

from shim.faces.v1.routes.endpoint import page, universal, v1
from shim.faces.v1.routes.sessions import SessionPath
from shim.http import wire_json
from shim.http.log_stream import frame, last_event_id, stream
from shim.http.operation import Ctx
from shim.http.services import Universal, need_room
from shim.store.rows import EventRow, event_of
from universal.events import UniversalEvent

DEFAULT_LIMIT = 1_000
MAX_LIMIT = 10_000

Entry: TypeAlias = UniversalEvent | EventRow
"""A new event, or a stored row of the journal."""


class EventsQuery(BaseModel):
    """A page: events after `offset`."""

    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=0)] = DEFAULT_LIMIT
    include_raw: bool = False


class SseQuery(BaseModel):
    """A stream: events after `offset`, unless the header `Last-Event-ID` says where the last stream ended."""

    offset: Annotated[int, Field(ge=0)] = 0
    include_raw: bool = False


def encode_entry(face: Universal, entry: Entry, *, include_raw: bool) -> bytes:
    """Encode an event as JSON. `raw` is always present, and null unless the client asks for it.

    A stored event is sent unchanged, because it was validated when it was written.
    """
    if isinstance(entry, EventRow):
        if (text := face.sessions.wire_of(entry, include_raw=include_raw)) is not None:
            return text
        entry = event_of(entry)
    out = face.sessions.with_names(entry).model_dump(by_alias=True, exclude={"raw"})
    out["raw"] = entry.raw if include_raw else None
    return wire_json.exact(out)


@v1("GET", "/v1/sessions/{session_id}/events", tag="sessions", answer="EventsResponse", errors=(400, 404))
async def get_events(ctx: Ctx, path: SessionPath, query: EventsQuery) -> object:
    """A page of at most `limit` events after `offset`, oldest first. `hasMore`: later events exist."""
    face = universal(ctx)
    session_id = await face.sessions.id_of(path.session_id)
    limit = min(query.limit, MAX_LIMIT)
    events = await ctx.services.store.rows(session_id, query.offset, limit + 1)
    rows = (encode_entry(face, row, include_raw=query.include_raw) for row in events[:limit])
    return page(b"events", rows, more=len(events) > limit)


@v1("GET", "/v1/sessions/{session_id}/events/sse", tag="sessions", form="events", errors=(400, 404))
async def get_events_sse(ctx: Ctx, path: SessionPath, query: SseQuery) -> object:
    """Stream past events after `offset` (or `Last-Event-ID`), then live ones, without gap or duplicate. `id:` is the sequence."""
    face = universal(ctx)
    after = last_event_id(ctx.request)
    need_room(ctx.services)
    follower = await face.sessions.row_follower(
        await face.sessions.id_of(path.session_id), query.offset if after is None else after
    )
    return await stream(ctx.request, follower, encoder(face, include_raw=query.include_raw))


def encoder(face: Universal, *, include_raw: bool) -> Callable[[Entry], bytes]:
    """Return the encoder of a stream's events."""

    def encode(entry: Entry) -> bytes:
        return frame(entry.sequence, encode_entry(face, entry, include_raw=include_raw))

    return encode
