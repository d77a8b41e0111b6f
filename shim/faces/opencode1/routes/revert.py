"""Undo and redo. Source: a live OpenCode 1.18.33 driven over HTTP (docs/undo.md); `docs/wire.md` section 6."""

from __future__ import annotations

from pydantic import BaseModel

from shim.faces.opencode1 import read
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.routes.session import SessionPath
from shim.http.operation import Ctx
from shim.sessions.undo import undo


class RevertBody(BaseModel):
    """From which message on; with `partID`, from that part of it on."""

    messageID: str
    partID: str | None = None


@operation("session.revert")
async def revert(ctx: Ctx, path: SessionPath, body: RevertBody) -> object:
    """Files go back to what they were; what is undone is hidden, and the next prompt removes it."""
    record = await undo.revert(ctx.services.sessions, path.sessionID, body.messageID, body.partID)
    await ctx.services.store.flush()
    return read.session(record)


@operation("session.unrevert")
async def unrevert(ctx: Ctx, path: SessionPath) -> object:
    """Takes the undo back, as long as no prompt has come."""
    record = await undo.unrevert(ctx.services.sessions, path.sessionID)
    await ctx.services.store.flush()
    return read.session(record)
