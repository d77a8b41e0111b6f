"""Reads, changes and removes messages and parts. Source: `docs/wire.md` section 6; recordings `session_ops`."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field

from shim.faces.opencode1 import read
from shim.faces.opencode1.encoded_messages import EncodedMessages
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.errors import CursorInvalid
from shim.faces.opencode1.routes.session import SessionPath, need_idle, note_read
from shim.http import wire_json
from shim.http.long_list import send
from shim.http.operation import Ctx, to_response
from shim.lib.errors import InvalidRequest, MessageNotFound, PartNotFound
from shim.sessions.history.checkpoints import read_ahead, read_ids
from universal.session.model import Message, Session

_ENCODED = EncodedMessages()


class MessagePath(SessionPath):
    """`{sessionID}` and `{messageID}`."""

    messageID: str


class PartPath(MessagePath):
    """`{sessionID}`, `{messageID}`, `{partID}`."""

    partID: str


class MessagesQuery(BaseModel):
    """The `limit` newest messages (0: all), before the cursor of an earlier answer."""

    limit: int | None = Field(default=None, ge=0)
    before: str | None = None


LONG = 500
"""Number of messages from which an answer is sent in pieces."""


@operation("session.messages")
async def messages(ctx: Ctx, path: SessionPath, query: MessagesQuery) -> object:
    """List messages, oldest first. With a limit, the newest ones, and `x-next-cursor` if there are older ones."""
    state = await ctx.services.sessions.readable_state(path.sessionID)
    state.on_read()
    note_read(ctx, path.sessionID, "messages")
    session = state.session
    before = None if query.before is None else _cursor_of(query.before)
    id_, count = before[0] if before is not None else None, (query.limit or 0) + 2
    await ctx.services.sessions.read_ahead(
        session, lambda session: read_ahead(session, id_, count, is_back=True) if query.limit else read_ids(session)
    )
    newest = session.ids_newest_first() if before is None else _before(session, *before)
    page = list(islice(newest, query.limit or None))
    page.reverse()
    headers: dict[str, str] = {}
    if next(newest, None) is not None:
        cursor = _cursor(page[0], session.messages.created_ms(page[0]))
        link = ctx.request.url.with_query(urlencode({**dict(ctx.request.query), "before": cursor}))
        headers = {"x-next-cursor": cursor, "link": f'<{link}>; rel="next"'}

    def wire(some: Sequence[str]) -> list[object]:
        """Those of these messages that were not removed meanwhile."""
        messages = map(session.messages.peek, some)
        return [wire_json.fragment(_ENCODED.encode(message, path.sessionID)) for message in messages if message is not None]

    async def prepare(some: Sequence[str]) -> None:
        """Read the pages of these messages from the store."""
        await ctx.services.sessions.read_ahead(session, lambda session: read_ahead(session, some[0], len(some), is_back=False))

    if len(page) < LONG:
        return to_response(wire(page), headers=headers)
    response = await send(ctx.request, page, wire, headers, prepare=prepare)
    state.on_read()  # again: only now has the client all of it
    return response


def _cursor(message_id: str, created_ms: int) -> str:
    value = {"id": message_id, "time": created_ms}
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def _cursor_of(cursor: str) -> tuple[str, float]:
    """The id and the time of the message that a cursor names. Raises CursorInvalid."""
    try:
        value = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return str(value["id"]), float(value["time"])
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise CursorInvalid from error


def _before(session: Session, id_: str, time: float) -> Iterator[str]:
    """Ids of the messages that are older than this one, or if it is gone, than its time."""
    if id_ not in session.messages:
        times = dict(session.messages.times())
        return (message_id for message_id in session.ids_newest_first() if times[message_id] < time)
    if session.in_order:
        return islice(session.messages.ids_until(id_), 1, None)
    newest = session.ids_newest_first()
    for message_id in newest:
        if message_id == id_:
            break
    return newest


async def message_of(ctx: Ctx, session_id: str, message_id: str) -> Message:
    """Return a message. Raises NotFound."""
    session = await ctx.services.sessions.session(session_id)
    message = session.messages.peek(message_id)
    if message is None:
        raise MessageNotFound(session_id, message_id)
    return message


@operation("session.message")
async def get(ctx: Ctx, path: MessagePath) -> object:
    """Return a message with its parts."""
    return read.message(await message_of(ctx, path.sessionID, path.messageID), path.sessionID)


@operation("session.deleteMessage")
async def delete(ctx: Ctx, path: MessagePath) -> object:
    """Remove a message from the transcript. The agent still remembers it."""
    await need_idle(ctx, path.sessionID)
    await message_of(ctx, path.sessionID, path.messageID)
    state = await ctx.services.sessions.state(path.sessionID)
    state.status("message.removed", message_id=path.messageID)
    await ctx.services.store.flush(path.sessionID)
    return True


@operation("part.delete")
async def delete_part(ctx: Ctx, path: PartPath) -> object:
    """Remove a part."""
    message = await message_of(ctx, path.sessionID, path.messageID)
    if path.partID not in message.parts:
        raise PartNotFound(path.messageID, path.partID)
    state = await ctx.services.sessions.state(path.sessionID)
    state.status("part.removed", message_id=path.messageID, part_id=path.partID)
    await ctx.services.store.flush(path.sessionID)
    return True


class PartBody(BaseModel):
    """A complete part, as GET returns it."""

    model_config = ConfigDict(extra="allow")

    id: str
    messageID: str
    sessionID: str
    type: str


@operation("part.update")
async def update_part(ctx: Ctx, path: PartPath, body: PartBody) -> object:
    """Replace the part with this id. The ids must be those of the path, and the type must stay."""
    message = await message_of(ctx, path.sessionID, path.messageID)
    if path.partID not in message.parts:
        raise PartNotFound(path.messageID, path.partID)
    old = read.part(message.parts[path.partID], path.sessionID, path.messageID)
    if (body.id, body.messageID, body.sessionID) != (path.partID, path.messageID, path.sessionID):
        raise InvalidRequest("The ids of the part must be those of the path")
    if body.type != old["type"]:
        raise InvalidRequest(f'The part is of type "{old["type"]}", not "{body.type}"', path=("type",))
    part: dict[str, Any] = body.model_dump(exclude_unset=True)
    state = await ctx.services.sessions.state(path.sessionID)
    state.status("part.updated", part=part)
    await ctx.services.store.flush(path.sessionID)
    return part
