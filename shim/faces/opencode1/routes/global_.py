"""Operations on the whole server. Source: recordings `endpoints`, `dispose`."""

from __future__ import annotations

from shim.faces.opencode1.endpoint import operation
from shim.host.changes import EVERYWHERE, AllDisposed, DirectoryDisposed
from shim.http.operation import Ctx


@operation("global.dispose")
async def dispose(ctx: Ctx) -> object:
    """End all turns, agents, terminals and `/event` streams. Sessions stay, and agents restart on demand."""
    services = ctx.services
    directories = {record.directory for record in services.sessions.index.records()} | {
        *services.watchers.watched_directories(),
        ctx.directory,
    }
    await services.sessions.dispose(None)
    await services.terminals.dispose(None)
    for directory in sorted(directories):
        await services.watchers.forget(directory)
        services.projects.forget(directory)
        services.host.publish(DirectoryDisposed(directory), directory)
        services.hub.end(directory)
    services.host.publish(AllDisposed(), EVERYWHERE)
    return True
