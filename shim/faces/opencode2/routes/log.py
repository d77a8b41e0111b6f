"""Routes of the event stream, and of a session's log, which always exists here. Source: `docs/wire2.md`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict

from aiohttp import web
from pydantic import BaseModel, Field

from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.dialects import PREVIEW
from shim.faces.opencode2.dialects.preview import NEXT
from shim.faces.opencode2.endpoint import operation, preview_operation
from shim.faces.opencode2.events import log_event
from shim.faces.opencode2.negotiation import dialect_of
from shim.faces.opencode2.routes.sessions import SessionPath, need
from shim.faces.opencode2.stream import ENCODERS
from shim.faces.opencode2.wire_event import Event, EventJson
from shim.http import log_stream, wire_json
from shim.http.log_stream import frame, last_event_id
from shim.http.operation import Ctx
from shim.http.services import need_room
from shim.lib.clock import from_rfc3339
from shim.sessions.feed import Feed, Follower, wait_for_store
from shim.store.base import Store
from shim.stream.response import stream, wants_gzip
from universal.events import UniversalEvent
from universal.session.log import LogAppended
from universal.session.reducer import Reducer, reducer_of


@operation("session.log")
async def log(ctx: Ctx, path: SessionPath, query: requests.LogQuery) -> web.StreamResponse:
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
    encoder = ctx.stream_of(ENCODERS[dialect_of(request).name])
    scope = ctx.roots if ctx.person.roots else None
    subscription = await ctx.services.streams.subscribe(hub, encoder, last_event_id=last, scope=scope)
    gzip = wants_gzip(request.headers.get("Accept-Encoding", ""), request.remote, ctx.services.settings.compress_streams)
    return await stream(request, subscription, gzip=gzip, write_queue=hub.write_queue)


# --- the log ---------------------------------------------------------------------------------------------

# Reads a session's log: its durable events in OpenCode 2's form. Source: `SessionLogItem` of 2.0.21.
#
# The log is not stored. The journal is replayed for each reader from its first event, so the log is always complete.

LOG_SYNCED = "log.synced"


class LogSynced(TypedDict):
    """The item that says that the reader has all entries of before. `seq`: the last one's number."""

    type: Literal["log.synced"]
    aggregateID: str
    seq: NotRequired[int]


LogItem: TypeAlias = EventJson | LogSynced


class Log:
    """The items after the number `after`, then a mark that says that they are complete, then (`follow`) new ones.

    An item is (number, JSON value). In: `translate`, which converts an event to the reader's dialect, or returns None.
    """

    def __init__(
        self,
        feed: Feed,
        store: Store,
        session_id: str,
        *,
        after: int,
        follow: bool,
        translate: Callable[[Event], Event | None],
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._after = after
        self._follow = follow
        self._translate = translate
        self._reducer: Reducer | None = None
        self._synced = False
        self._last: int | None = None
        self._follower = Follower(feed, session_id, self._read, 0, wait_for_store(feed, store, session_id))

    async def _read(self, after: int, limit: int) -> Sequence[UniversalEvent]:
        return await self._store.events(self._session_id, after, limit)

    @property
    def over(self) -> bool:
        return self._follower.over if self._follow else self._synced

    async def take(self, until: float | None = None) -> Sequence[tuple[int, LogItem]]:
        """Wait for the next items. Returns none at the loop time `until`, and when the log is `over`. Raises StoreError."""
        while True:
            now = asyncio.get_running_loop().time()
            events = await self._follower.take(until if self._synced else now)
            items = [item for event in events for item in self._items(event)]
            caught_up = not events or self._follower.position >= self._store.last_sequence(self._session_id)
            if not self._synced and caught_up:
                self._synced = True
                synced: LogSynced = {"type": LOG_SYNCED, "aggregateID": self._session_id}
                if self._last is not None:
                    synced["seq"] = self._last
                items.append((self._last or 0, synced))
            if items or not events:
                return items

    def close(self) -> None:
        """Release the log. May be called again."""
        self._follower.close()

    def _items(self, event: UniversalEvent) -> list[tuple[int, LogItem]]:
        if self._reducer is None:
            self._reducer = reducer_of(event)
        items: list[tuple[int, LogItem]] = []
        for change in self._reducer.apply(event, from_rfc3339(event.time)):
            if not isinstance(change, LogAppended) or change.number is None:
                continue
            self._last = change.number
            if change.number > self._after:
                translated = self._translate(log_event(change, self._reducer.session))
                items += [] if translated is None or translated.seq is None else [(change.number, translated.log())]
        return items
