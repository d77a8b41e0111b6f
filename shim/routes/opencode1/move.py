"""A session to another directory, as the TUI's "Move session" asks. Source: the document and the TUI of 1.18.33."""

from __future__ import annotations

import asyncio
import os.path

from pydantic import BaseModel

from shim.errors import ApiError, BadRequest, NotFound
from shim.http.directory import resolve
from shim.http.operation import NO_CONTENT, Ctx, operation
from shim.sessions.moving import move as move_session
from shim.sessions.moving import subpath

CHANGES = (
    "Changes that are not committed stay where they are: this server does not move files. "
    "Commit or stash them, or say no to moving them along."
)


class Destination(BaseModel):
    """Where to."""

    directory: str


class Move(BaseModel):
    """`moveChanges`: what is not committed is to go along."""

    sessionID: str
    destination: Destination
    moveChanges: bool = False


@operation("experimental.controlPlane.moveSession")
async def move(ctx: Ctx, body: Move) -> object:
    """Its agent is started there with the next prompt, and told what was said. Raises 400 MoveSessionError."""
    directory = resolve({"directory": body.destination.directory}, {}, ctx.directory)
    if body.moveChanges:
        raise _failed(CHANGES)
    if not await asyncio.to_thread(os.path.isdir, directory):
        raise _failed(f"There is no directory {directory}")
    project = await ctx.services.projects.identity(directory)
    try:
        await move_session(ctx.services.sessions, body.sessionID, directory, project, subpath(directory, project.worktree))
    except (BadRequest, NotFound) as error:
        raise _failed(str(error)) from error
    await ctx.services.store.flush()
    return NO_CONTENT


def _failed(message: str) -> ApiError:
    return ApiError(400, "MoveSessionError", message, body={"name": "MoveSessionError", "data": {"message": message}})
