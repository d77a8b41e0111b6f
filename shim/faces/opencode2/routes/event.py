"""The route of the event stream. Source: `docs/wire2.md`, recordings of v2-20260717."""

from __future__ import annotations

from aiohttp import web

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.negotiation import client_of, dialect_of
from shim.faces.opencode2.stream import ENCODERS
from shim.http.operation import Ctx
from shim.http.streams import need_room
from shim.stream.compression import wants_gzip
from shim.stream.response import stream


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
