"""Routes of shell commands without a terminal (`shim.host.terminals.shells`)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from shim.faces.opencode2 import host
from shim.faces.opencode2.endpoint import extra, operation
from shim.faces.opencode2.envelope import with_project
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.host.files.roots import require
from shim.host.terminals.shells import PAGE_LIMIT_BYTES
from shim.http.operation import NO_CONTENT, Ctx, need_id
from shim.lib.errors import ShellNotFound

DEFAULT_PAGE_BYTES = 64 * 2**10


class ShellPath(BaseModel):
    """`{id}` of a path."""

    id: Annotated[str, need_id("sh_")]


class Create(BaseModel):
    """`timeout`: milliseconds until the command is ended; by default none. `cwd`: absolute or relative to the directory."""

    command: Annotated[str, Field(min_length=1)]
    cwd: str | None = None
    timeout: Annotated[int | float, Field(gt=0)] | None = None
    metadata: dict[str, Any] | None = None


class TimeoutBody(BaseModel):
    """`timeout`: milliseconds from now until the command is ended; 0 means no limit."""

    timeout: Annotated[int | float, Field(ge=0)]


class OutputQuery(BaseModel):
    """The first byte of the page, and its maximum size in bytes."""

    cursor: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_BYTES)] = DEFAULT_PAGE_BYTES


@operation("shell.list")
async def listing(ctx: Ctx) -> object:
    """The running commands of the directory."""
    return await locate_answer(ctx, [host.shell_command(info) for info in ctx.services.shells.list_of(ctx.directory)])


@operation("shell.create")
async def create(ctx: Ctx, body: Create) -> object:
    """Run a command with the person's shell."""
    await require(str(Path(ctx.directory, body.cwd or ".")), ctx.services.settings.roots)
    process = await ctx.services.shells.create(
        ctx.directory, body.command, cwd=body.cwd, timeout_ms=body.timeout, metadata=body.metadata or {}
    )
    row = host.shell_command(process.info)  # it may have ended before the answer is made
    return await locate_answer(ctx, row)


@operation("shell.get")
async def get(ctx: Ctx, path: ShellPath) -> object:
    """One command, also after its end."""
    return await locate_answer(ctx, host.shell_command(ctx.services.shells.get(ctx.directory, path.id).info))


@extra("shell.timeout", "PATCH", "/api/shell/{id}/timeout")
async def timeout(ctx: Ctx, path: ShellPath, body: TimeoutBody) -> object:
    """Change the time limit of a running command. Only builds before 2.0 have this route, so it answers as they do."""
    shell = ctx.services.shells.get(ctx.directory, path.id)
    ctx.services.shells.limit(shell, body.timeout)
    return with_project(await locate_answer(ctx, host.shell_command(shell.info)))


@operation("shell.remove")
async def remove(ctx: Ctx, path: ShellPath) -> object:
    """End a command with its children, and forget its output. Succeeds also if it does not exist."""
    with suppress(ShellNotFound):
        await ctx.services.shells.remove(ctx.services.shells.get(ctx.directory, path.id))
    return NO_CONTENT


@operation("shell.output")
async def output(ctx: Ctx, path: ShellPath, query: OutputQuery) -> object:
    """A page of a command's output. A page that begins inside of a character starts with a replacement mark."""
    shells = ctx.services.shells
    page = await shells.output(shells.get(ctx.directory, path.id), query.cursor, query.limit)
    row = {"output": page.output, "cursor": page.cursor, "size": page.size, "truncated": page.is_truncated}
    return await locate_answer(ctx, row)
