"""Worktrees and copies of a project. Source: a live OpenCode 1.18.33; `shim.host.worktrees`, `shim.host.project_copies`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from shim.faces.opencode1.endpoint import operation
from shim.host.project_copies import generate_name
from shim.host.roots import require
from shim.http.instance import end_instance
from shim.http.operation import NO_CONTENT, Ctx


class Create(BaseModel):
    """A wish for a name, and a command to run in it when its files are there."""

    name: str | None = None
    startCommand: str | None = None


class Place(BaseModel):
    """One of them."""

    directory: str


class ProjectPath(BaseModel):
    """`{projectID}` of a path."""

    projectID: str


class Context(BaseModel):
    """What a copy is for."""

    context: str | None = None


class Copy(BaseModel):
    """Where a copy is made: `directory`/`name`."""

    strategy: str
    directory: str
    name: str | None = None


class CopyRemoval(BaseModel):
    """`force`: also with changes."""

    directory: str
    force: bool


@operation("worktree.list")
async def list_worktrees(ctx: Ctx) -> object:
    """The project's other working trees."""
    return (await ctx.services.projects.current(ctx.directory))["sandboxes"]


@operation("worktree.create")
async def create(ctx: Ctx, body: Create | None) -> object:
    """A new one."""
    wanted = body or Create()
    return (await ctx.services.worktrees.create(ctx.directory, wanted.name, wanted.startCommand)).wire()


@operation("worktree.remove")
async def remove(ctx: Ctx, body: Place) -> object:
    """End what runs in it, and remove it with its branch."""
    if ctx.services.worktrees.is_managed(body.directory):
        await end_instance(ctx, body.directory)
    await ctx.services.worktrees.remove(ctx.directory, body.directory)
    return True


@operation("worktree.reset")
async def reset(ctx: Ctx, body: Place) -> object:
    """Make it as the default branch is; what was in it is lost."""
    await ctx.services.worktrees.reset(ctx.directory, body.directory)
    return True


@operation("experimental.projectCopy.generateName")
async def name(ctx: Ctx, path: ProjectPath, body: Context | None) -> object:
    """A name for a copy."""
    return {"name": generate_name(body.context if body else None)}


@operation("v2.projectCopy.create")
async def copy(ctx: Ctx, path: ProjectPath, body: Copy) -> object:
    """A copy."""
    require(str(Path(ctx.directory, body.directory)), ctx.services.settings.roots)
    copies = ctx.services.copies
    return {"directory": await copies.create(path.projectID, ctx.directory, body.strategy, body.directory, body.name)}


@operation("v2.projectCopy.remove")
async def remove_copy(ctx: Ctx, path: ProjectPath, body: CopyRemoval) -> object:
    """Remove one that was made here."""
    await ctx.services.copies.remove(path.projectID, ctx.directory, body.directory, force=body.force)
    return NO_CONTENT


@operation("v2.projectCopy.refresh")
async def refresh(ctx: Ctx, path: ProjectPath) -> object:
    """Look for worktrees that were made elsewhere."""
    await ctx.services.copies.refresh(path.projectID, ctx.directory)
    return NO_CONTENT
