"""Moves a session to another directory (the TUI's "Move session") or to a workspace. Source: API document and TUI of 1.18.33."""

from __future__ import annotations

import asyncio
import os.path
from typing import Annotated

from pydantic import BaseModel

from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.errors import SessionNotMoved, SessionNotWarped
from shim.faces.opencode1.routes.workspace import WorkspaceID
from shim.http.directory import resolve
from shim.http.operation import NO_CONTENT, Ctx, need_id
from shim.lib.errors import InvalidRequest, NotFound
from shim.sessions.transfer.move import move as move_session
from shim.sessions.transfer.move import subpath

CHANGES = (
    "Changes that are not committed stay where they are: this server does not move files. "
    "Commit or stash them, or say no to moving them along."
)


SessionID = Annotated[str, need_id("ses")]


class Destination(BaseModel):
    """The target directory."""

    directory: str


class Move(BaseModel):
    """A move. `moveChanges`: uncommitted changes shall move too."""

    sessionID: SessionID
    destination: Destination
    moveChanges: bool = False


@operation("experimental.controlPlane.moveSession")
async def move(ctx: Ctx, body: Move) -> object:
    """Move a session. Its next prompt starts an agent there with the conversation. Raises SessionNotMoved."""
    directory = await ctx.services.links.real(resolve({"directory": body.destination.directory}, {}, ctx.directory))
    return await _move(ctx, SessionNotMoved, body.sessionID, directory, along=body.moveChanges)


class Warp(BaseModel):
    """A move to a workspace. `id`: None for the project's own folder; `copyChanges`: uncommitted changes shall move too."""

    id: WorkspaceID | None
    sessionID: SessionID
    copyChanges: bool = False


@operation("experimental.workspace.warp")
async def warp(ctx: Ctx, body: Warp) -> object:
    """Move a session into or out of a workspace. Raises WorkspaceNotFound (404), SessionNotWarped."""
    here = ctx.services.sessions.index.record(body.sessionID).directory
    if body.id is not None:
        directory = (await ctx.services.workspaces.get(body.id)).directory
    else:
        worktree = (await ctx.services.projects.current(here)).worktree
        directory = here if worktree == "/" else worktree
    return await _move(ctx, SessionNotWarped, body.sessionID, directory, along=body.copyChanges)


async def _move(
    ctx: Ctx, refusal: type[SessionNotMoved | SessionNotWarped], session_id: str, directory: str, *, along: bool
) -> object:
    if along:
        raise refusal(CHANGES)
    if not await asyncio.to_thread(os.path.isdir, directory):
        raise refusal(f"There is no directory {directory}")
    project = await ctx.services.projects.identity(directory)
    try:
        await move_session(ctx.services.sessions, session_id, directory, project, subpath(directory, project.worktree))
    except (InvalidRequest, NotFound) as error:
        raise refusal(str(error)) from error
    await ctx.services.store.flush(session_id)
    return NO_CONTENT
