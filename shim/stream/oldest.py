"""What clients of 1.0 get where they know other events than those of 1.1. Pure.

    permission.asked      -> permission.updated   they answer it at /session/{id}/permissions/{permissionID}
    permission.replied    -> the same type, with `permissionID` and `response`
    question.asked        -> tui.toast.show       they have no questions: a person must hear why the session waits

Source: OpenCode 1.0.98's own document (`Permission`, `Event.permission.replied`), and its TUI, which shows a permission
at the tool part with its `callID`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from shim.opencode.events import OpenCodeEvent

TOAST_MS = 20_000
"""How long the toast of a question stays: a person must have time to read it."""
TITLES = {
    "edit": ("filepath", "Edit this file: "),
    "read": ("filepath", "Read this file: "),
    "webfetch": ("url", "Fetch content from: "),
    "bash": ("command", ""),
}
"""permission -> (key of its metadata, words before it): the title that 1.0.98 gives it."""


def oldest(event: OpenCodeEvent, at_ms: int) -> OpenCodeEvent | None:
    """The event for clients of 1.0, None if they get the one of 1.1. In: `at_ms`, the time that it is told."""
    make = _FORMS.get(event.type)
    return None if make is None else make(event, at_ms)


def _asked(event: OpenCodeEvent, at_ms: int) -> OpenCodeEvent:
    asked = event.properties
    tool: Mapping[str, str] = asked.get("tool") or {}
    properties: dict[str, Any] = {
        "id": asked["id"],
        "type": asked["permission"],
        "pattern": asked["patterns"],
        "sessionID": asked["sessionID"],
        "messageID": tool.get("messageID", ""),
        "title": _title(asked["permission"], asked["patterns"], asked["metadata"]),
        "metadata": asked["metadata"],
        "time": {"created": at_ms},
    }
    if "callID" in tool:
        properties["callID"] = tool["callID"]
    return replace(event, type="permission.updated", properties=properties, legacy=None)


def _title(permission: str, patterns: list[str], metadata: Mapping[str, Any]) -> str:
    key, words = TITLES.get(permission, ("description", ""))
    return f"{words}{metadata[key]}" if metadata.get(key) else f"{permission} {', '.join(patterns)}"


def _replied(event: OpenCodeEvent, at_ms: int) -> OpenCodeEvent:
    said = event.properties
    properties = {"sessionID": said["sessionID"], "permissionID": said["requestID"], "response": said["reply"]}
    return replace(event, properties=properties, legacy=None)


def _question(event: OpenCodeEvent, at_ms: int) -> OpenCodeEvent:
    asked = " / ".join(one["question"] for one in event.properties["questions"])
    message = f"OpenCode 1.0 cannot answer questions: attach a newer one (1.1 or later), or stop with Esc. The question: {asked}"
    properties = {"title": "The agent asks", "message": message, "variant": "warning", "duration": TOAST_MS}
    return replace(event, type="tui.toast.show", properties=properties, legacy=None)


_FORMS: dict[str, Callable[[OpenCodeEvent, int], OpenCodeEvent]] = {
    "permission.asked": _asked,
    "permission.replied": _replied,
    "question.asked": _question,
}
