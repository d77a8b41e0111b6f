"""Routes of the event stream, and of a session's log, which always exists here. Source: `docs/wire2.md`."""

from __future__ import annotations

from typing import Annotated, Literal

from aiohttp import web
from pydantic import BaseModel, Field

from shim.faces.opencode2.dialects import PREVIEW
from shim.faces.opencode2.dialects.preview import NEXT
from shim.faces.opencode2.endpoint import operation, preview_operation
from shim.faces.opencode2.events import Event
from shim.faces.opencode2.log import LOG_SYNCED, Log, LogItem
from shim.faces.opencode2.negotiation import client_of, dialect_of
from shim.faces.opencode2.routes.sessions import SessionPath, need
from shim.faces.opencode2.stream import ENCODERS
from shim.http import log_stream, wire_json
from shim.http.log_stream import frame, last_event_id
from shim.http.operation import Ctx
from shim.http.streams import need_room
from shim.stream.compression import wants_gzip
from shim.stream.response import stream


class LogQuery(BaseModel):
    """`after`: a `durable.seq`, exclusive. The header `Last-Event-ID` wins."""

    after: int = -1
    follow: Literal["true", "false"] = "false"


@operation("session.log")
async def log(ctx: Ctx, path: SessionPath, query: LogQuery) -> web.StreamResponse:
    """Past events, then `log.synced`, then (with `follow`) new events."""
    need(ctx, path.sessionID)
    need_room(ctx.services)
    resumed_after = last_event_id(ctx.request)
    log = Log(
        ctx.services.sessions.deps.feed,
        ctx.services.store,
        path.sessionID,
        after=query.after if resumed_after is None else resumed_after,
        follow=query.follow == "true",
        translate=dialect_of(ctx.request).event,
    )
    return await log_stream.stream(ctx.request, log, _encode)


def _encode(item: tuple[int, LogItem]) -> bytes:
    return frame(item[0], wire_json.exact(item[1]))


# --- the durable events of the preview -------------------------------------------------------------------

# Routes of the preview in 1.18 for a session's durable events: a page of them, or a stream from a position on.
#
# The events are those of OpenCode 2's log, in the dialect `preview` and without its mark.
# Source: OpenCode's own document of 1.18.33, recordings of lildax 1.18.18.

PREVIEW_PAGE = 50
"""Events of a page, if the request gives no limit."""


class HistoryQuery(BaseModel):
    """`after`: a `durable.seq`, exclusive."""

    limit: Annotated[int, Field(ge=1, le=1000)] = PREVIEW_PAGE
    after: int = -1


class EventsQuery(BaseModel):
    """`after`: a `durable.seq`, exclusive. The header `Last-Event-ID` wins."""

    after: int = -1


@preview_operation("v2.session.history")
async def history(ctx: Ctx, path: SessionPath, query: HistoryQuery) -> object:
    """A page of past events."""
    need(ctx, path.sessionID)
    log = _preview_log(ctx, path.sessionID, query.after, follow=False)
    page: list[LogItem] = []
    try:
        while not log.over and len(page) <= query.limit:
            page += [item for _, item in await log.take() if item["type"] != LOG_SYNCED]
    finally:
        log.close()
    return {"data": page[: query.limit], "hasMore": len(page) > query.limit}


@preview_operation("v2.session.events")
async def events(ctx: Ctx, path: SessionPath, query: EventsQuery) -> web.StreamResponse:
    """Past events, then each event when it happens."""
    need(ctx, path.sessionID)
    need_room(ctx.services)
    resumed_after = last_event_id(ctx.request)
    log = _preview_log(ctx, path.sessionID, query.after if resumed_after is None else resumed_after, follow=True)
    return await log_stream.stream(ctx.request, log, _encode_preview)


def _preview_log(ctx: Ctx, session_id: str, after: int, *, follow: bool) -> Log:
    feed, store = ctx.services.sessions.deps.feed, ctx.services.store
    return Log(feed, store, session_id, after=after, follow=follow, translate=_loggable)


def _loggable(event: Event) -> Event | None:
    """The event in the dialect `preview`, or None. The document's log has only `session.next.*`, not the session's creation."""
    translated = PREVIEW.event(event)
    return translated if translated is not None and translated.type.startswith(NEXT) else None


def _encode_preview(item: tuple[int, LogItem]) -> bytes:
    if item[1]["type"] == LOG_SYNCED:
        return b": synced\n\n"
    return frame(item[0], wire_json.exact(item[1]))


# --- the stream of events --------------------------------------------------------------------------------


@operation("event.subscribe")
async def subscribe(ctx: Ctx) -> web.StreamResponse:
    """Send `server.connected`, then all events. `Last-Event-ID` or `?after=` replays what is still buffered after that id."""
    request = ctx.request
    need_room(ctx.services)
    last = request.headers.get("Last-Event-ID") or request.query.get("after")
    hub = ctx.services.hub
    encoder = ENCODERS[dialect_of(request).name]
    subscription = await ctx.services.streams.subscribe(hub, encoder, last_event_id=last, client=client_of(request))
    gzip = wants_gzip(request.headers.get("Accept-Encoding", ""), request.remote, ctx.services.settings.compress_streams)
    return await stream(request, subscription, gzip=gzip, write_queue=hub.write_queue)
