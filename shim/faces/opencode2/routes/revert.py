"""Undo, in three steps: staged, then taken back or made for good. Source: recording `revert` of v2-20260717."""

from __future__ import annotations

from pydantic import BaseModel

from shim.errors import SessionBusy
from shim.faces.opencode2 import read
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.routes.session import first_id
from shim.faces.opencode2.routes.sessions import SessionPath, read_session
from shim.http.operation import NO_CONTENT, Ctx
from shim.sessions.undo import undo


class StageBody(BaseModel):
    """From which message on. `files`: they are put back to what they were before it, unless it is false, as by native."""

    messageID: str
    files: bool = True


@operation("session.revert.stage")
async def stage(ctx: Ctx, path: SessionPath, body: StageBody) -> object:
    """What comes from that message on is hidden, until the next prompt, or `commit`, removes it."""
    message_id = await first_id(ctx, path.sessionID, body.messageID)
    await undo.revert(ctx.services.sessions, path.sessionID, message_id, None, files=body.files)
    await ctx.services.store.flush()
    return {"data": read.revert(await read_session(ctx, path.sessionID))}


@operation("session.revert.clear")
async def clear(ctx: Ctx, path: SessionPath) -> object:
    """Takes the undo back. Nothing to take back is fine."""
    await undo.unrevert(ctx.services.sessions, path.sessionID)
    await ctx.services.store.flush()
    return NO_CONTENT


@operation("session.revert.commit")
async def commit(ctx: Ctx, path: SessionPath) -> object:
    """What is staged is gone for good, from the session and from the agent's own memory. Nothing staged is fine."""
    actor = await ctx.services.sessions.actor(path.sessionID)
    if actor.main.machine.busy:
        raise SessionBusy(path.sessionID)
    await undo.settle(ctx.services.sessions, actor)
    await ctx.services.store.flush()
    return NO_CONTENT
