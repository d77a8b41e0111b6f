"""Undo and redo. Source: a live OpenCode 1.18.33 (docs/undo.md); `docs/wire.md` section 6."""

from __future__ import annotations

from pydantic import BaseModel

from shim.faces.opencode1 import read
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.routes.session import SessionPath
from shim.http.operation import Ctx
from shim.sessions.undo import undo


class RevertBody(BaseModel):
    """The message to undo from; with `partID`, the part of it to undo from."""

    messageID: str
    partID: str | None = None


@operation("session.revert")
async def revert(ctx: Ctx, path: SessionPath, body: RevertBody) -> object:
    """Restore files and hide the undone messages, which the next prompt removes."""
    record = await undo.revert(ctx.services.sessions, path.sessionID, body.messageID, body.partID)
    await ctx.services.store.flush(path.sessionID)
    return read.session(record)


@operation("session.unrevert")
async def unrevert(ctx: Ctx, path: SessionPath) -> object:
    """Redo, until the next prompt."""
    record = await undo.unrevert(ctx.services.sessions, path.sessionID)
    await ctx.services.store.flush(path.sessionID)
    return read.session(record)
