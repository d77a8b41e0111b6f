"""Terminals. Source: a live OpenCode 1.18.33; `shim.host.terminals.terminal_manager`, `shim.http.terminal`.

`shim.http.access` decides who may connect: no foreign pages, and without the password only clients with a ticket.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from aiohttp import web

from shim.faces.opencode1 import host
from shim.faces.opencode1.endpoint import operation
from shim.host.files.roots import require
from shim.host.terminals.terminal_manager import TICKET_S, NewTerminal
from shim.http import terminal
from shim.http.access import is_authorized, may_use, token_of
from shim.http.operation import Ctx
from shim.http.shapes import ConnectQuery, PtyPath, TerminalBody, TerminalUpdate
from shim.lib.errors import InvalidRequest, PtyForbidden
from shim.sessions.prompts.shell_turn import shell_variables

TICKET_HEADER = "x-opencode-ticket"
"""A required header. It makes browsers send a preflight (CORS), so that a foreign page cannot get a ticket."""


@operation("pty.shells")
async def shells(ctx: Ctx) -> object:
    """List the shells of this machine."""
    return [host.shell(shell) for shell in await asyncio.to_thread(ctx.services.terminals.shells)]


@operation("pty.list")
async def list_terminals(ctx: Ctx) -> object:
    """List the directory's running terminals."""
    return [host.terminal(info) for info in ctx.services.terminals.list_of(ctx.directory)]


@operation("pty.create")
async def create(ctx: Ctx, body: TerminalBody | None) -> object:
    """Open a terminal."""
    options = body or TerminalBody()
    cwd = str(Path(ctx.directory, options.cwd or "."))
    await require(cwd, ctx.roots)
    project = await ctx.services.projects.identity(ctx.directory)
    variables = {**(options.env or {}), **await shell_variables(ctx.services.sessions, ctx.directory, cwd)}
    new = NewTerminal(options.command, tuple(options.args or ()), options.cwd, options.title, variables)
    return host.terminal((await ctx.services.terminals.create(ctx.directory, project.id, new)).info)


@operation("pty.get")
async def get(ctx: Ctx, path: PtyPath) -> object:
    """Return a terminal."""
    return host.terminal(ctx.services.terminals.get(ctx.directory, path.ptyID).info)


@operation("pty.update")
async def update(ctx: Ctx, path: PtyPath, body: TerminalUpdate) -> object:
    """Change title and size."""
    target = ctx.services.terminals.get(ctx.directory, path.ptyID)
    size = None if body.size is None else (body.size.rows, body.size.cols)
    ctx.services.terminals.update(target, title=body.title, size=size)
    return host.terminal(target.info)


@operation("pty.remove")
async def remove(ctx: Ctx, path: PtyPath) -> object:
    """End a terminal."""
    await ctx.services.terminals.remove(ctx.services.terminals.get(ctx.directory, path.ptyID))
    return True


@operation("pty.connectToken")
async def token(ctx: Ctx, path: PtyPath) -> object:
    """Issue a ticket for one connection."""
    if TICKET_HEADER not in ctx.request.headers:
        raise PtyForbidden("Invalid PTY connect token request")
    target = ctx.services.terminals.get(ctx.directory, path.ptyID)
    return {"ticket": ctx.services.terminals.ticket(target, token_of(ctx.request)), "expires_in": TICKET_S}


@operation("pty.connect")
async def connect(ctx: Ctx, path: PtyPath, query: ConnectQuery) -> web.StreamResponse:
    """Connect to a terminal over a WebSocket."""
    if not web.WebSocketResponse().can_prepare(ctx.request):
        raise InvalidRequest("This is a WebSocket: connect to it with an upgrade.", "Headers")
    # A client without the password needs a ticket. A ticket is checked even if the client has the password.
    needs_ticket = query.ticket is not None or not is_authorized(ctx.request)
    token_id = (
        ctx.services.terminals.redeem(ctx.directory, path.ptyID, query.ticket or "") if needs_ticket else token_of(ctx.request)
    )
    if token_id is None or not may_use(ctx.request, token_id):
        raise PtyForbidden("The ticket is unknown, used or too old. Ask for a new one with POST /pty/{ptyID}/connect-token.")
    cursor = int(query.cursor) if re.fullmatch(r"-?\d{1,15}", query.cursor) else 0
    return await terminal.serve(ctx.request, ctx.services.terminals.get(ctx.directory, path.ptyID), cursor, token_id)
