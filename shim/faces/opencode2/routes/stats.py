"""The route of statistics (`shim.faces.opencode2.session_counts`)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, Field

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.routes.sessions import face
from shim.faces.opencode2.session_counts import Stats
from shim.host.files.roots import visible_sessions
from shim.http.operation import Ctx
from shim.lib.errors import InvalidRequest


class StatsQuery(BaseModel):
    """A span of time in epoch milliseconds, by default all. `timezone`: name of the time zone of days."""

    from_: Annotated[int | None, Field(ge=0, alias="from")] = None
    to: Annotated[int | None, Field(ge=0)] = None
    project: str | None = None
    timezone: str = "UTC"
    tools: Literal["none", "summary", "detail"] = "none"


@operation("experimental.session.stats")
async def stats(ctx: Ctx, query: StatsQuery) -> object:
    """Statistics of all sessions. Only sessions that are new or have changed are read, one by one."""
    try:
        zone = await asyncio.to_thread(ZoneInfo, query.timezone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise InvalidRequest(f"There is no time zone {query.timezone}", "Query", ("timezone",)) from error
    until = ctx.services.clock.now_ms() if query.to is None else query.to
    records = [
        record
        for record in await visible_sessions(ctx.services.sessions.index.records(), ctx.services.settings.roots)
        if query.project in (None, record.project_id) and record.updated_ms >= (query.from_ or 0) and record.created_ms <= until
    ]
    first = min((record.created_ms for record in records), default=until)
    totals = Stats(first if query.from_ is None else query.from_, until, zone)
    for record in records:
        if (counted := await face(ctx).counted.of(record.id)) is not None:
            totals.add(counted)
    return {"data": totals.info(query.tools)}
