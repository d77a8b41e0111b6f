"""Routes of undo: stage it, then clear or commit it. Source: recording `revert` of v2-20260717."""

from __future__ import annotations

from pydantic import BaseModel

from shim.faces.opencode2 import read
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.routes.session import first_id
from shim.faces.opencode2.routes.sessions import SessionPath, read_session
from shim.http.operation import NO_CONTENT, Ctx
from shim.lib.errors import SessionBusy
from shim.sessions.undo import undo


class StageBody(BaseModel):
    """The first message to undo. `files`: restore the files too, unless it is false, as in OpenCode."""

    messageID: str
    files: bool = True


@operation("session.revert.stage")
async def stage(ctx: Ctx, path: SessionPath, body: StageBody) -> object:
    """Hide the messages from that one on. The next prompt, or `commit`, removes them."""
    message_id = await first_id(ctx, path.sessionID, body.messageID)
    await undo.revert(ctx.services.sessions, path.sessionID, message_id, None, files=body.files)
    await ctx.services.store.flush(path.sessionID)
    return {"data": read.revert(await read_session(ctx, path.sessionID))}


@operation("session.revert.clear")
async def clear(ctx: Ctx, path: SessionPath) -> object:
    """Take back a staged undo. Succeeds also if nothing is staged."""
    await undo.unrevert(ctx.services.sessions, path.sessionID)
    await ctx.services.store.flush(path.sessionID)
    return NO_CONTENT


@operation("session.revert.commit")
async def commit(ctx: Ctx, path: SessionPath) -> object:
    """Remove the hidden messages for good, also from the agent's memory. Succeeds also if nothing is staged."""
    actor = await ctx.services.sessions.actor(path.sessionID)
    if actor.main.machine.busy:
        raise SessionBusy(path.sessionID)
    await undo.settle(ctx.services.sessions, actor)
    await ctx.services.store.flush(path.sessionID)
    return NO_CONTENT
