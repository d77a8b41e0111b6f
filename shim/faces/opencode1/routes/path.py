"""Reports the paths of the server and the project. Source: recordings `endpoints`, `directories`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import Path


@operation("path.get")
async def get(ctx: Ctx) -> object:
    """Return the paths. `worktree`: the top of the repository, `/` outside of git. Clients then use `directory`."""
    services = ctx.services
    project = await services.projects.identity(ctx.directory)
    services.watchers.visit(ctx.directory, project.id)
    paths: Path = {
        "home": str(services.config.home),
        "state": str(services.settings.data_dir),
        "config": str(services.config.folder),
        "worktree": project.worktree,
        "directory": ctx.directory,
    }
    return paths
