"""Worktrees and copies of a project, and moves of sessions between directories."""

from __future__ import annotations

import asyncio
import os.path
from pathlib import Path
from typing import TYPE_CHECKING

from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.errors import SessionNotMoved
from shim.host.files.roots import require
from shim.host.git.project_copies import generate_name
from shim.http.directory import resolve
from shim.http.operation import Ctx
from shim.http.services import end_instance
from shim.lib.errors import InvalidRequest, NotFound
from shim.sessions.transfer.move import move as move_session
from shim.sessions.transfer.move import subpath

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.host_types import Worktree


# --- moves -----------------------------------------------------------------------------------------------

CHANGES = (
    "Changes that are not committed stay where they are: this server does not move files. "
    "Commit or stash them, or say no to moving them along."
)


@operation("experimental.controlPlane.moveSession")
async def move(ctx: Ctx, body: requests.SessionMoveBody) -> None:
    """Move a session. Its next prompt starts an agent there with the conversation. Raises SessionNotMoved."""
    directory = await ctx.services.links.real(resolve({"directory": body.destination.directory}, {}, ctx.directory))
    if body.moveChanges is True:
        raise SessionNotMoved(CHANGES)
    if not await asyncio.to_thread(os.path.isdir, directory):
        raise SessionNotMoved(f"There is no directory {directory}")
    project = await ctx.services.projects.identity(directory)
    try:
        await move_session(ctx.services.sessions, body.sessionID, directory, project, subpath(directory, project.worktree))
    except (InvalidRequest, NotFound) as error:
        raise SessionNotMoved(str(error)) from error
    await ctx.services.store.flush(body.sessionID)


# --- worktrees -------------------------------------------------------------------------------------------


@operation("worktree.list")
async def list_worktrees(ctx: Ctx) -> object:
    """List the project's other working trees."""
    return (await ctx.services.projects.current(ctx.directory)).sandboxes


@operation("worktree.create")
async def create_worktree(ctx: Ctx, body: requests.WorktreeCreateBody | None) -> object:
    """Create a worktree."""
    options = body or requests.WorktreeCreateBody()
    created = await ctx.services.worktrees.create(ctx.directory, options.name, options.startCommand)
    worktree: Worktree = {"name": created.name, "branch": created.branch, "directory": created.directory}
    return worktree


@operation("worktree.remove")
async def remove_worktree(ctx: Ctx, body: requests.WorktreeRemoveBody) -> object:
    """End everything that runs in a worktree, and remove it with its branch."""
    if await ctx.services.worktrees.is_managed(body.directory):
        await end_instance(ctx.services, body.directory)
    await ctx.services.worktrees.remove(ctx.directory, body.directory)
    return True


@operation("worktree.reset")
async def reset(ctx: Ctx, body: requests.WorktreeResetBody) -> object:
    """Reset a worktree to the default branch. All its changes are lost."""
    await ctx.services.worktrees.reset(ctx.directory, body.directory)
    return True


@operation("experimental.projectCopy.generateName")
async def name(ctx: Ctx, path: requests.ProjectPath, body: requests.CopyNameBody | None) -> object:
    """Generate a name for a copy."""
    return {"name": generate_name(body.context if body else None)}


@operation("v2.projectCopy.create")
async def copy(ctx: Ctx, path: requests.ProjectPath, body: requests.CopyBody) -> object:
    """Create a copy."""
    await require(str(Path(ctx.directory, body.directory)), ctx.roots)
    copies = ctx.services.copies
    return {"directory": await copies.create(path.projectID, ctx.directory, body.strategy, body.directory, body.name)}


@operation("v2.projectCopy.remove")
async def remove_copy(ctx: Ctx, path: requests.ProjectPath, body: requests.CopyRemovalBody) -> None:
    """Remove a copy that this server created."""
    await ctx.services.copies.remove(path.projectID, ctx.directory, body.directory, force=body.force)


@operation("v2.projectCopy.refresh")
async def refresh(ctx: Ctx, path: requests.ProjectPath) -> None:
    """Register worktrees that other programs created."""
    await ctx.services.copies.refresh(path.projectID, ctx.directory)
