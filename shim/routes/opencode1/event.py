"""The event streams. Source: `docs/wire.md` section 1 and the clients' directory rules; ADR 0012 for the wire generation."""

from __future__ import annotations

from aiohttp import web

from shim.http.operation import Ctx, operation
from shim.sse.event import OpenCodeEvent
from shim.sse.response import stream
from shim.sse.wire import wire_of


@operation("event.subscribe")
async def subscribe(ctx: Ctx) -> web.StreamResponse:
    """Events of one directory."""
    return await _stream(ctx, ctx.directory, wrapped=False)


@operation("global.event")
async def subscribe_all(ctx: Ctx) -> web.StreamResponse:
    """Events of all directories, each with its directory, whatever directory the client names."""
    return await _stream(ctx, None, wrapped=True)


async def _stream(ctx: Ctx, scope: str | None, *, wrapped: bool) -> web.StreamResponse:
    request = ctx.request
    last = request.headers.get("Last-Event-ID") or request.query.get("lastEventID")
    subscription = ctx.services.hub.subscribe(
        scope=scope,
        wrapped=wrapped,
        legacy=wire_of(request) == "v1.1",
        last_event_id=last,
        greeting=open_requests(ctx),
    )
    return await stream(request, subscription)


def open_requests(ctx: Ctx) -> list[OpenCodeEvent]:
    """What waits for a person, announced again to each new stream: the TUI has no other way to learn of it."""
    sessions = ctx.services.sessions
    events: list[OpenCodeEvent] = []
    for kind, requests in (("permission.asked", sessions.permissions()), ("question.asked", sessions.questions())):
        for wire in requests:
            info = sessions.info(wire["sessionID"])
            events.append(OpenCodeEvent(kind, wire, info["directory"], info["projectID"], urgent=True))
    return events
