"""Reads and writes lines of the mock's protocol, and converts its values. The package's docstring describes the protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from universal import codec as c
from universal.agents import kit
from universal.events import Question, QuestionOption
from universal.items import Json
from universal.lib.jsonvalue import arr, obj, text, whole

PROTOCOL = 1
MAX_COUNT = 2**53
"""Maximum of a count. Larger numbers are not exact in JSON."""

RESULT_META = ("exit_code", "stdout", "stderr", "duration_ms", "interrupted", "answers", "todos", "background", "structured")
"""Keys of a result's `meta` that are passed on."""

ENDS: dict[str, kit.Sign] = {
    "done": kit.Sign("the end of a run. That of an older run, or of work of its own, ends no prompt"),
    "eof": kit.Sign("the process has ended"),
}
"""Sign of a turn's end -> what it shows. The protocol is ours, and has no other."""

Frame: TypeAlias = dict[str, Any]
"""A line of the protocol, parsed."""


class Bad(ValueError):
    """A line lacks a field of its kind. The text goes into `agent.unparsed`."""


class Late(Exception):
    """A line belongs to a closed step or tool."""


def line_of(frame: Frame) -> bytes:
    """A frame as a line without its newline. Characters that UTF-8 cannot hold become `?`."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def write(**frame: Json) -> c.WriteLine:
    """The action that sends this line."""
    return c.WriteLine(line_of(frame))


def need(frame: Frame, key: str) -> str:
    """The text at `key`. Raises Bad if it is missing."""
    value = frame.get(key)
    if not isinstance(value, str):
        raise Bad(f"{key!r} is missing or no text")
    return value


def child_of(frame: Frame) -> str | None:
    """The subagent of a line, or None for the agent itself."""
    return text(frame.get("child")) or None


def count(value: Json) -> int:
    """Any value as a number from 0 to `MAX_COUNT`."""
    return min(max(whole(value), 0), MAX_COUNT)


def usage_of(frame: Frame) -> dict[str, Json]:
    """`usage` and `cost` of a line, for metadata."""
    usage = obj(frame.get("usage"))
    counts = {key: count(usage.get(key)) for key in ("input", "output", "reasoning", "cache_read", "cache_write")}
    cost = frame.get("cost")
    return ({"usage": counts} if usage else {}) | ({"cost": cost} if isinstance(cost, (int, float)) else {})


def attachment(a: c.Attachment) -> dict[str, Json]:
    """An attachment for the mock: the number of bytes, not the bytes. None: the mock reads the file itself."""
    size = len(a.text.encode()) if a.text is not None else None
    if a.base64 is not None:
        size = len(a.base64.rstrip("=")) * 3 // 4
    name = a.filename or (a.path or "").rpartition("/")[2]
    frame = {"mime": a.mime, "name": name or None, "path": a.path, "bytes": size}
    return {key: value for key, value in frame.items() if value is not None}


def question_of(q: Frame) -> Question:
    """One question of a request. Raises Bad."""
    options = tuple(
        QuestionOption(label=need(o, "label"), description=text(o.get("description"))) for o in map(obj, arr(q.get("options")))
    )
    return Question(
        question=need(q, "question"),
        header=text(q.get("header")),
        options=options,
        multiple=q.get("multiple") is True,
        custom=q.get("custom") is not False,
    )


def model_of(m: Frame) -> c.Model:
    """A model of the greeting. Raises Bad."""
    return c.Model(
        id=need(m, "id"),
        name=need(m, "name"),
        description=text(m.get("description")),
        variants=tuple(text(v) for v in arr(m.get("variants"))),
        reasoning=m.get("reasoning") is True,
        images=m.get("images") is not False,
        context=count(m.get("context")) or None,
        output=count(m.get("output")) or None,
    )


def left_of(todos: Sequence[Frame]) -> str:
    """The number of open todos, in words."""
    return f"{sum(t.get('status') not in ('completed', 'cancelled') for t in todos)} todos"


def wait_of(frame: Frame) -> dict[str, Json]:
    """The numbers of a retry, for its status."""
    return {key: count(frame.get(key)) for key in ("attempt", "delay_ms")}


def compaction_of(frame: Frame) -> dict[str, Json]:
    """Metadata of a compaction's status. Raises Bad."""
    note = {"phase": need(frame, "phase"), "auto": frame.get("auto") is True, "summary": text(frame.get("summary"))}
    return {key: value for key, value in note.items() if value != ""}
