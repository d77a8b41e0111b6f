"""Reads Claude Code's transcripts: `projects/<folder>/<id>.jsonl` in its own folder. Pure.

Their lines of messages are those of its stream, so the codec translates them. They form a tree by `parentUuid`; the conversation
is the path to the last written message. Source: transcripts of 2.1.330, made by `claude -p` and in the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from universal.agent_spec import Conversation, ConversationEvent, ConversationPrompt
from universal.agents.claude.codec import NOISE, ClaudeCodec
from universal.agents.claude.wire import Msg, get_text
from universal.agents.kit.prompts import first_line
from universal.codec import Fact, IdFactory
from universal.lib.jsonline import objects
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text

_END = json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": ""}).encode()


def read(rows: Sequence[Msg]) -> Conversation | None:
    """The conversation of a file, or None for a file without a prompt of a person."""
    names = [get_text(row, key) for key in ("aiTitle", "customTitle") for row in rows]  # the last counts: a person's
    prompts = [words for row in rows if (words := _prompt(row))]
    begin = next((row for row in rows if get_text(row, "cwd")), None)
    if not prompts or begin is None:
        return None
    title = next(filter(None, reversed(names)), "") or first_line(prompts[0])
    return Conversation(get_text(begin, "sessionId"), get_text(begin, "cwd"), title, get_text(begin, "timestamp"))


def events(rows: Sequence[Msg], ids: IdFactory) -> Iterator[ConversationEvent]:
    """What was said. Subagents' own conversations are left out; their results are there."""
    codec, at = ClaudeCodec(ids), ""
    for row in _path(rows):
        words, at = _prompt(row), get_text(row, "timestamp") or at
        if words:
            yield from _facts(codec, _END, at)
            yield at, ConversationPrompt(words)
        elif row.get("type") in ("user", "assistant"):
            line = {**row, "parent_tool_use_id": None, "tool_use_result": row.get("toolUseResult"), "isSynthetic": True}
            yield from _facts(codec, json.dumps(line).encode(), at)
    yield from _facts(codec, _END, at)


def foreign_rows(lines: Sequence[bytes], rows: Sequence[Msg], *, entrypoint: str = "") -> tuple[list[Msg], bool]:
    """(rows of turns that another program has written: `rows` and those of new lines, whether the last one is over).

    Prompts of this server have uuids of version 5 (`wire.prompt_uuid`), those of other programs of version 4; those of an adapter
    have its `entrypoint`. Only a prompt has a `promptSource` ("typed", "sdk"), so that no other line is parsed while there is
    none of somebody else.
    """
    theirs = {get_text(row, "uuid"): row for row in rows}
    for line in lines:
        if theirs or b'"promptSource"' in line:
            for row in objects(line):
                uuid, is_prompt = get_text(row, "uuid"), "promptSource" in row and bool(_prompt(row))
                is_own = row.get("entrypoint") == entrypoint if entrypoint else uuid[14:15] == "5"
                if (is_prompt and not is_own) or (not is_prompt and get_text(row, "parentUuid") in theirs):
                    theirs[uuid] = row
    said = [row for row in theirs.values() if row.get("type") in ("user", "assistant")]
    blocks = arr(obj(said[-1].get("message")).get("content")) if said else []
    is_over = bool(said) and said[-1]["type"] == "assistant" and "tool_use" not in [obj(block).get("type") for block in blocks]
    return [*theirs.values()], is_over


def _facts(codec: ClaudeCodec, line: bytes, at: str) -> Iterator[ConversationEvent]:
    outputs = codec.receive(line)
    outputs += codec.on_timer("result") if line is _END else []  # it would wait for results of calls
    for output in outputs:
        if isinstance(output, Fact) and output.child is None:
            yield at, output


def _path(rows: Sequence[Msg]) -> list[Msg]:
    """The rows from the first to the last written message, also over compactions."""
    known = {get_text(row, "uuid"): row for row in rows if get_text(row, "uuid") and row.get("isSidechain") is not True}
    uuid = next((uuid for uuid, row in reversed(known.items()) if row.get("type") in ("user", "assistant")), "")
    path: list[Msg] = []
    while (row := known.pop(uuid, None)) is not None:
        path.append(row)
        uuid = get_text(row, "parentUuid", "logicalParentUuid")
    return path[::-1]


def _prompt(row: Msg) -> str:
    """The text of a person's prompt, or "". One that came during a turn is an attachment."""
    queued = obj(row.get("attachment"))
    if row.get("type") == "attachment" and queued.get("type") == "queued_command" and queued.get("commandMode") == "prompt":
        return _words(queued.get("prompt"))
    is_said = row.get("type") == "user" and not any(row.get(key) is True for key in ("isMeta", "isCompactSummary", "isSidechain"))
    words = _words(obj(row.get("message")).get("content")) if is_said else ""
    return "" if words.startswith(NOISE) else words


def _words(content: object) -> str:
    blocks = [obj(block) for block in arr(content)]
    if any(block.get("type") == "tool_result" for block in blocks):
        return ""
    texts = [as_text(block.get("text")) or ("[image]" if block.get("type") == "image" else "") for block in blocks]
    return content if isinstance(content, str) else "\n".join(filter(None, texts))
