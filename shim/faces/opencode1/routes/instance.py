"""The instance of a directory: what runs for it. Source: recording `dispose`."""

from __future__ import annotations

from shim.host.changes import DirectoryDisposed
from shim.http.operation import Ctx, operation


@operation("instance.dispose")
async def dispose(ctx: Ctx) -> object:
    """End the directory's turns, agents and terminals, tell clients to read everything again, end its `/event` streams."""
    await end_instance(ctx, ctx.directory)
    return True


async def end_instance(ctx: Ctx, directory: str) -> None:
    """The same for any directory."""
    services = ctx.services
    await services.sessions.dispose(directory)
    await services.terminals.dispose(directory)
    await services.shells.dispose(directory)
    await services.watchers.forget(directory)
    project = await services.projects.identity(directory)
    services.projects.forget(directory)
    services.host.publish(DirectoryDisposed(directory), directory, project.id)
    services.hub.end(directory)
