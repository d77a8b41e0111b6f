"""Commands without a terminal. Source: API notes of 2.0.21; `shim.host.shells`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from shim.errors import ShellNotFound
from shim.faces.opencode2.endpoint import extra, operation
from shim.faces.opencode2.envelope import with_project
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.host.roots import require
from shim.host.shells import PAGE_LIMIT_BYTES
from shim.http.operation import NO_CONTENT, Ctx, need_id

DEFAULT_PAGE_BYTES = 64 * 2**10


class ShellPath(BaseModel):
    """`{id}` of a path."""

    id: Annotated[str, need_id("sh_")]


class Create(BaseModel):
    """`timeout`: milliseconds after which it is ended; none if it is not given. `cwd`: from the directory or absolute."""

    command: Annotated[str, Field(min_length=1)]
    cwd: str | None = None
    timeout: Annotated[int | float, Field(gt=0)] | None = None
    metadata: dict[str, Any] | None = None


class TimeoutBody(BaseModel):
    """`timeout`: milliseconds from now until the command is ended; 0: it may run for ever."""

    timeout: Annotated[int | float, Field(ge=0)]


class OutputQuery(BaseModel):
    """Where to begin, and how many bytes at most."""

    cursor: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_BYTES)] = DEFAULT_PAGE_BYTES


@operation("shell.list")
async def listing(ctx: Ctx) -> object:
    """The directory's commands that run."""
    return await locate_answer(ctx, ctx.services.shells.list_of(ctx.directory))


@operation("shell.create")
async def create(ctx: Ctx, body: Create) -> object:
    """Run one, with the person's shell."""
    await require(str(Path(ctx.directory, body.cwd or ".")), ctx.services.settings.roots)
    made = await ctx.services.shells.create(
        ctx.directory, body.command, cwd=body.cwd, timeout_ms=body.timeout, metadata=body.metadata or {}
    )
    begun = dict(made.wire)  # it may have ended when the answer is made
    return await locate_answer(ctx, begun)


@operation("shell.get")
async def get(ctx: Ctx, path: ShellPath) -> object:
    """One of them, also if it has ended."""
    return await locate_answer(ctx, ctx.services.shells.get(ctx.directory, path.id).wire)


@extra("shell.timeout", "PATCH", "/api/shell/{id}/timeout")
async def timeout(ctx: Ctx, path: ShellPath, body: TimeoutBody) -> object:
    """Change the time limit of one that runs. Only the builds before 2.0 have this route, so it answers as they do."""
    shell = ctx.services.shells.get(ctx.directory, path.id)
    ctx.services.shells.limit(shell, body.timeout)
    return with_project(await locate_answer(ctx, dict(shell.wire)))


@operation("shell.remove")
async def remove(ctx: Ctx, path: ShellPath) -> object:
    """End it with what it has started, and forget its output; one that is not there is fine."""
    with suppress(ShellNotFound):
        await ctx.services.shells.remove(ctx.services.shells.get(ctx.directory, path.id))
    return NO_CONTENT


@operation("shell.output")
async def output(ctx: Ctx, path: ShellPath, query: OutputQuery) -> object:
    """A page of its output. A position inside of a character begins after it, with a mark for what is cut."""
    shells = ctx.services.shells
    return await locate_answer(ctx, await shells.output(shells.get(ctx.directory, path.id), query.cursor, query.limit))
