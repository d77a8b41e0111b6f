"""Accepts messages for a session, and answers to its agent's requests. Source: the universal API's document."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from shim.faces.v1.errors import PermissionNotOpen, QuestionNotOpen
from shim.faces.v1.models import MessageAttachment, MessageRequest, PermissionReplyRequest, QuestionReplyRequest
from shim.faces.v1.routes.endpoint import universal, v1
from shim.faces.v1.routes.events import encoder
from shim.faces.v1.routes.sessions import SessionPath
from shim.http.log_stream import stream
from shim.http.operation import Ctx
from shim.http.services import need_room
from shim.lib.errors import InvalidRequest, SessionTerminated
from shim.sessions.permissions.unattended_policy import UNATTENDED_KEY, terms_of_headers, unattended_policy_of
from shim.sessions.prompts.prompt_request import PromptRequest
from shim.sessions.prompts.structured_answers import check_format
from shim.sessions.prompts.submit import submit
from shim.sessions.session.session_state import SessionState
from universal.events import EventType, ItemData, SessionEndedData, UniversalEvent
from universal.items import ItemRole
from universal.session.values import File, Text


class StreamQuery(BaseModel):
    """`include_raw`: include the agent's own payloads."""

    include_raw: bool = False


@v1("POST", "/v1/sessions/{session_id}/messages", tag="sessions", form="none", errors=(400, 404, 409))
async def post_message(ctx: Ctx, path: SessionPath, body: MessageRequest) -> None:
    """Send a message; 204 when it is stored. Its turn begins at once, or after the turns of earlier messages."""
    await _submit(ctx, await universal(ctx).sessions.id_of(path.session_id), body)


@v1("POST", "/v1/sessions/{session_id}/messages/stream", tag="sessions", form="events", errors=(400, 404, 409))
async def post_message_stream(ctx: Ctx, path: SessionPath, query: StreamQuery, body: MessageRequest) -> object:
    """Send a message, and stream the events from it to the end of its turn, through permissions and questions."""
    face = universal(ctx)
    session_id = await face.sessions.id_of(path.session_id)
    state = await ctx.services.sessions.state(session_id)
    start = state.sequence
    need_room(ctx.services)
    message_id = await _submit(ctx, session_id, body)
    follower = await face.sessions.follower(session_id, start)
    encode = encoder(face, include_raw=query.include_raw)
    return await stream(ctx.request, follower, encode, until=_end_of_turn(state, message_id))


def _end_of_turn(state: SessionState, message_id: str) -> Callable[[UniversalEvent], bool]:
    """Return a test for the event that ends this message's turn. Ends of earlier turns do not count."""
    has_begun = False

    def is_end(event: UniversalEvent) -> bool:
        nonlocal has_begun
        if isinstance(event.data, ItemData) and event.data.item.role is ItemRole.USER:
            has_begun = has_begun or state.reducer.transcript.prompt_of_item.get(event.data.item.item_id) == message_id
        if isinstance(event.data, SessionEndedData):
            return event.data.terminated_by == "daemon"
        return has_begun and event.type is EventType.TURN_ENDED

    return is_end


async def _submit(ctx: Ctx, session_id: str, body: MessageRequest) -> str:
    if (await ctx.services.sessions.state(session_id)).is_terminated:
        raise SessionTerminated(session_id)
    check_format(body.format)
    directory = ctx.services.sessions.index.record(session_id).directory
    parts = (Text("", body.message), *(_file(directory, attachment) for attachment in body.attachments))
    terms = terms_of_headers(ctx.request.headers)
    terms["unattended"] = unattended_policy_of(body.unattended, UNATTENDED_KEY) or terms["unattended"]
    message_id = await submit(ctx.services.sessions, session_id, PromptRequest(parts, format=body.format, **terms))
    await ctx.services.store.flush(session_id)
    return message_id


def _file(directory: str, attachment: MessageAttachment) -> File:
    """Convert an attachment to a file part, which the server reads like any other."""
    path = attachment.path
    if "\0" in path:
        raise InvalidRequest("A path of an attachment has no NUL.", None)
    if path.startswith("data:"):
        mime = path[5:].partition(",")[0].partition(";")[0]
        return File("", attachment.mime or mime, path, attachment.filename or "attachment")
    place = Path(path.removeprefix("file://")) if path.startswith("file://") else Path(directory, path)
    mime = attachment.mime or mimetypes.guess_type(place.name)[0] or "text/plain"
    return File("", mime, place.absolute().as_uri(), attachment.filename or place.name)


class PermissionPath(SessionPath):
    """`{session_id}` and `{permission_id}`."""

    permission_id: str


@v1("POST", "/v1/sessions/{session_id}/permissions/{permission_id}/reply", tag="sessions", form="none", errors=(400, 404))
async def reply_permission(ctx: Ctx, path: PermissionPath, body: PermissionReplyRequest) -> object:
    """Answer a permission: `once`, `always` (for the project, until the server ends) or `reject`, which may have a reason."""
    session_id = await _need_request(ctx, path.session_id, "permissions", path.permission_id)
    ctx.services.sessions.requests.reply_permission(path.permission_id, body.reply, body.message)
    return await _answer(ctx, session_id)


class QuestionPath(SessionPath):
    """`{session_id}` and `{question_id}`."""

    question_id: str


@v1("POST", "/v1/sessions/{session_id}/questions/{question_id}/reply", tag="sessions", form="none", errors=(400, 404))
async def reply_question(ctx: Ctx, path: QuestionPath, body: QuestionReplyRequest) -> object:
    """Answer all questions of a request, with labels or typed texts."""
    session_id = await _need_request(ctx, path.session_id, "questions", path.question_id)
    ctx.services.sessions.requests.reply_question(path.question_id, body.answers)
    return await _answer(ctx, session_id)


@v1("POST", "/v1/sessions/{session_id}/questions/{question_id}/reject", tag="sessions", form="none", errors=(404,))
async def reject_question(ctx: Ctx, path: QuestionPath) -> object:
    """Refuse to answer a question. The agent is told."""
    session_id = await _need_request(ctx, path.session_id, "questions", path.question_id)
    ctx.services.sessions.requests.reply_question(path.question_id, None)
    return await _answer(ctx, session_id)


async def _need_request(ctx: Ctx, name: str, field: str, request_id: str) -> str:
    """Return the session's id if it waits for this answer. Raises NotFound."""
    session_id = await universal(ctx).sessions.id_of(name)
    session = await ctx.services.sessions.session(session_id)
    open_ = session.permissions if field == "permissions" else session.questions
    if request_id not in open_:
        raise PermissionNotOpen(name, request_id) if field == "permissions" else QuestionNotOpen(name, request_id)
    return session_id


async def _answer(ctx: Ctx, session_id: str) -> None:
    await ctx.services.store.flush(session_id)
