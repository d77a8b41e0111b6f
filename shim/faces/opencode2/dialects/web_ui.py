"""W, the web UI inside 1.18.33 when it speaks its second protocol: J, but for what had been renamed since. Pure.

    tools      `metadata` where J has `structured`, as R; calls are still named `callID`
    questions  `question.v2.*`, as P; it knows no forms
Source: the UI's own scripts (1.18.33), which were read, and its traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shim.faces.opencode2.dialects import preview as dialect_p
from shim.faces.opencode2.dialects import v2_july as dialect_j
from shim.faces.opencode2.dialects import v2_july_edge as dialect_j_edge
from shim.faces.opencode2.envelope import with_project
from shim.faces.opencode2.events import Event, Wire
from shim.faces.opencode2.rewrite_rules import Alias, Answer, of_data, of_each
from universal.jsonvalue import arr, obj

CALLS = frozenset({"session.tool.progress", "session.tool.success", "session.tool.failed"})
QUESTIONS = frozenset({"form.created", "form.replied", "form.cancelled"})


def event(event: Event) -> Event | None:
    """One of R's events as W is told it; None if it knows no such event."""
    if event.type in CALLS:
        return replace(event, data=dialect_j.rename_fields(event.data, dialect_j.CALL))
    if event.type in QUESTIONS:
        row = dialect_p.EVENTS[event.type]
        data = row.make(event)
        return None if data is None else replace(event, type=row.type, data=data)
    return dialect_j.event(event)


def message(message: Wire) -> Wire | None:
    """One of R's messages as W reads it; None if it knows no such message."""
    shown = dialect_j.message(message)
    if shown is not None and shown["type"] == "assistant":
        shown["content"] = [obj(entry) for entry in arr(message["content"])]
    return shown


ANSWERS: Mapping[str, Answer] = {
    "session.message.list": of_each(message),
    "session.message.get": of_data(lambda one: message(one) or one),
    "session.context": of_each(message),
}


def answer(operation: str, said: Any) -> Any:
    """What R answers, as W takes it."""
    row = ANSWERS.get(operation)
    return dialect_j_edge.answer(operation, said) if row is None else row(with_project(said))


ALIASES: tuple[Alias, ...] = ()
