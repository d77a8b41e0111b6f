"""Reads Pi's session files: `sessions/<folder>/<time>_<id>.jsonl` in its own folder. Pure.

Their entries form a tree by `parentId`; the conversation is the path to the last one. An answer and a result are those of Pi's
stream, so the codec translates them. Source: files of 1.5.2, made by `pi -p`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from universal.agent_spec import Conversation, ConversationEvent, ConversationPrompt
from universal.agents.kit.prompts import first_line
from universal.agents.pi.codec import PiCodec
from universal.agents.pi.tools import text_of
from universal.agents.pi.wire import Msg
from universal.codec import Fact, IdFactory
from universal.lib.jsonline import get_text, objects
from universal.lib.jsonvalue import obj


def read(rows: Sequence[Msg]) -> Conversation | None:
    """The conversation of a file, or None for a file without a prompt of a person."""
    begin = next((row for row in rows if row.get("type") == "session"), None)
    prompts = [words for row in rows if (words := _prompt(row))]
    if begin is None or not prompts:
        return None
    names = [get_text(row, "name") for row in rows if row.get("type") == "session_info"]
    title = next(filter(None, reversed(names)), "") or first_line(prompts[0])
    return Conversation(get_text(begin, "id"), get_text(begin, "cwd"), title, get_text(begin, "timestamp"))


def events(rows: Sequence[Msg], ids: IdFactory) -> Iterator[ConversationEvent]:
    """What was said, on the path to the last entry."""
    codec, at = PiCodec(ids), ""
    for row in _path(rows):
        words, at, message = _prompt(row), get_text(row, "timestamp") or at, obj(row.get("message"))
        if words:
            yield at, ConversationPrompt(words)
            continue
        if message.get("role") == "toolResult":
            line = {**message, "type": "tool_execution_end", "result": message}
        elif message.get("role") == "assistant":
            line = {"type": "message_end", "message": message}
        else:
            continue
        yield from ((at, output) for output in codec.receive(json.dumps(line).encode()) if isinstance(output, Fact))


def foreign_rows(lines: Sequence[bytes], rows: Sequence[Msg], anchor: str) -> tuple[list[Msg], bool]:
    """(rows of turns that another Pi has written: `rows` and those of new lines, whether the last one is over).

    `anchor` is the last prompt that the server's Pi has answered; it works on no other. A prompt that is not on the path to it is
    of another Pi, and so is what follows that prompt.
    """
    entries = {get_text(row, "id"): row for row in objects(b"\n".join(lines))}
    own = {get_text(row, "id") for row in _path([*entries.values()], anchor)} if anchor else set[str]()
    theirs = {get_text(row, "id"): row for row in rows}
    for id_, row in entries.items():
        if id_ not in own and (_prompt(row) or get_text(row, "parentId") in theirs):
            theirs[id_] = row
    found = [*theirs.values()]
    last = obj(found[-1].get("message")) if found else {}
    return found, last.get("role") == "assistant" and last.get("stopReason") != "toolUse"


def _path(rows: Sequence[Msg], last: str = "") -> list[Msg]:
    """The rows from the first to this one, or to the last one."""
    entries = {get_text(row, "id"): row for row in rows if row.get("type") != "session"}
    id_, path = last or next(reversed(entries), ""), list[Msg]()
    while (row := entries.pop(id_, None)) is not None:
        path.append(row)
        id_ = get_text(row, "parentId")
    return path[::-1]


def _prompt(row: Msg) -> str:
    message = obj(row.get("message"))
    content = message.get("content") if message.get("role") == "user" else ""
    return content if isinstance(content, str) else text_of(content) or "[image]"
