"""Shares sessions as pages of this server. Nothing leaves the machine, and OpenCode's service is not used.

Each view renders the page again, so it follows the session. Its URL has an unguessable name, and needs the password if one is
set. Source for the operations: recording `session_ops`; `Session.share` of the API document.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from pydantic import BaseModel

from shim.faces.opencode1 import read
from shim.faces.opencode1.endpoint import extra, operation
from shim.faces.opencode1.routes.session import SessionPath, share_url
from shim.host.files.roots import visible_sessions
from shim.http.operation import Ctx
from shim.lib.errors import InvalidRequest, ShareNotFound
from universal.lib.jsonvalue import JsonObject, arr, obj, text
from universal.session.values import SessionRecord

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import MessageWithParts


# --- the page --------------------------------------------------------------------------------------------

# Renders a session as one read-only web page. It escapes everything. Pure.
#
# In: OpenCode's `{info, parts}` messages. Out: HTML. The page shows pictures whose bytes are in the message (data URLs). Its one
# script is the inspector's (`shim/inspector/share.js`): it makes elements of the texts' Markdown, never HTML. A subagent's
# session is folded into the card of its tool call.

if TYPE_CHECKING:
    from typing import TypeAlias

    from shim.faces.opencode1._generated.types import FilePart, MessageWithParts, Part, Session, ToolPart

    Children: TypeAlias = Mapping[str, Sequence[MessageWithParts]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
)
"""The page's Content-Security-Policy. If an escape ever failed, still nothing of the session would run or load."""
SCRIPT = '<script type="module" src="../inspector/files/share.js"></script>'
REFRESH_S = 5
"""Seconds between reloads of a busy session's page, for who follows it. A page that reloads unasked disturbs its reader."""
SHOWN_CHARS = 20_000
"""Maximum characters of one output. The page says how many more there are."""
DEEPEST = 4
"""Maximum depth of nested subagents on the page."""
STYLE = resources.files("shim.faces.opencode1").joinpath("share.css").read_text()

_MARKS = {"completed": "☑", "in_progress": "◐", "cancelled": "☒"}
_DATA_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+\Z")


def page(info: Session, messages: Sequence[MessageWithParts], children: Children, *, busy: bool, follows: bool = False) -> str:
    """Render a session's page.

    `children`: messages of its subagents' sessions, by session id; `follows`: the reader has asked for reloads while it is busy.
    """
    title = escape(text(info.get("title"), "Session"))
    refresh = f'<meta http-equiv="refresh" content="{REFRESH_S}">' if busy and follows else ""
    model = obj(info.get("model"))
    about = [f"{model['providerID']}/{model['id']}"] if model.get("providerID") and model.get("id") else []
    about += [_time(obj(info.get("time")).get("created")), "still at work" if busy else ""]
    switch = ' · <a href="?">Stop following</a>' if follows else ' · <a href="?follow">Follow</a>'
    body = "\n".join(_message(m, children, 0) for m in messages)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>{refresh}'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f"<style>{STYLE}</style>{SCRIPT}</head><body><main><header><h1>{title}</h1>"
        f'<div class="about">{escape(" · ".join(a for a in about if a))}{switch if busy else ""}</div></header>\n'
        f'<h2 class="hidden">Conversation</h2>'
        f"{body or '<p class=about>Nothing was said yet.</p>'}\n</main></body></html>\n"
    )


def _time(ms: Any) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M} UTC" if isinstance(ms, (int, float)) else ""


def _message(message: MessageWithParts, children: Children, depth: int) -> str:
    info, parts = message["info"], message["parts"]
    html = "\n".join(filter(None, (_part(p, children, depth) for p in parts)))
    error = obj(info.get("error"))
    if error:
        reason = text(obj(error.get("data")).get("message")) or text(error.get("name"))
        html += f'<div class="error">{escape(reason)}</div>'
    if info["role"] != "user":
        return f'<section class="assistant">{html}</section>' if html else ""
    if any(p["type"] == "compaction" for p in parts):
        return '<div class="rule">the conversation was compacted</div>'
    return f'<section class="user">{html}</section>' if html else ""


def _part(part: Part, children: Children, depth: int) -> str:
    match part["type"]:
        case "text":
            source = "" if part.get("synthetic") else text(part.get("text")).strip()
            return f'<div class="text prose">{escape(source)}</div>' if source else ""
        case "reasoning":
            thought = text(part.get("text")).strip()
            html = f'<div class="text">{escape(thought)}</div>'
            return f'<details class="thought"><summary>Thinking</summary>{html}</details>' if thought else ""
        case "file":
            return _file(part)
        case "tool":
            return _tool(part, children, depth)
        case "subtask":
            return f'<div class="text"><b>@{escape(text(part.get("agent")))}</b> {escape(text(part.get("prompt")))}</div>'
        case _:
            return ""


def _file(part: FilePart) -> str:
    name, url = escape(text(part.get("filename")) or "file"), text(part.get("url"))
    if _DATA_IMAGE.match(url):
        return f'<div><img src="{escape(url)}" alt="{name}"></div>'
    return f'<div class="about">file: {name}</div>'


def _tool(part: ToolPart, children: Children, depth: int) -> str:
    state = obj(part.get("state"))
    arguments, meta = obj(state.get("input")), obj(state.get("metadata"))
    tool, title = text(part.get("tool")), text(state.get("title")) or _about(arguments)
    failed = state.get("status") == "error"
    mark = ' <span class="error">✗</span>' if failed else "" if state.get("status") == "completed" else " …"
    body, opened = _tool_body(tool, arguments, state, meta)
    if failed:
        body += f'<div class="error">{escape(_cut(text(state.get("error"))))}</div>'
    for file in map(obj, arr(state.get("attachments"))):  # an imported call may have some in any state
        body += _file(cast("FilePart", file))
    child = children.get(text(meta.get("sessionId")) or text(meta.get("sessionID")))
    if child and depth < DEEPEST:
        inner = "\n".join(_message(m, children, depth + 1) for m in child)
        body += f"<details><summary>What the subagent did</summary>{inner}</details>"
    attribute = " open" if opened else ""
    return f"<details{attribute}><summary><b>{escape(tool)}</b> {escape(title)}{mark}</summary>{body}</details>"


def _about(arguments: JsonObject) -> str:
    return next(
        (text(arguments[k]) for k in ("description", "command", "filePath", "pattern", "url", "query") if text(arguments.get(k))),
        "",
    )


def _tool_body(tool: str, arguments: JsonObject, state: JsonObject, meta: JsonObject) -> tuple[str, bool]:
    """Render a call: (HTML, whether it is unfolded). Diffs and todo lists are, since people look for them."""
    diffs = [text(meta.get("diff"))] if text(meta.get("diff")) else []
    diffs = diffs or [text(obj(f).get("diff")) or text(obj(f).get("patch")) for f in arr(meta.get("files"))]
    if any(diffs):
        return "".join(_diff(d) for d in diffs if d), True
    todos = [obj(t) for t in arr(arguments.get("todos"))]
    if tool == "todowrite" and todos:
        rows = "".join(f"<li>{_MARKS.get(text(t.get('status')), '☐')} {escape(text(t.get('content')))}</li>" for t in todos)
        return f'<ul class="todo">{rows}</ul>', True
    output = text(state.get("output")) or text(meta.get("output"))
    if tool == "bash":
        return f'<pre class="wrap">$ {escape(text(arguments.get("command")))}\n{escape(_cut(output))}</pre>', False
    if tool == "write" and text(arguments.get("content")):
        return f'<pre class="wrap">{escape(_cut(text(arguments["content"])))}</pre>', False
    html = f'<pre class="wrap">{escape(_cut(json.dumps(arguments, ensure_ascii=False, indent=1)))}</pre>' if arguments else ""
    return html + (f'<pre class="wrap">{escape(_cut(output))}</pre>' if output else ""), False


def _cut(output: str) -> str:
    excess = len(output) - SHOWN_CHARS
    return output if excess <= 0 else f"{output[:SHOWN_CHARS]}\n… {excess} more characters"


def _diff(diff: str) -> str:
    rows: list[str] = []
    in_hunk = False
    for line in _cut(diff).splitlines():
        if not in_hunk and line.startswith(("Index:", "=====")):  # the file's name is the card's title
            continue
        in_hunk = in_hunk or line.startswith("@@")
        kind = {"+": "a", "-": "d", "@": "h"}.get(line[:1], "c") if in_hunk else "h"
        rows.append(f'<span class="{kind}">{escape(line) or " "}</span>')
    return f'<pre class="diff">{"".join(rows)}</pre>'


# --- operations ------------------------------------------------------------------------------------------

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
    shared = await visible_sessions(sessions.index.records(), ctx.roots)
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
