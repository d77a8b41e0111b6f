"""Reads conversations of OpenCode's own database, as its program tells them: `opencode db` for the list, `opencode export`. Pure.

Both run outside of the project, so that nothing of it is loaded. Source: 1.18.33.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress

from universal.agent_spec import Conversation, ConversationEvent, ConversationPrompt, Inquiry
from universal.agents.kit.opencode import ServerContext
from universal.agents.kit.prompts import time_text
from universal.agents.opencode.speech import Thread
from universal.agents.opencode.wire import NAME, Msg
from universal.codec import Fact, IdFactory
from universal.lib.jsonvalue import arr, obj, text, whole

_LIST = (
    "select id, directory, title, time_created, time_updated from session where directory = '{}' and parent_id is null "
    "and time_archived is null order by time_updated desc limit 200"
)


def ask(directory: str, id_: str) -> Inquiry:
    """A run that lists the conversations of a directory, or tells one."""
    quoted = directory.replace("'", "''")
    return Inquiry(("export", id_) if id_ else ("db", _LIST.format(quoted), "--format", "json"))


def removal(id_: str) -> Inquiry:
    """A run that deletes one."""
    return Inquiry(("session", "delete", id_))


def parse(words: str, id_: str) -> list[list[Msg]]:
    """The rows of each conversation: that of the database, or its info and its messages."""
    with suppress(ValueError):
        value = json.JSONDecoder().raw_decode(words.lstrip())[0]
        if not id_:
            return [[obj(row)] for row in arr(value)]
        info = obj(obj(value).get("info"))
        return [[info, *map(obj, arr(obj(value).get("messages")))]] if info else []
    return []


def read(rows: Sequence[Msg]) -> Conversation | None:
    """The conversation of a row of the database, or of an export."""
    row, time = rows[0], obj(rows[0].get("time"))
    created, updated = whole(row.get("time_created")) or whole(time.get("created")), whole(row.get("time_updated"))
    updated = updated or whole(time.get("updated"))
    return Conversation(text(row.get("id")), text(row.get("directory")), text(row.get("title")), time_text(created), updated)


def events(rows: Sequence[Msg], ids: IdFactory) -> Iterator[ConversationEvent]:
    """What was said, message after message. What OpenCode has added to a prompt is left out."""
    thread, at = Thread(ServerContext(NAME, ids), text(rows[0].get("id"))), ""
    for message in rows[1:]:
        info, parts = obj(message.get("info")), [obj(part) for part in arr(message.get("parts"))]
        at = time_text(whole(obj(info.get("time")).get("created")))
        if info.get("role") == "user":
            words = [text(part.get("text")) for part in parts if part.get("type") == "text" and not part.get("synthetic")]
            yield at, ConversationPrompt("\n".join(words))
        else:
            yield from ((at, fact) for fact in _facts(thread, info, parts))
    yield from ((at, fact) for fact in thread.close(None))


def _facts(thread: Thread, info: Msg, parts: Sequence[Msg]) -> Iterator[Fact]:
    open_info = {**info, "time": {"created": obj(info.get("time")).get("created")}}
    yield from thread.message(open_info, open_info)
    for part in parts:
        yield from thread.part(part, part)
    yield from thread.message(info, info)
