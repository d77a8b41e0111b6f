"""Lists and answers the agent's questions. Source: `docs/wire.md` section 5; recordings `question_*`."""

from __future__ import annotations

from pydantic import BaseModel

from shim.faces.opencode1 import read
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.routes.permission import ListQuery, RequestPath
from shim.http.operation import Ctx


@operation("question.list")
async def list_(ctx: Ctx, query: ListQuery) -> object:
    """List open questions, oldest first."""
    await ctx.services.sessions.others.read_requests()
    requests = ctx.services.sessions.requests.questions(ctx.directory if query.directory else None)
    return [read.request(request, session.id) for session, request in requests]


class AnswerBody(BaseModel):
    """The chosen labels or typed texts, one list per question."""

    answers: list[list[str]]


@operation("question.reply")
async def reply(ctx: Ctx, path: RequestPath, body: AnswerBody) -> object:
    """Answer a question. 404 if it is unknown or was answered already."""
    ctx.services.sessions.requests.reply_question(path.requestID, body.answers)
    return True


@operation("question.reject")
async def reject(ctx: Ctx, path: RequestPath) -> object:
    """Refuse to answer a question, and tell the agent."""
    ctx.services.sessions.requests.reply_question(path.requestID, None)
    return True
