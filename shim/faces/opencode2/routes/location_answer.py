"""The directory that a request of OpenCode 2 is about, and the envelope `{location, data}` of its answer.

The directory is `location[directory]`, else `x-opencode-directory`, else the server's directory.
"""

from __future__ import annotations

import asyncio

from shim.faces.opencode2.envelope import LocatedAnswer
from shim.faces.opencode2.errors import LocationNotFound
from shim.http.operation import Ctx
from shim.lib.disk import is_folder


async def locate_answer(ctx: Ctx, data: object) -> LocatedAnswer:
    """`{location, data}`. Raises as `place`."""
    directory = await place(ctx)
    project = await ctx.services.projects.identity(directory)
    return LocatedAnswer(directory, {"id": project.id, "directory": project.worktree}, data)


def publish_changes(ctx: Ctx, *types: str) -> None:
    """Publish events without data to all clients of OpenCode 2, so that they read again what has changed."""
    if ctx.services.opencode2 is not None:
        for type_ in types:
            ctx.services.opencode2.publish(type_, {})


async def place(ctx: Ctx) -> str:
    """The request's directory. Raises 404 LocationNotFoundError if it is not there."""
    if not await asyncio.to_thread(is_folder, ctx.directory):
        message = f"There is no directory {ctx.directory} on this server's machine."
        raise LocationNotFound(ctx.directory, message)
    return ctx.directory
