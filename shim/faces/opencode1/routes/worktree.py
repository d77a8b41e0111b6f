"""Worktrees and copies of a project (`shim.host.git.worktrees`, `project_copies`). Source: a live OpenCode 1.18.33."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from shim.faces.opencode1.endpoint import operation
from shim.host.files.roots import require
from shim.host.git.project_copies import generate_name
from shim.http.instance import end_instance
from shim.http.operation import NO_CONTENT, Ctx

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.host_types import Worktree


class Create(BaseModel):
    """A wish for a name, and a command to run after the checkout."""

    name: str | None = None
    startCommand: str | None = None


class Place(BaseModel):
    """The folder of a worktree."""

    directory: str


class ProjectPath(BaseModel):
    """`{projectID}` of a path."""

    projectID: str


class Context(BaseModel):
    """The purpose of a copy."""

    context: str | None = None


class Copy(BaseModel):
    """The place of a new copy: `directory`/`name`."""

    strategy: str
    directory: str
    name: str | None = None


class CopyRemoval(BaseModel):
    """A removal. `force`: even if the copy has changes."""

    directory: str
    force: bool


@operation("worktree.list")
async def list_worktrees(ctx: Ctx) -> object:
    """List the project's other working trees."""
    return (await ctx.services.projects.current(ctx.directory)).sandboxes


@operation("worktree.create")
async def create(ctx: Ctx, body: Create | None) -> object:
    """Create a worktree."""
    options = body or Create()
    created = await ctx.services.worktrees.create(ctx.directory, options.name, options.startCommand)
    worktree: Worktree = {"name": created.name, "branch": created.branch, "directory": created.directory}
    return worktree


@operation("worktree.remove")
async def remove(ctx: Ctx, body: Place) -> object:
    """End everything that runs in a worktree, and remove it with its branch."""
    if await ctx.services.worktrees.is_managed(body.directory):
        await end_instance(ctx, body.directory)
    await ctx.services.worktrees.remove(ctx.directory, body.directory)
    return True


@operation("worktree.reset")
async def reset(ctx: Ctx, body: Place) -> object:
    """Reset a worktree to the default branch. All its changes are lost."""
    await ctx.services.worktrees.reset(ctx.directory, body.directory)
    return True


@operation("experimental.projectCopy.generateName")
async def name(ctx: Ctx, path: ProjectPath, body: Context | None) -> object:
    """Generate a name for a copy."""
    return {"name": generate_name(body.context if body else None)}


@operation("v2.projectCopy.create")
async def copy(ctx: Ctx, path: ProjectPath, body: Copy) -> object:
    """Create a copy."""
    await require(str(Path(ctx.directory, body.directory)), ctx.services.settings.roots)
    copies = ctx.services.copies
    return {"directory": await copies.create(path.projectID, ctx.directory, body.strategy, body.directory, body.name)}


@operation("v2.projectCopy.remove")
async def remove_copy(ctx: Ctx, path: ProjectPath, body: CopyRemoval) -> object:
    """Remove a copy that this server created."""
    await ctx.services.copies.remove(path.projectID, ctx.directory, body.directory, force=body.force)
    return NO_CONTENT


@operation("v2.projectCopy.refresh")
async def refresh(ctx: Ctx, path: ProjectPath) -> object:
    """Register worktrees that other programs created."""
    await ctx.services.copies.refresh(path.projectID, ctx.directory)
    return NO_CONTENT
