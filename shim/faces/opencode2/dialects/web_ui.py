"""The dialect `web_ui`, of the web UI in 1.18.33 when it speaks its second protocol. Pure.

It is `v2_july` except for these:

    tools      `metadata` as in `v2_0`, where `v2_july` has `structured`; the id of a call is still named `callID`
    questions  `question.v2.*` as in `preview`; it has no forms
Source: the scripts of that web UI, and its traffic (`compat_fixtures/opencode2/web_ui.txt`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shim.faces.opencode2.dialects import preview, v2_july
from shim.faces.opencode2.rewrite_rules import Answer, of_data, of_each
from shim.faces.opencode2.wire_event import Event, ReadOnlyWire, Wire
from universal.lib.jsonvalue import arr, obj

CALLS = frozenset({"session.tool.progress", "session.tool.success", "session.tool.failed"})
QUESTIONS = frozenset({"form.created", "form.replied", "form.cancelled"})


def event(source: Event) -> Event | None:
    """Convert an event. None if the web UI knows no such event."""
    if source.type in CALLS:
        return replace(source, data=v2_july.rename_fields(source.data, v2_july.CALL))
    if source.type in QUESTIONS:
        row = preview.EVENTS[source.type]
        data = row.make(source)
        return None if data is None else replace(source, type=row.type, data=data)
    return v2_july.event(source)


def message(source: ReadOnlyWire) -> Wire | None:
    """Convert a message. None if the web UI knows no such message."""
    wire = v2_july.message(source)
    if wire is not None and wire["type"] == "assistant":
        # `v2_july` renames the fields of tool calls, which this dialect keeps.
        wire["content"] = [obj(entry) for entry in arr(source["content"])]
    return wire


ANSWERS: Mapping[str, Answer] = {
    **v2_july.ANSWERS,
    "session.message.list": of_each(message),
    "session.message.get": of_data(lambda body: message(body) or body),
    "session.context": of_each(message),
}
