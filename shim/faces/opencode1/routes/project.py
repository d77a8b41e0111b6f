"""Projects. Source: recordings `endpoints`, `directories`; `shim.host.projects`."""

from __future__ import annotations

from pydantic import BaseModel

from shim.faces.opencode1.endpoint import operation
from shim.host.changes import EVERYWHERE, ProjectUpdated
from shim.host.roots import visible_directories, visible_projects
from shim.http.operation import Ctx
from shim.http.shapes import Commands, Icon, ProjectPath


class Update(BaseModel):
    """`PATCH /project/{projectID}`."""

    name: str | None = None
    icon: Icon | None = None
    commands: Commands | None = None


@operation("project.list")
async def list_projects(ctx: Ctx) -> object:
    """List all projects ever opened on this server, with this request's."""
    here = await ctx.services.projects.identity(ctx.directory)
    return await visible_projects(await ctx.services.projects.list_all(), ctx.services.settings.roots, here.id)


@operation("project.current")
async def current(ctx: Ctx) -> object:
    """Return the directory's project."""
    return await ctx.services.projects.current(ctx.directory)


@operation("project.directories")
async def directories(ctx: Ctx, path: ProjectPath) -> object:
    """List a project's working trees; [] for an unknown project."""
    places = await ctx.services.projects.directories(path.projectID)
    return await visible_directories(places, ctx.services.settings.roots)


@operation("project.update")
async def update(ctx: Ctx, path: ProjectPath, body: Update) -> object:
    """Change name, icon and start command. Missing fields stay unchanged."""
    await ctx.services.projects.identity(ctx.directory)
    row = await ctx.services.projects.update(path.projectID, body.model_dump(exclude_none=True))
    ctx.services.host.publish(ProjectUpdated(row), EVERYWHERE, row["id"])
    return row


@operation("project.initGit")
async def init_git(ctx: Ctx) -> object:
    """Run `git init` in the directory, unless it is in a repository already."""
    row = await ctx.services.projects.init_git(ctx.directory)
    ctx.services.host.publish(ProjectUpdated(row), EVERYWHERE, row["id"])
    return row
