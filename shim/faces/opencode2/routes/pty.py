"""Routes of terminals (`shim.host.terminals.terminal_manager`, `shim.http.terminal`).

Paths, bodies and queries are those of OpenCode 1. `shim.http.access` decides who may connect: pages of other origins may not, and
a client without the password needs a ticket.
"""

from __future__ import annotations

import re
from pathlib import Path

from aiohttp import web

from shim.faces.opencode2 import host
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.host.files.roots import require
from shim.host.terminals.terminal_manager import TICKET_S, NewTerminal
from shim.http import terminal
from shim.http.access import is_authorized, may_use, token_of
from shim.http.operation import NO_CONTENT, Ctx
from shim.http.shapes import ConnectQuery, PtyPath, TerminalBody, TerminalUpdate
from shim.lib.errors import Forbidden, InvalidRequest, PtyNotFound

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
    await require(str(Path(ctx.directory, body.cwd or ".")), ctx.services.settings.roots)
    project = await ctx.services.projects.identity(ctx.directory)
    new = NewTerminal(body.command, tuple(body.args or ()), body.cwd, body.title, body.env or {})
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
async def remove(ctx: Ctx, path: PtyPath) -> object:
    """End a terminal."""
    await ctx.services.terminals.remove(ctx.services.terminals.get(ctx.directory, path.ptyID))
    return NO_CONTENT


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
