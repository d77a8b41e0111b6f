"""The instance of a directory: what runs for it. Source: recording `dispose`."""

from __future__ import annotations

from shim.http.operation import Ctx, operation
from shim.sse.event import OpenCodeEvent


@operation("instance.dispose")
async def dispose(ctx: Ctx) -> object:
    """End the directory's turns and agents, tell clients to read everything again, end its `/event` streams."""
    services = ctx.services
    await services.sessions.dispose(ctx.directory)
    project = await services.projects.identity(ctx.directory)
    services.projects.forget(ctx.directory)
    event = OpenCodeEvent("server.instance.disposed", {"directory": ctx.directory}, ctx.directory, project.id)
    services.hub.publish(event)
    services.hub.end(ctx.directory)
    return True
