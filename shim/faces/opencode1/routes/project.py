"""Projects, paths, and the end of an instance. Source: recordings `endpoints`, `directories`; `shim.host.git.projects`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shim.faces.opencode1 import host
from shim.faces.opencode1.endpoint import operation
from shim.host.changes import EVERYWHERE, ProjectUpdated
from shim.host.files.roots import visible_copies, visible_projects
from shim.http.operation import Ctx
from shim.http.services import end_instance
from shim.http.shapes import ProjectChanges, ProjectPath

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import Path


@operation("project.list")
async def list_projects(ctx: Ctx) -> object:
    """List all projects ever opened on this server, with this request's."""
    here = await ctx.services.projects.identity(ctx.directory)
    projects = await visible_projects(await ctx.services.projects.list_all(), ctx.roots, here.id)
    return [host.project(project) for project in projects]


@operation("project.current")
async def current(ctx: Ctx) -> object:
    """Return the directory's project."""
    return host.project(await ctx.services.projects.current(ctx.directory))


@operation("project.directories")
async def directories(ctx: Ctx, path: ProjectPath) -> object:
    """List a project's working trees; [] for an unknown project."""
    copies = await ctx.services.projects.directories(path.projectID)
    return [host.project_directory(copy) for copy in await visible_copies(copies, ctx.roots)]


@operation("project.update")
async def update(ctx: Ctx, path: ProjectPath, body: ProjectChanges) -> object:
    """Change name, icon and start command. Missing fields stay unchanged."""
    await ctx.services.projects.identity(ctx.directory)
    project = await ctx.services.projects.update(path.projectID, body.apply)
    ctx.services.host.publish(ProjectUpdated(project), EVERYWHERE, project.id)
    return host.project(project)


@operation("project.initGit")
async def init_git(ctx: Ctx) -> object:
    """Run `git init` in the directory, unless it is in a repository already."""
    project = await ctx.services.projects.init_git(ctx.directory)
    ctx.services.host.publish(ProjectUpdated(project), EVERYWHERE, project.id)
    return host.project(project)


# --- paths -----------------------------------------------------------------------------------------------


@operation("path.get")
async def get_paths(ctx: Ctx) -> object:
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


# --- instances -------------------------------------------------------------------------------------------


@operation("instance.dispose")
async def dispose(ctx: Ctx) -> object:
    """End the directory's turns, agents, terminals and `/event` streams, and tell clients to read everything again."""
    await end_instance(ctx.services, ctx.directory)
    return True
