"""Routes of terminals and shells (`shim.host.terminals.terminal_manager`, `shim.http.terminal`).

Paths, bodies and queries are those of OpenCode 1. `shim.http.access` decides who may connect: pages of other origins may not, and
a client without the password needs a ticket.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from aiohttp import web
from pydantic import BaseModel, Field

from shim.faces.opencode2 import host
from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.endpoint import extra, operation
from shim.faces.opencode2.envelope import with_project
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.host.files.roots import require
from shim.host.terminals.shells import PAGE_LIMIT_BYTES
from shim.host.terminals.terminal_manager import TICKET_S, NewTerminal
from shim.http import terminal
from shim.http.access import is_authorized, may_use, token_of
from shim.http.operation import Ctx, need_id
from shim.http.shapes import ConnectQuery, PtyPath, TerminalBody, TerminalUpdate
from shim.lib.errors import Forbidden, InvalidRequest, PtyNotFound, ShellNotFound
from shim.sessions.prompts.shell_turn import shell_variables

TICKET_HEADER = "x-opencode-ticket"
"""A header that makes browsers send a CORS preflight, so that a page of another origin cannot get a ticket."""
NO_TERMINAL = 4404
"""Close code of a WebSocket whose terminal is unknown or has ended. Browsers do not see the status of a refused upgrade."""


@operation("pty.list")
async def listing(ctx: Ctx) -> object:
    """The running terminals of the directory."""
    return await locate_answer(ctx, [host.terminal(info) for info in ctx.services.terminals.list_of(ctx.directory)])


@operation("pty.create")
async def create(ctx: Ctx, body: TerminalBody | None) -> object:
    """Create a terminal."""
    body = body or TerminalBody()
    cwd = str(Path(ctx.directory, body.cwd or "."))
    await require(cwd, ctx.roots)
    project = await ctx.services.projects.identity(ctx.directory)
    variables = {**(body.env or {}), **await shell_variables(ctx.services.sessions, ctx.directory, cwd)}
    new = NewTerminal(body.command, tuple(body.args or ()), body.cwd, body.title, variables)
    created = await ctx.services.terminals.create(ctx.directory, project.id, new)
    return await locate_answer(ctx, host.terminal(created.info))


@operation("pty.get")
async def get(ctx: Ctx, path: PtyPath) -> object:
    """One terminal."""
    return await locate_answer(ctx, host.terminal(ctx.services.terminals.get(ctx.directory, path.ptyID).info))


@operation("pty.update")
async def update(ctx: Ctx, path: PtyPath, body: TerminalUpdate) -> object:
    """Change title and size."""
    pty = ctx.services.terminals.get(ctx.directory, path.ptyID)
    size = None if body.size is None else (body.size.rows, body.size.cols)
    ctx.services.terminals.update(pty, title=body.title, size=size)
    return await locate_answer(ctx, host.terminal(pty.info))


@operation("pty.remove")
async def remove(ctx: Ctx, path: PtyPath) -> None:
    """End a terminal."""
    await ctx.services.terminals.remove(ctx.services.terminals.get(ctx.directory, path.ptyID))


@operation("pty.connect.token")
async def token(ctx: Ctx, path: PtyPath) -> object:
    """Create a ticket for one connection."""
    if TICKET_HEADER not in ctx.request.headers:
        raise Forbidden(f"A ticket is given for a request with the header {TICKET_HEADER} alone.")
    pty = ctx.services.terminals.get(ctx.directory, path.ptyID)
    return await locate_answer(ctx, {"ticket": ctx.services.terminals.ticket(pty, token_of(ctx.request)), "expires_in": TICKET_S})


@operation("pty.connect")
async def connect(ctx: Ctx, path: PtyPath, query: ConnectQuery) -> web.StreamResponse:
    """Connect to a terminal over a WebSocket (`shim.http.terminal`). It closes with `NO_TERMINAL` if it does not exist."""
    if not web.WebSocketResponse().can_prepare(ctx.request):
        raise InvalidRequest("This is a WebSocket: connect to it with an upgrade.", "Headers")
    # A client without the password needs a ticket. A ticket that is shown must be valid in any case.
    needs_ticket = bool(query.ticket) or not is_authorized(ctx.request)
    token_id = (
        ctx.services.terminals.redeem(ctx.directory, path.ptyID, query.ticket or "") if needs_ticket else token_of(ctx.request)
    )
    if token_id is None or not may_use(ctx.request, token_id):
        message = "The ticket is unknown, used or too old. Ask for a new one with POST /api/pty/{ptyID}/connect-token."
        raise Forbidden(message)
    try:
        pty = ctx.services.terminals.get(ctx.directory, path.ptyID)
    except PtyNotFound:
        socket = web.WebSocketResponse()
        await socket.prepare(ctx.request)
        await socket.close(code=NO_TERMINAL, message=b"PTY session not found")
        return socket
    cursor = int(query.cursor) if re.fullmatch(r"-?\d{1,15}", query.cursor) else 0
    return await terminal.serve(ctx.request, pty, cursor, token_id)


# --- shells ----------------------------------------------------------------------------------------------

DEFAULT_PAGE_BYTES = 64 * 2**10


class ShellPath(BaseModel):
    """`{id}` of a path."""

    id: Annotated[str, need_id("sh_")]


class TimeoutBody(BaseModel):
    """`timeout`: milliseconds from now until the command is ended; 0 means no limit."""

    timeout: Annotated[int | float, Field(ge=0)]


class OutputQuery(BaseModel):
    """The first byte of the page, and its maximum size in bytes."""

    cursor: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_BYTES)] = DEFAULT_PAGE_BYTES


@operation("shell.list")
async def list_shells(ctx: Ctx) -> object:
    """The running commands of the directory."""
    return await locate_answer(ctx, [host.shell_command(info) for info in ctx.services.shells.list_of(ctx.directory)])


@operation("shell.create")
async def create_shell(ctx: Ctx, body: requests.ShellCreateBody) -> object:
    """Run a command with the person's shell. `timeout`: milliseconds until it is ended; none by default."""
    cwd = str(Path(ctx.directory, body.cwd or "."))
    await require(cwd, ctx.roots)
    process = await ctx.services.shells.create(
        ctx.directory,
        body.command,
        cwd=body.cwd,
        timeout_ms=body.timeout,
        metadata=body.metadata or {},
        variables=await shell_variables(ctx.services.sessions, ctx.directory, cwd),
    )
    row = host.shell_command(process.info)  # it may have ended before the answer is made
    return await locate_answer(ctx, row)


@operation("shell.get")
async def get_shell(ctx: Ctx, path: ShellPath) -> object:
    """One command, also after its end."""
    return await locate_answer(ctx, host.shell_command(ctx.services.shells.get(ctx.directory, path.id).info))


@extra("shell.timeout", "PATCH", "/api/shell/{id}/timeout")
async def timeout(ctx: Ctx, path: ShellPath, body: TimeoutBody) -> object:
    """Change the time limit of a running command. Only builds before 2.0 have this route, so it answers as they do."""
    shell = ctx.services.shells.get(ctx.directory, path.id)
    ctx.services.shells.limit(shell, body.timeout)
    return with_project(await locate_answer(ctx, host.shell_command(shell.info)))


@operation("shell.remove")
async def remove_shell(ctx: Ctx, path: ShellPath) -> None:
    """End a command with its children, and forget its output. Succeeds also if it does not exist."""
    with suppress(ShellNotFound):
        await ctx.services.shells.remove(ctx.services.shells.get(ctx.directory, path.id))


@operation("shell.output")
async def output(ctx: Ctx, path: ShellPath, query: OutputQuery) -> object:
    """A page of a command's output. A page that begins inside of a character starts with a replacement mark."""
    shells = ctx.services.shells
    page = await shells.output(shells.get(ctx.directory, path.id), query.cursor, query.limit)
    row = {"output": page.output, "cursor": page.cursor, "size": page.size, "truncated": page.is_truncated}
    return await locate_answer(ctx, row)
