"""Lists and answers permission requests and questions. Source: `docs/wire.md` section 5; recordings `perm_*`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from shim.faces.opencode1 import read
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.routes.session import SessionPath
from shim.http.operation import Ctx


class RequestPath(BaseModel):
    """`{requestID}`."""

    requestID: str


class ReplyBody(BaseModel):
    """A user's answer. `message` tells the agent the reason of a rejection."""

    reply: Literal["once", "always", "reject"]
    message: str | None = None


class ListQuery(BaseModel):
    """A filter by directory, if the query names one."""

    directory: str | None = None


@operation("permission.list")
async def list_(ctx: Ctx, query: ListQuery) -> object:
    """List open requests, oldest first."""
    await ctx.services.sessions.others.read_requests()
    requests = ctx.services.sessions.requests.permissions(ctx.directory if query.directory else None)
    return [read.request(request, session.id) for session, request in requests]


@operation("permission.reply")
async def reply(ctx: Ctx, path: RequestPath, body: ReplyBody) -> object:
    """Answer a request. 404 if it is unknown or was answered already."""
    ctx.services.sessions.requests.reply_permission(path.requestID, body.reply, body.message)
    return True


class PermissionPath(SessionPath):
    """`{sessionID}` and `{permissionID}`."""

    permissionID: str


class ResponseBody(BaseModel):
    """The older endpoint's body."""

    response: Literal["once", "always", "reject"]


@operation("permission.respond")
async def respond(ctx: Ctx, path: PermissionPath, body: ResponseBody) -> object:
    """Answer a request on the older endpoint, which the web UI and SDK v1 use."""
    ctx.services.sessions.index.record(path.sessionID)
    ctx.services.sessions.requests.reply_permission(path.permissionID, body.response)
    return True


# --- questions -------------------------------------------------------------------------------------------


@operation("question.list")
async def list_questions(ctx: Ctx, query: ListQuery) -> object:
    """List open questions, oldest first."""
    await ctx.services.sessions.others.read_requests()
    requests = ctx.services.sessions.requests.questions(ctx.directory if query.directory else None)
    return [read.request(request, session.id) for session, request in requests]


class AnswerBody(BaseModel):
    """The chosen labels or typed texts, one list per question."""

    answers: list[list[str]]


@operation("question.reply")
async def reply_question(ctx: Ctx, path: RequestPath, body: AnswerBody) -> object:
    """Answer a question. 404 if it is unknown or was answered already."""
    ctx.services.sessions.requests.reply_question(path.requestID, body.answers)
    return True


@operation("question.reject")
async def reject(ctx: Ctx, path: RequestPath) -> object:
    """Refuse to answer a question, and tell the agent."""
    ctx.services.sessions.requests.reply_question(path.requestID, None)
    return True
