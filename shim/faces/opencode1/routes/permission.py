"""Lists and answers permission requests and questions. Source: `docs/wire.md` section 5; recordings `perm_*`."""

from __future__ import annotations

from shim.faces.opencode1 import read
from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx


@operation("permission.list")
async def list_(ctx: Ctx, query: requests.AskQuery) -> object:
    """List open requests, oldest first."""
    await ctx.services.sessions.others.read_requests()
    requests = ctx.services.sessions.requests.permissions(ctx.directory if query.directory else None)
    return [read.request(request, session.id) for session, request in requests if ctx.sees(session.id)]


@operation("permission.reply")
async def reply(ctx: Ctx, path: requests.RequestPath, body: requests.PermissionReplyBody) -> object:
    """Answer a request. 404 if it is unknown or was answered already."""
    ctx.services.sessions.requests.reply_permission(path.requestID, body.reply, body.message)
    return True


@operation("permission.respond")
async def respond(ctx: Ctx, path: requests.PermissionPath, body: requests.PermissionResponseBody) -> object:
    """Answer a request on the older endpoint, which the web UI and SDK v1 use."""
    ctx.services.sessions.index.record(path.sessionID)
    ctx.services.sessions.requests.reply_permission(path.permissionID, body.response)
    return True


# --- questions -------------------------------------------------------------------------------------------


@operation("question.list")
async def list_questions(ctx: Ctx, query: requests.AskQuery) -> object:
    """List open questions, oldest first."""
    await ctx.services.sessions.others.read_requests()
    requests = ctx.services.sessions.requests.questions(ctx.directory if query.directory else None)
    return [read.request(request, session.id) for session, request in requests if ctx.sees(session.id)]


@operation("question.reply")
async def reply_question(ctx: Ctx, path: requests.RequestPath, body: requests.QuestionReplyBody) -> object:
    """Answer a question. 404 if it is unknown or was answered already."""
    ctx.services.sessions.requests.reply_question(path.requestID, body.answers)
    return True


@operation("question.reject")
async def reject(ctx: Ctx, path: requests.RequestPath) -> object:
    """Refuse to answer a question, and tell the agent."""
    ctx.services.sessions.requests.reply_question(path.requestID, None)
    return True
