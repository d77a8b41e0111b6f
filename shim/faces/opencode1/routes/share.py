"""Shared sessions: a page of this server, for whoever can reach it. Nothing leaves the machine; OpenCode's service is not used.

The page is made at each view, so it goes on as the session does. Its address has an unguessable name; with a password it is
behind that too. Source for the operations: recording `session_ops`; the document's Session.share.
"""

from __future__ import annotations

import asyncio
import secrets

from aiohttp import web
from pydantic import BaseModel

from shim.errors import InvalidRequest, ShareNotFound
from shim.faces.opencode1 import read
from shim.faces.opencode1.endpoint import extra, operation
from shim.faces.opencode1.routes.session import SessionPath
from shim.faces.opencode1.share_page import DEEPEST, POLICY, page
from shim.host.roots import visible
from shim.http.operation import Ctx
from universal.jsonvalue import JsonObject
from universal.session.model import SessionRecord

NAME_BYTES = 12
"""Of randomness in an address."""
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@operation("session.share")
async def share(ctx: Ctx, path: SessionPath) -> object:
    """The session with `share.url`; one that is shared keeps its address."""
    record = ctx.services.sessions.record(path.sessionID)
    if record.share is not None:
        return read.session(record)
    if record.parent_id is not None:
        raise InvalidRequest("This is a subagent's session: share its parent, whose page has it in it.")
    config = await ctx.services.config.fresh(record.directory)
    if config.values.get("share") == "disabled":
        raise InvalidRequest('Sharing is switched off: "share": "disabled" in opencode.json.')
    request = ctx.request
    base = f"{request.scheme}://{request.host}{ctx.services.settings.base_path}"
    url = f"{base}/share/{secrets.token_urlsafe(NAME_BYTES)}"
    record = await ctx.services.sessions.patch(path.sessionID, share={"url": url})
    await ctx.services.store.flush()
    return read.session(record)


@operation("session.unshare")
async def unshare(ctx: Ctx, path: SessionPath) -> object:
    """The session without; its page is gone. One that is not shared is fine too."""
    record = ctx.services.sessions.record(path.sessionID)
    if record.share is None:
        return read.session(record)
    record = await ctx.services.sessions.patch(path.sessionID, share=None)
    await ctx.services.store.flush()
    return read.session(record)


class SharePath(BaseModel):
    """`{name}`: the last part of a share's address."""

    name: str


@extra("share.page", "GET", "/share/{name}")
async def show(ctx: Ctx, path: SharePath) -> web.Response:
    """The page. Raises NotFound for what is not shared, or not any more."""
    sessions = ctx.services.sessions
    shared = visible(sessions.records(), ctx.services.settings.roots)
    record = next((one for one in shared if _is_at(one, path.name)), None)
    if record is None:
        raise ShareNotFound
    session = await sessions.session(record.id)
    document = read.export(session)
    children: dict[str, list[JsonObject]] = {}
    await _below(ctx, record.id, children, DEEPEST)
    html = await asyncio.to_thread(page, document["info"], document["messages"], children, busy=session.is_busy)
    return web.Response(text=html, content_type="text/html", headers=HEADERS)


def _is_at(record: SessionRecord, name: str) -> bool:
    url = str((record.share or {}).get("url", ""))
    return secrets.compare_digest(url.rpartition("/")[2].encode(), name.encode("utf-8", "replace")) if url else False


async def _below(ctx: Ctx, session_id: str, found: dict[str, list[JsonObject]], depth: int) -> None:
    for child in ctx.services.sessions.children(session_id):
        if child.id in found:  # what is imported may say that it is below itself
            continue
        found[child.id] = read.export(await ctx.services.sessions.session(child.id))["messages"]
        if depth:
            await _below(ctx, child.id, found, depth - 1)
