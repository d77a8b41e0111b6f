"""Messages and parts: read, changed, removed. Source: `docs/wire.md` section 6 and trap 12; recordings `session_ops`."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field

from shim.errors import ApiError, BadRequest, NotFound
from shim.http.operation import Ctx, operation, to_response
from shim.opencode.build import Wire
from shim.projection.opencode1.state import Conversation, Message
from shim.routes.opencode1.session import SessionPath, need_idle


class MessagePath(SessionPath):
    """`{sessionID}` and `{messageID}`."""

    messageID: str


class PartPath(MessagePath):
    """`{sessionID}`, `{messageID}`, `{partID}`."""

    partID: str


class MessagesQuery(BaseModel):
    """`limit` newest messages (0: all), before a cursor of an earlier answer."""

    limit: int | None = Field(default=None, ge=0)
    before: str | None = None


def in_order(conversation: Conversation) -> list[Message]:
    """Messages as clients sort them: by time, then as they came."""
    return sorted(conversation.messages.values(), key=lambda m: m.info["time"]["created"])


@operation("session.messages")
async def messages(ctx: Ctx, path: SessionPath, query: MessagesQuery) -> object:
    """Oldest first. With a limit, the newest ones, and `x-next-cursor` if there are older."""
    branch = await ctx.services.sessions.branch(path.sessionID)
    branch.was_read()
    found = in_order(branch.conversation)
    limit = query.limit or 0
    if query.before is not None:
        found = _before(found, query.before)
    if not limit or len(found) <= limit:
        return [m.wire() for m in found]
    page = found[-limit:]
    cursor = _cursor(page[0])
    link = ctx.request.url.with_query(urlencode({**dict(ctx.request.query), "before": cursor}))
    headers = {"x-next-cursor": cursor, "link": f'<{link}>; rel="next"'}
    return to_response([m.wire() for m in page], headers=headers)


def _cursor(message: Message) -> str:
    value = {"id": message.info["id"], "time": message.info["time"]["created"]}
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def _before(found: list[Message], cursor: str) -> list[Message]:
    try:
        value = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        id_, time = str(value["id"]), float(value["time"])
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise ApiError(400, "BadRequest", "", body={"_tag": "BadRequest"}) from error
    ids = [m.info["id"] for m in found]
    if id_ in ids:
        return found[: ids.index(id_)]
    return [m for m in found if m.info["time"]["created"] < time]


async def message_of(ctx: Ctx, session_id: str, message_id: str) -> Message:
    """One message. Raises NotFound."""
    conversation = await ctx.services.sessions.conversation(session_id)
    message = conversation.messages.get(message_id)
    if message is None:
        raise NotFound(f"Message not found: {message_id}")
    return message


@operation("session.message")
async def get(ctx: Ctx, path: MessagePath) -> object:
    """One message with its parts."""
    return (await message_of(ctx, path.sessionID, path.messageID)).wire()


@operation("session.deleteMessage")
async def delete(ctx: Ctx, path: MessagePath) -> object:
    """Removes a message from what is shown; the agent's own memory keeps it."""
    await need_idle(ctx, path.sessionID)
    await message_of(ctx, path.sessionID, path.messageID)
    branch = await ctx.services.sessions.branch(path.sessionID)
    branch.status("message.removed", message_id=path.messageID)
    await ctx.services.store.flush()
    return True


@operation("part.delete")
async def delete_part(ctx: Ctx, path: PartPath) -> object:
    """Removes one part."""
    message = await message_of(ctx, path.sessionID, path.messageID)
    if path.partID not in message.parts:
        raise NotFound(f"Part not found: {path.partID}")
    branch = await ctx.services.sessions.branch(path.sessionID)
    branch.status("part.removed", message_id=path.messageID, part_id=path.partID)
    await ctx.services.store.flush()
    return True


class PartBody(BaseModel):
    """A whole part, as GET gives it."""

    model_config = ConfigDict(extra="allow")

    id: str
    messageID: str
    sessionID: str
    type: str


@operation("part.update")
async def update_part(ctx: Ctx, path: PartPath, body: PartBody) -> object:
    """Puts this part in the place of the one with its id. Its ids must be those of the path, its type the old one."""
    message = await message_of(ctx, path.sessionID, path.messageID)
    old: Wire | None = message.parts.get(path.partID)
    if old is None:
        raise NotFound(f"Part not found: {path.partID}")
    if (body.id, body.messageID, body.sessionID) != (path.partID, path.messageID, path.sessionID):
        raise BadRequest("The ids of the part must be those of the path")
    if body.type != old["type"]:
        raise BadRequest(f'The part is of type "{old["type"]}", not "{body.type}"\n  at ["type"]')
    part: dict[str, Any] = body.model_dump(exclude_unset=True)
    branch = await ctx.services.sessions.branch(path.sessionID)
    branch.status("part.updated", part=part)
    await ctx.services.store.flush()
    return part
