"""The page of an ask for a phone, and the answers to it by link (`shim.telemetry.reply_links`)."""

from __future__ import annotations

import asyncio
from html import escape

from aiohttp import web
from pydantic import BaseModel

from shim.faces.opencode1.endpoint import extra
from shim.http.access import access_of
from shim.http.operation import Ctx
from shim.lib.errors import NotFound
from shim.telemetry.reply_links import PATH, ReplyLink
from universal.session.values import PermissionRequest, QuestionRequest

POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "Referrer-Policy": "same-origin"}
STYLE = """
body { font: 17px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 34rem; padding: 1.2rem; color-scheme: light dark }
h1 { font-size: 1.2rem } p { opacity: .7; overflow-wrap: anywhere }
pre { border: 1px solid #8888; border-radius: .5rem; padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere }
button { width: 100%; font: inherit; padding: .9rem; margin: .3rem 0; border: 1px solid #8888; border-radius: .5rem }
form:first-of-type button { background: #1a5fb4; color: #fff }
"""
GONE = "This was answered already, or its time is over. Nothing was changed."
SHOWN_CHARS = 4_000


class CodePath(BaseModel):
    """`{code}` of a link."""

    code: str


class AnswerPath(CodePath):
    """`{code}` of a link, and the `{answer}`."""

    answer: str


@extra("reply.page", "GET", PATH + "{code}")
async def show(ctx: Ctx, path: CodePath) -> web.Response:
    """Show what is asked, with a button for each answer."""
    link = _find(ctx, path.code)
    return _refusal() if link is None else _ask(ctx, link, path.code)


@extra("reply.preview", "GET", PATH + "{code}/{answer}")
async def preview(ctx: Ctx, path: AnswerPath) -> web.Response:
    """Lead to the page: a preview of a link in a chat must not answer."""
    return _refusal() if _find(ctx, path.code) is None else web.Response(status=303, headers={"Location": f"../{path.code}"})


@extra("reply.answer", "POST", PATH + "{code}/{answer}")
async def answer(ctx: Ctx, path: AnswerPath) -> web.Response:
    """Answer, once."""
    link = _find(ctx, path.code)
    label = link.answers.get(path.answer) if link is not None else None
    if link is None or label is None:
        return _refusal()
    ctx.services.reply_links.spend(path.code)
    requests = ctx.services.sessions.requests
    try:
        if link.is_permission:
            requests.reply_permission(link.request_id, path.answer)
        else:
            requests.reply_question(link.request_id, [[label]])
    except NotFound:
        return _refusal()
    return _page(f"<h1>{escape(label)}</h1><p>The agent has your answer.</p>")


def _find(ctx: Ctx, code: str) -> ReplyLink | None:
    """The link of a code. Raises TooManyLogins for an address that has tried too many wrong ones."""
    access, now_s = access_of(ctx.request), asyncio.get_running_loop().time()
    access.check_tries(ctx.request, now_s)
    link = ctx.services.reply_links.find(code)
    if link is None:
        access.note_wrong(ctx.request, code, now_s)
    return link


def _ask(ctx: Ctx, link: ReplyLink, code: str) -> web.Response:
    requests = ctx.services.sessions.requests
    open_ones = requests.permissions() if link.is_permission else requests.questions()
    session, request = next(((session, one) for session, one in open_ones if one.id == link.request_id), (None, None))
    if session is None or request is None:
        return _refusal()
    buttons = "".join(
        f'<form method="post" action="{code}/{escape(answer)}"><button>{escape(label)}</button></form>'
        for answer, label in link.answers.items()
    )
    where = f"<p>{escape(session.record.title)}<br>{escape(session.record.directory)}</p>"
    return _page(f"{_words(request)}{buttons or '<p>Answer it in a client: it has several parts.</p>'}{where}")


def _words(request: PermissionRequest | QuestionRequest) -> str:
    if isinstance(request, PermissionRequest):
        title, words = f"May the agent use {request.access.permission}?", "\n".join(request.access.patterns)
    else:
        title, words = "The agent asks", "\n\n".join(question.question for question in request.questions)
    return f"<h1>{escape(title)}</h1><pre>{escape(words[:SHOWN_CHARS])}</pre>"


def _refusal() -> web.Response:
    return _page(f"<h1>Over</h1><p>{GONE}</p>", status=410)


def _page(body: str, *, status: int = 200) -> web.Response:
    html = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>opencode-shim</title><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><meta name="robots" content="noindex"><style>{STYLE}</style>{body}</html>'
    )
    return web.Response(text=html, status=status, content_type="text/html", headers=HEADERS)
