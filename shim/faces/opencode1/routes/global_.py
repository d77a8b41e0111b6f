"""The server itself; its health is in shim.http.health. Source: recordings `endpoints`, `dispose`."""

from __future__ import annotations

from shim.faces.opencode1.events import OpenCodeEvent
from shim.http.operation import Ctx, operation


@operation("global.dispose")
async def dispose(ctx: Ctx) -> object:
    """End all turns, agents, terminals and `/event` streams; sessions stay, and agents start again when they are needed."""
    services = ctx.services
    known = {record.directory for record in services.sessions.records()} | {*services.watchers.watched(), ctx.directory}
    await services.sessions.dispose(None)
    await services.terminals.dispose(None)
    for directory in sorted(known):
        await services.watchers.forget(directory)
        services.projects.forget(directory)
        services.hub.publish(OpenCodeEvent("server.instance.disposed", {"directory": directory}, directory))
        services.hub.end(directory)
    services.hub.publish(OpenCodeEvent("global.disposed", {}, "global"))
    return True
