"""The server itself. Source: recordings `endpoints`, `dispose`."""

from __future__ import annotations

from shim.http.operation import Ctx, extra, operation
from shim.opencode.operations import OPENCODE_VERSION
from shim.sse.event import OpenCodeEvent


@operation("global.health")
async def health(ctx: Ctx) -> object:
    """That we are alive. The version is OpenCode's, since clients compare it with what they can speak to."""
    return {"healthy": True, "version": OPENCODE_VERSION}


@extra("server.health", "GET", "/health")
async def plain_health(ctx: Ctx) -> object:
    """The AI SDK's provider asks here whether a server runs, and starts an `opencode` of its own if not."""
    return {"healthy": True}


@operation("global.dispose")
async def dispose(ctx: Ctx) -> object:
    """End all turns, agents, terminals and `/event` streams; sessions stay, and agents start again when they are needed."""
    services = ctx.services
    known = {info["directory"] for info in services.sessions.infos()} | {*services.watchers.watched(), ctx.directory}
    await services.sessions.dispose(None)
    await services.terminals.dispose(None)
    for directory in sorted(known):
        await services.watchers.forget(directory)
        services.projects.forget(directory)
        services.hub.publish(OpenCodeEvent("server.instance.disposed", {"directory": directory}, directory))
        services.hub.end(directory)
    services.hub.publish(OpenCodeEvent("global.disposed", {}, "global"))
    return True
