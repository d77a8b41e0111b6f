"""The route of a session's log, from any place on. OpenCode keeps the log only if configured; here it always exists."""

from __future__ import annotations

from typing import Literal

from aiohttp import web
from pydantic import BaseModel

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.log import Log, LogItem
from shim.faces.opencode2.negotiation import dialect_of
from shim.faces.opencode2.routes.sessions import SessionPath, need
from shim.http import wire_json
from shim.http.log_stream import frame, last_event_id, stream
from shim.http.operation import Ctx
from shim.http.streams import need_room


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
    return await stream(ctx.request, log, _encode)


def _encode(item: tuple[int, LogItem]) -> bytes:
    return frame(item[0], wire_json.exact(item[1]))
