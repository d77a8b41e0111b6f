"""Routes that only builds before 2.0 have: health, and questions, which are forms in `v2_0` and `v2_july`.

Clients of those builds call `/api/health` first, and so does the web UI of 1.18, which looks for its protocol. The server notes
who calls it (`negotiation`): a browser is that web UI, every other client is the build of 17 July. Clients of 1.18 are recognised
by their User-Agent and get the answer of their document, without a `pid`. That key would turn the web UI to its second protocol,
if `/global/health` has not answered before.
"""

from __future__ import annotations

import os

from pydantic import BaseModel

from shim.faces.opencode2 import asks
from shim.faces.opencode2._generated.operations import OPENCODE2_VERSION
from shim.faces.opencode2.dialects import PREVIEW, V2_0, V2_JULY, WEB_UI
from shim.faces.opencode2.endpoint import preview_operation as operation
from shim.faces.opencode2.envelope import with_project
from shim.faces.opencode2.negotiation import BROWSER, dialect_of, note
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.faces.opencode2.routes.sessions import SessionPath, need
from shim.http.operation import NO_CONTENT, Ctx
from universal.session.model import QuestionRequest, Session


@operation("v2.health.get")
async def health(ctx: Ctx) -> object:
    """The server is healthy. The answer's keys depend on the client's build."""
    if dialect_of(ctx.request) is PREVIEW:
        return {"healthy": True}
    is_browser = ctx.request.headers.get("User-Agent", "").startswith(BROWSER)
    note(ctx.request, (WEB_UI if is_browser else V2_JULY).name)
    return {"healthy": True, "version": OPENCODE2_VERSION, "pid": os.getpid()}


# --- questions ------------------------------------------------------------------------------------------------


class QuestionPath(SessionPath):
    """`{requestID}`."""

    requestID: str


class AnswerBody(BaseModel):
    """Chosen labels (or typed texts), a list for each question."""

    answers: list[list[str]]


@operation("v2.question.request.list")
async def questions(ctx: Ctx) -> object:
    """Open questions of the directory, oldest first."""
    await ctx.services.sessions.others.read_requests()
    return with_project(await locate_answer(ctx, _questions(ctx, ctx.services.sessions.requests.questions(ctx.directory))))


@operation("v2.session.question.list")
async def questions_of(ctx: Ctx, path: SessionPath) -> object:
    """Open questions of a session."""
    need(ctx, path.sessionID)
    await ctx.services.sessions.others.read_requests()
    pairs = [pair for pair in ctx.services.sessions.requests.questions(None) if pair[0].id == path.sessionID]
    return {"data": _questions(ctx, pairs)}


def _questions(ctx: Ctx, pairs: list[tuple[Session, QuestionRequest]]) -> list[asks.PreviewQuestions]:
    """Questions as the client's dialect has them. Clients that have forms get them there, and not twice."""
    if dialect_of(ctx.request) in (V2_0, V2_JULY):
        return []
    return [asks.question(request, session.id) for session, request in pairs]


@operation("v2.session.question.reply")
async def answer(ctx: Ctx, path: QuestionPath, body: AnswerBody) -> object:
    """Answer one. 404 when it is unknown or was answered already."""
    _settle(ctx, path, body.answers)
    return NO_CONTENT


@operation("v2.session.question.reject")
async def reject(ctx: Ctx, path: QuestionPath) -> object:
    """Refuse to answer; the agent is told."""
    _settle(ctx, path, None)
    return NO_CONTENT


def _settle(ctx: Ctx, path: QuestionPath, answers: list[list[str]] | None) -> None:
    need(ctx, path.sessionID)
    ctx.services.sessions.requests.reply_question(path.requestID, answers)
