"""Reads, changes, removes and undoes messages and parts. Source: `docs/wire.md` section 6; recordings `session_ops`."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import is_
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from aiohttp import web
from pydantic import BaseModel, ConfigDict

from shim.faces.opencode1 import read
from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.errors import CursorInvalid
from shim.faces.opencode1.routes.session import SessionPath, need_idle, note_read
from shim.http import wire_json
from shim.http.operation import Ctx, to_response
from shim.http.shapes import decode_cursor, encode_cursor
from shim.lib.errors import InvalidRequest, MessageNotFound, PartNotFound
from shim.sessions.history.checkpoints import read_ahead, read_ids
from shim.sessions.undo import undo
from universal.session.messages import Message
from universal.session.model import Session
from universal.session.values import Part, StepInfo, UserInfo

# --- encoded messages ------------------------------------------------------------------------------------

# The JSON of messages, kept for clients that read a session again: after each turn, in each tab, when a person comes back to it.
#
# An entry depends on immutable values alone, and counts only while a message has these very values. So it is never out of date.

CACHE_BYTES = 4 * 2**20
"""Maximum bytes of all entries."""


class _Entry(NamedTuple):
    info: UserInfo | StepInfo
    parts: tuple[Part, ...]
    text: bytes

    def is_of(self, message: Message) -> bool:
        parts = message.parts
        return self.info is message.info and len(self.parts) == len(parts) and all(map(is_, self.parts, parts.values()))


class EncodedMessages:
    """Encodes messages of all sessions. The least recently used entries are removed."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit = limit_bytes
        self._size = 0
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()

    def encode(self, message: Message, session_id: str) -> bytes:
        if message.streaming:  # its texts are not in its parts yet
            return wire_json.dumps(read.message(message, session_id))
        key = (session_id, message.info.id)
        entry = self._entries.get(key)
        if entry is not None and entry.is_of(message):
            self._entries.move_to_end(key)
            return entry.text
        text = wire_json.dumps(read.message(message, session_id))
        self._keep(key, _Entry(message.info, tuple(message.parts.values()), text))
        return text

    def _keep(self, key: tuple[str, str], entry: _Entry) -> None:
        replaced = self._entries.pop(key, None)
        self._size += len(entry.text) - (0 if replaced is None else len(replaced.text))
        self._entries[key] = entry
        while self._size > self._limit:
            _, oldest = self._entries.popitem(last=False)
            self._size -= len(oldest.text)


# --- operations ------------------------------------------------------------------------------------------

_ENCODED = EncodedMessages()


LONG = 500
"""Number of messages from which an answer is sent in pieces."""


@operation("session.messages")
async def messages(ctx: Ctx, path: SessionPath, query: requests.MessagesQuery) -> object:
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
        cursor = encode_cursor({"id": page[0], "time": session.messages.created_ms(page[0])})
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
    response = await send_list(ctx.request, page, wire, headers, prepare=prepare)
    state.on_read()  # again: only now has the client all of it
    return response


def _cursor_of(cursor: str) -> tuple[str, float]:
    """The id and the time of the message that a cursor names. Raises CursorInvalid."""
    try:
        value = decode_cursor(cursor)
        return str(value["id"]), float(value["time"])
    except (ValueError, KeyError, TypeError) as error:
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
async def get(ctx: Ctx, path: requests.MessagePath) -> object:
    """Return a message with its parts."""
    return read.message(await message_of(ctx, path.sessionID, path.messageID), path.sessionID)


@operation("session.deleteMessage")
async def delete(ctx: Ctx, path: requests.MessagePath) -> object:
    """Remove a message from the transcript. The agent still remembers it."""
    await need_idle(ctx, path.sessionID)
    await message_of(ctx, path.sessionID, path.messageID)
    state = await ctx.services.sessions.state(path.sessionID)
    state.status("message.removed", message_id=path.messageID)
    await ctx.services.store.flush(path.sessionID)
    return True


@operation("part.delete")
async def delete_part(ctx: Ctx, path: requests.PartPath) -> object:
    """Remove a part."""
    message = await message_of(ctx, path.sessionID, path.messageID)
    if path.partID not in message.parts:
        raise PartNotFound(path.partID)
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
async def update_part(ctx: Ctx, path: requests.PartPath, body: PartBody) -> object:
    """Replace the part with this id. The ids must be those of the path, and the type must stay."""
    message = await message_of(ctx, path.sessionID, path.messageID)
    if path.partID not in message.parts:
        raise PartNotFound(path.partID)
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


# --- long lists ------------------------------------------------------------------------------------------

LIST_PIECE = 100
"""Elements that are encoded and written at once. With messages of some KB each this takes a millisecond or two."""

T = TypeVar("T")


async def send_list(
    request: web.Request,
    items: Sequence[T],
    wire: Callable[[Sequence[T]], Sequence[object]],
    headers: Mapping[str, str],
    *,
    prepare: Callable[[Sequence[T]], Awaitable[None]] | None = None,
) -> web.StreamResponse:
    """200 with what `wire` makes of `items`, piece by piece as it is sent. Waits for a client that reads slowly.

    In: `prepare`, called for each piece before `wire`: what has to be waited for.

    Raises: ConnectionError if the client disconnects.
    """
    response = web.StreamResponse(headers={"Content-Type": "application/json", **headers})
    if request.method == "HEAD":
        return response
    response.enable_compression()
    await response.prepare(request)
    between = b"["
    for at in range(0, len(items), LIST_PIECE):
        if prepare is not None:
            await prepare(items[at : at + LIST_PIECE])
        if piece := wire(items[at : at + LIST_PIECE]):
            await response.write(between + wire_json.dumps(piece)[1:-1])
            between = b","
        await asyncio.sleep(0)  # a client that reads fast never makes `write` wait
    await response.write(b"]")
    await response.write_eof()
    return response


# --- undo ------------------------------------------------------------------------------------------------


@operation("session.revert")
async def revert(ctx: Ctx, path: SessionPath, body: requests.RevertBody) -> object:
    """Restore files and hide the undone messages, which the next prompt removes."""
    record = await undo.revert(ctx.services.sessions, path.sessionID, body.messageID, body.partID)
    await ctx.services.store.flush(path.sessionID)
    return read.session(record)


@operation("session.unrevert")
async def unrevert(ctx: Ctx, path: SessionPath) -> object:
    """Redo, until the next prompt."""
    record = await undo.unrevert(ctx.services.sessions, path.sessionID)
    await ctx.services.store.flush(path.sessionID)
    return read.session(record)
