"""Disposes the instance of a directory, for the faces that offer this operation."""

from __future__ import annotations

from shim.host.changes import DirectoryDisposed
from shim.http.operation import Ctx


async def end_instance(ctx: Ctx, directory: str) -> None:
    """End a directory's turns, agents, terminals and `/event` streams, and tell clients to read everything again."""
    services = ctx.services
    await services.sessions.dispose(directory)
    await services.terminals.dispose(directory)
    await services.shells.dispose(directory)
    await services.watchers.forget(directory)
    project = await services.projects.identity(directory)
    services.projects.forget(directory)
    services.host.publish(DirectoryDisposed(directory), directory, project.id)
    services.hub.end(directory)
