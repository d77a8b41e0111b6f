"""Shares sessions as pages of this server. Nothing leaves the machine, and OpenCode's service is not used.

Each view renders the page again, so it follows the session. Its URL has an unguessable name, and needs the password if one is
set. Source for the operations: recording `session_ops`; `Session.share` of the API document.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from aiohttp import web
from pydantic import BaseModel

from shim.faces.opencode1 import read
from shim.faces.opencode1.endpoint import extra, operation
from shim.faces.opencode1.routes.session import SessionPath, share_url
from shim.faces.opencode1.share_page import DEEPEST, POLICY, page
from shim.host.files.roots import visible_sessions
from shim.http.operation import Ctx
from shim.lib.errors import InvalidRequest, ShareNotFound
from universal.session.model import SessionRecord

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import MessageWithParts

HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@operation("session.share")
async def share(ctx: Ctx, path: SessionPath) -> object:
    """Share a session, and return it with `share.url`. A shared session keeps its URL."""
    record = ctx.services.sessions.index.record(path.sessionID)
    if record.share is not None:
        return read.session(record)
    if record.parent_id is not None:
        raise InvalidRequest("This is a subagent's session: share its parent, whose page has it in it.")
    config = await ctx.services.config.fresh(record.directory)
    if config.values.get("share") == "disabled":
        raise InvalidRequest('Sharing is switched off: "share": "disabled" in opencode.json.')
    record = await ctx.services.sessions.patch(path.sessionID, share={"url": share_url(ctx)})
    await ctx.services.store.flush(path.sessionID)
    return read.session(record)


@operation("session.unshare")
async def unshare(ctx: Ctx, path: SessionPath) -> object:
    """Stop sharing a session, which removes its page. An unshared session is no error."""
    record = ctx.services.sessions.index.record(path.sessionID)
    if record.share is None:
        return read.session(record)
    record = await ctx.services.sessions.patch(path.sessionID, share=None)
    await ctx.services.store.flush(path.sessionID)
    return read.session(record)


class SharePath(BaseModel):
    """`{name}`: the last part of a share's URL."""

    name: str


@extra("share.page", "GET", "/share/{name}")
async def show(ctx: Ctx, path: SharePath) -> web.Response:
    """Return the page of a shared session. Raises ShareNotFound."""
    sessions = ctx.services.sessions
    shared = await visible_sessions(sessions.index.records(), ctx.services.settings.roots)
    record = next((candidate for candidate in shared if _is_at(candidate, path.name)), None)
    if record is None:
        raise ShareNotFound
    session = await sessions.session(record.id)
    document = read.export(session)
    children: dict[str, list[MessageWithParts]] = {}
    await _below(ctx, record.id, children, DEEPEST)
    html = await asyncio.to_thread(
        page,
        document["info"],
        document["messages"],
        children,
        busy=session.is_busy,
        follows="follow" in ctx.request.query,
    )
    return web.Response(text=html, content_type="text/html", headers=HEADERS)


def _is_at(record: SessionRecord, name: str) -> bool:
    url = str((record.share or {}).get("url", ""))
    return secrets.compare_digest(url.rpartition("/")[2].encode(), name.encode("utf-8", "replace")) if url else False


async def _below(ctx: Ctx, session_id: str, messages: dict[str, list[MessageWithParts]], depth: int) -> None:
    for child in ctx.services.sessions.index.children(session_id):
        if child.id in messages:  # an imported session may claim to be its own descendant
            continue
        messages[child.id] = read.export(await ctx.services.sessions.session(child.id))["messages"]
        if depth:
            await _below(ctx, child.id, messages, depth - 1)
