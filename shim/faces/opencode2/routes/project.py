"""Routes of directories, projects and their worktrees.

See `shim.host.git.projects`, `shim.host.git.worktrees` and `shim.host.git.project_copies`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from shim.faces.opencode2 import host
from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import WorktreeRefused
from shim.faces.opencode2.routes.location_answer import place, publish_changes
from shim.host.changes import EVERYWHERE, AllDisposed, ProjectDirectoriesChanged, ProjectUpdated
from shim.host.files.roots import require, visible_copies, visible_projects
from shim.host.git import vcs
from shim.host.git.project_copies import STRATEGY
from shim.host.git.projects import belongs
from shim.host.values import Project
from shim.http.operation import Ctx
from shim.http.services import end_instance
from shim.http.shapes import ProjectChanges, ProjectPath
from shim.lib.errors import InvalidRequest, ProjectNotFound

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types
    from shim.faces.opencode2._generated.host_types import LocationPublicInfo


class Update(ProjectChanges):
    """The fields to change. `canonical`: the new main working tree."""

    canonical: str | None = None


@operation("project.list")
async def listing(ctx: Ctx) -> object:
    """All projects that were ever opened, and that of this request. None is archived, as no operation archives one."""
    return [_info(ctx, project) for project in await _projects(ctx)]


@operation("project.update")
async def update(ctx: Ctx, path: ProjectPath, body: Update) -> object:
    """Change name, icon, start command or the main working tree."""
    if body.canonical is not None:
        _require_place(await _need(ctx, path.projectID), body.canonical)
    project = await ctx.services.projects.update(path.projectID, lambda old: _with_canonical(body.apply(old), body.canonical))
    ctx.services.host.publish(ProjectUpdated(project), EVERYWHERE, project.id)
    return _info(ctx, project)


@operation("worktree.list")
async def worktrees(ctx: Ctx, query: requests.ProjectQuery) -> object:
    """The project's working trees that still exist, the main one first."""
    await _need(ctx, query.projectID)
    copies = await ctx.services.projects.directories(query.projectID)
    return [host.worktree(copy) for copy in await visible_copies(copies, ctx.roots)]


@operation("worktree.create")
async def create(ctx: Ctx, body: requests.WorktreeCreateBody) -> object:
    """Create a worktree: in `directory` without a branch, or in the server's data with a branch."""
    top = (await _need(ctx, body.projectID)).worktree
    if body.directory is None:
        worktree = ctx.services.worktrees.create(top, body.name, branch=body.branch, base=body.from_)
        place = (await _worktree_work(worktree)).directory
    elif body.branch is not None or body.from_ is not None:
        raise WorktreeRefused("`branch` and `from` are for worktrees in this server's own data: leave `directory` out.")
    else:
        target = Path(top, body.directory)
        await require(str(target.parent), ctx.roots)
        worktree = ctx.services.copies.create(body.projectID, top, STRATEGY, str(target.parent), body.name or target.name)
        place = await _worktree_work(worktree)
    _publish_change(ctx, body.projectID)
    return {"directory": place}


@operation("worktree.remove")
async def remove(ctx: Ctx, body: requests.WorktreeRemoveBody) -> None:
    """End what runs in a worktree and remove it. Only worktrees of this server; with changes only by `force`."""
    top = (await _need(ctx, body.projectID)).worktree
    if await ctx.services.worktrees.is_managed(body.directory):
        if not body.force and await vcs.changes(body.directory):
            raise WorktreeRefused(f"{body.directory} has changes that are not committed.", force_required=True)
        await end_instance(ctx.services, body.directory)
        await _worktree_work(ctx.services.worktrees.remove(top, body.directory))
    else:
        await _worktree_work(ctx.services.copies.remove(body.projectID, top, body.directory, force=body.force))
    _publish_change(ctx, body.projectID)


@operation("worktree.refresh")
async def refresh(ctx: Ctx, body: requests.ProjectQuery) -> None:
    """Find worktrees that other programs have created."""
    project = await _need(ctx, body.projectID)
    await _worktree_work(ctx.services.copies.refresh(body.projectID, project.worktree))


def _info(ctx: Ctx, project: Project) -> host_types.Project:
    """The `Project`. `active` is the time of the last change of its sessions."""
    times = [
        record.updated_ms
        for record in ctx.services.sessions.index.records()
        if belongs(project, record.project_id, record.directory)
    ]
    return host.project(project, max(times, default=project.updated_ms))


async def _projects(ctx: Ctx) -> list[Project]:
    here = await ctx.services.projects.identity(ctx.directory)
    return await visible_projects(await ctx.services.projects.list_all(), ctx.roots, here.id)


async def _need(ctx: Ctx, project_id: str) -> Project:
    for project in await _projects(ctx):
        if project.id == project_id:
            return project
    raise ProjectNotFound(project_id)


def _require_place(project: Project, place: str) -> None:
    """Raise InvalidRequest for a place that is none of the project's working trees."""
    places = (project.worktree, *project.sandboxes)
    if place not in places:
        raise InvalidRequest(
            f"Expected one of the project's working trees ({', '.join(places)}), got {place}", path=("canonical",)
        )


def _with_canonical(project: Project, place: str | None) -> Project:
    """The project with another main working tree; None keeps the main one."""
    if place is None:
        return project
    places = (project.worktree, *project.sandboxes)
    return replace(project, worktree=place, sandboxes=tuple(tree for tree in places if tree != place))


Done = TypeVar("Done")


async def _worktree_work(work: Awaitable[Done]) -> Done:
    """Run work on a worktree. An unknown revision becomes an error of the worktree."""
    try:
        return await work
    except InvalidRequest as error:
        raise WorktreeRefused(error.message) from error


def _publish_change(ctx: Ctx, project_id: str) -> None:
    ctx.services.host.publish(ProjectDirectoriesChanged(project_id), ctx.directory, project_id)


# --- locations -------------------------------------------------------------------------------------------


@operation("location.get")
async def get_location(ctx: Ctx) -> object:
    """The directory and its project. `canonical` is the working tree of the project that was opened first."""
    directory = await place(ctx)
    project = await ctx.services.projects.identity(directory)
    ctx.services.watchers.visit(directory, project.id)
    canonical = (await ctx.services.projects.current(directory)).worktree
    info: LocationPublicInfo = {
        "directory": directory,
        "project": {"id": project.id, "directory": project.worktree, "canonical": canonical},
    }
    return info


@operation("location.reload")
async def reload_location(ctx: Ctx) -> None:
    """Ask the agents again for their models and commands, and make clients read everything again.

    Configuration files are read at each use anyway. Turns, open permissions and forms go on; OpenCode cancels the last two.
    """
    for agent in ctx.services.agents.list_agents():
        await ctx.services.agents.refresh(agent.spec.name)
    ctx.services.host.publish(AllDisposed(), EVERYWHERE)
    publish_changes(ctx, "location.shutdown")


@operation("debug.location.list")
async def list_locations(ctx: Ctx) -> object:
    """Directories with a running turn or an open terminal."""
    busy = [entry.record.directory for entry in ctx.services.sessions.index.busy()]
    return [{"directory": directory} for directory in dict.fromkeys([*busy, *ctx.services.terminals.directories()])]


@operation("debug.location.evict")
async def evict_location(ctx: Ctx) -> None:
    """End the directory's turns, agents and terminals. Its sessions stay."""
    await end_instance(ctx.services, ctx.directory)
