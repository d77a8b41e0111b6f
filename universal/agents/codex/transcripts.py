"""Reads conversations as Codex's app server tells them: `thread/list`, and `thread/read` with its turns. Pure.

Items are those of its stream, so the codec translates them. Source: 0.169.0, threads of `codex exec` and of its app server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from universal.agent_spec import Conversation, ConversationEvent, ConversationPrompt, Inquiry
from universal.agents.codex.codec import CodexCodec
from universal.agents.codex.wire import HELLO, Msg
from universal.agents.kit.prompts import first_line, time_text
from universal.codec import Fact, IdFactory
from universal.lib.jsonline import get_int, get_text, objects, result_of
from universal.lib.jsonvalue import arr, obj

_SOURCES = ("cli", "vscode", "exec", "appServer")


def ask(directory: str, id_: str) -> Inquiry:
    """A run of the app server that lists the threads of a directory, or reads one."""
    thread = {"threadId": id_, "includeTurns": True}
    method, params = (
        ("thread/read", thread) if id_ else ("thread/list", {"cwd": directory, "sourceKinds": _SOURCES, "limit": 100})
    )
    return _run(method, params)


def removal(id_: str) -> Inquiry:
    """A run that archives a thread: `codex` can bring it back."""
    return _run("thread/archive", {"threadId": id_})


def _run(method: str, params: Msg) -> Inquiry:
    return Inquiry(("app-server",), (*HELLO, json.dumps({"id": 1, "method": method, "params": params}).encode()))


def parse(text: str, id_: str) -> list[list[Msg]]:
    """Each thread of the answer."""
    result = obj(result_of(objects(text.encode()), 1))
    return [[obj(thread)] for thread in ([result.get("thread")] if id_ else arr(result.get("data"))) if thread]


def read(rows: Sequence[Msg]) -> Conversation | None:
    """The conversation of a thread, or None without a prompt. Subagents' threads are not the person's."""
    thread = rows[0]
    title = get_text(thread, "name") or first_line(get_text(thread, "preview"))
    if not title or get_text(thread, "parentThreadId"):
        return None
    updated_ms = get_int(thread, "updatedAt") * 1000
    return Conversation(get_text(thread, "id"), get_text(thread, "cwd"), title, _time(thread, "createdAt"), updated_ms)


def events(rows: Sequence[Msg], ids: IdFactory) -> Iterator[ConversationEvent]:
    """What was said, turn after turn."""
    codec = CodexCodec(ids)
    for turn in (turn for row in rows for turn in map(obj, arr(row.get("turns")))):
        at, turn_id = _time(turn, "startedAt"), get_text(turn, "id")
        yield from _facts(codec, at, "turn/started", {"turn": {"id": turn_id}})
        for item in map(obj, arr(turn.get("items"))):
            at = _time(item, "completedAtMs", 1000) if "completedAtMs" in item else at
            if item.get("type") == "userMessage":
                words = [get_text(obj(part), "text") or f"[{get_text(obj(part), 'type')}]" for part in arr(item.get("content"))]
                yield at, ConversationPrompt("\n".join(words))
            else:
                yield from _facts(codec, at, "item/started", {"turnId": turn_id, "item": item})
                yield from _facts(codec, at, "item/completed", {"turnId": turn_id, "item": item})
        yield from _facts(codec, at, "turn/completed", {"turn": {**turn, "items": []}})


def _facts(codec: CodexCodec, at: str, method: str, params: Msg) -> Iterator[ConversationEvent]:
    line = json.dumps({"method": method, "params": {"threadId": "", **params}}).encode()
    yield from ((at, output) for output in codec.receive(line) if isinstance(output, Fact) and output.child is None)


def _time(native: Msg, key: str, scale: int = 1) -> str:
    return time_text(get_int(native, key) * 1000 / scale)
