"""Determines the generation of an OpenCode 1 client, and converts events for clients of 1.0. Pure.

Since 1.2, text streams as `message.part.delta`; up to 1.1 as `message.part.updated` with the text so far. A client must get one
of them and never both. 1.0 also has other permission events:

    permission.asked      -> permission.updated   answered at /session/{id}/permissions/{permissionID}
    permission.replied    -> the same type, with `permissionID` and `response`
    question.asked        -> tui.toast.show       1.0 has no questions, so the toast says why the session waits

All OpenCode programs name their version in `User-Agent: opencode/1.1.53`; SDKs and browsers do not, and are modern.
Source: docs/adr/0012-wire-generation.md; OpenCode 1.0.98's API document (`Permission`, `Event.permission.replied`), and its TUI,
which shows a permission at the tool part with its `callID`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypeAlias, TypedDict, cast

from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.lib.errors import InvalidRequest

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.event_types import PermissionRepliedProperties, TuiToastShowProperties
    from shim.faces.opencode1._generated.types import PermissionRequest, QuestionRequest

Generation: TypeAlias = Literal["v1.18", "v1.1", "v1.0"]

LAST_LEGACY = (1, 1)
"""The newest version without `message.part.delta`; 1.2.27 has it (both recorded)."""
FIRST_MAJOR = 1
"""Lower major versions are development builds (`0.0.0-main-...`), which are newer than all releases."""

WIRE_VALUES: dict[str, Generation] = {
    "1.0": "v1.0",
    "v1.0": "v1.0",
    "1.1": "v1.1",
    "v1.1": "v1.1",
    "1.18": "v1.18",
    "v1.18": "v1.18",
}

_PROGRAM = re.compile(r"opencode/(?:[a-z][\w-]*/)?(\d+)\.(\d+)\.")
"""`opencode/1.1.53`; some builds insert a channel: `opencode/latest/1.1.53/cli`."""


def generation_of(query: Mapping[str, str], headers: Mapping[str, str]) -> Generation:
    """Return the generation of a request's client: by `?wire=`, else by its User-Agent, else the modern one.

    Raises: InvalidRequest for an unknown `?wire=`.
    """
    named = query.get("wire")
    if named is None:
        return generation_of_agent(headers.get("User-Agent", ""))
    if named not in WIRE_VALUES:
        raise InvalidRequest(f"Unknown wire {named!r}. Give one of {', '.join(WIRE_VALUES)}, or leave it out.", "Query")
    return WIRE_VALUES[named]


def generation_of_agent(user_agent: str) -> Generation:
    """Return the generation of a program by its User-Agent."""
    program = _PROGRAM.match(user_agent)
    if program is None:
        return "v1.18"
    version = (int(program[1]), int(program[2]))
    if version[0] < FIRST_MAJOR or version > LAST_LEGACY:
        return "v1.18"
    return "v1.1" if version == LAST_LEGACY else "v1.0"


# --- events of 1.0 -----------------------------------------------------------------------------------------

TOAST_MS = 20_000
"""Milliseconds for which a question's toast stays, so that a user has time to read it."""
TITLES = {
    "edit": ("filepath", "Edit this file: "),
    "read": ("filepath", "Read this file: "),
    "webfetch": ("url", "Fetch content from: "),
    "bash": ("command", ""),
}
"""permission -> (key of its metadata, prefix): the permission's title in 1.0.98."""


class _Permission(TypedDict):
    """`Permission` of 1.0.98's document."""

    id: str
    type: str
    pattern: list[str]
    sessionID: str
    messageID: str
    callID: NotRequired[str]
    title: str
    metadata: Mapping[str, Any]
    time: _PermissionTime


class _PermissionTime(TypedDict):
    created: int


class _PermissionReplied(TypedDict):
    """The content of `permission.replied` in 1.0.98's document."""

    sessionID: str
    permissionID: str
    response: Literal["once", "always", "reject"]


def event_of_1_0(event: OpenCodeEvent, sent_ms: int) -> OpenCodeEvent | None:
    """Convert an event for clients of 1.0; None if they get that of 1.1. In: `sent_ms`, the time of sending."""
    make = _EVENTS_OF_1_0.get(event.type)
    return None if make is None else make(event, sent_ms)


def _permission_updated(event: OpenCodeEvent, sent_ms: int) -> OpenCodeEvent:
    request = cast("PermissionRequest", event.properties)
    tool = request.get("tool")
    properties: _Permission = {
        "id": request["id"],
        "type": request["permission"],
        "pattern": request["patterns"],
        "sessionID": request["sessionID"],
        "messageID": tool["messageID"] if tool else "",
        "title": _title(request["permission"], request["patterns"], request["metadata"]),
        "metadata": request["metadata"],
        "time": {"created": sent_ms},
    }
    if tool:
        properties["callID"] = tool["callID"]
    return event._replace(type="permission.updated", properties=properties, legacy=None)


def _title(permission: str, patterns: list[str], metadata: Mapping[str, Any]) -> str:
    key, prefix = TITLES.get(permission, ("description", ""))
    return f"{prefix}{metadata[key]}" if metadata.get(key) else f"{permission} {', '.join(patterns)}"


def _permission_replied(event: OpenCodeEvent, sent_ms: int) -> OpenCodeEvent:
    reply = cast("PermissionRepliedProperties", event.properties)
    properties: _PermissionReplied = {
        "sessionID": reply["sessionID"],
        "permissionID": reply["requestID"],
        "response": reply["reply"],
    }
    return event._replace(properties=properties, legacy=None)


def _question_toast(event: OpenCodeEvent, sent_ms: int) -> OpenCodeEvent:
    request = cast("QuestionRequest", event.properties)
    questions = " / ".join(question["question"] for question in request["questions"])
    message = (
        f"OpenCode 1.0 cannot answer questions: attach a newer one (1.1 or later), or stop with Esc. The question: {questions}"
    )
    properties: TuiToastShowProperties = {
        "title": "The agent asks",
        "message": message,
        "variant": "warning",
        "duration": TOAST_MS,
    }
    return event._replace(type="tui.toast.show", properties=properties, legacy=None)


_EVENTS_OF_1_0: dict[str, Callable[[OpenCodeEvent, int], OpenCodeEvent]] = {
    "permission.asked": _permission_updated,
    "permission.replied": _permission_replied,
    "question.asked": _question_toast,
}
