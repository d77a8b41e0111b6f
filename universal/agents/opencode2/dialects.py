"""The builds of OpenCode 2 that the codec speaks, and the translation of older events to the names of the release.

    V2        2.0 and 2.1, as published: names, fields and paths of this package
    JULY      the builds of July 2026 (branch `v2`)
    PREVIEW   the "2.0 preview" of August 2026 (`lildax` 1.18.18): events `session.next.*`, and none for the end of a turn

The name of an event shows its build, so `normalize` needs no dialect. Requests need one.
Source: the published contract and recordings of the two older builds (`compat_fixtures/opencode2`); docs/wire2.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from universal.items import Json
from universal.lib.jsonvalue import arr, obj, text

Msg: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences of one build that requests and turns depend on.

    tells_end    an event says that a session is idle; otherwise only the list of active sessions does
    reply        key of the decision in a reply to a permission
    is_wrapped   a prompt's fields stand below `prompt`
    takes_rules  a session takes permission rules
    takes_system a session takes instructions
    reverts      a conversation can be cut without its files
    cancel       method and path below a form that reject it
    command      keys of a command's name and of its arguments
    """

    name: str
    tells_end: bool = True
    reply: str = "reply"
    is_wrapped: bool = False
    takes_rules: bool = False
    takes_system: bool = False
    reverts: bool = False
    cancel: tuple[str, str] = ("POST", "/cancel")
    command: tuple[str, str] = ("command", "arguments")


V2 = Dialect(
    "2.x",
    reply="decision",
    takes_rules=True,
    takes_system=True,
    reverts=True,
    cancel=("DELETE", ""),
    command=("name", "text"),
)
JULY = Dialect("July 2026")
PREVIEW = Dialect("preview", tells_end=False, is_wrapped=True)

INFO_PATH = "/api/info"
HEALTH_PATH = "/api/health"
"""Paths that identify a build: 2.x answers the first, the older ones only the second."""


def dialect_of_health(health: Json) -> Dialect:
    """Return the dialect of a build that has no `/api/info`. The preview reports no version."""
    return JULY if text(obj(health).get("version")) else PREVIEW


_EVENTS: Mapping[str, str] = {
    "session.input.admitted": "session.inbox.enqueued",
    "session.input.promoted": "session.inbox.delivered",
    "session.next.prompt.admitted": "session.inbox.enqueued",
    "session.next.prompted": "session.inbox.delivered",
    "session.next.agent.switched": "session.agent.selected",
    "session.next.model.switched": "session.model.selected",
    "session.next.context.updated": "session.instructions.updated",
    "session.next.retried": "session.retry.scheduled",
    "permission.v2.asked": "permission.asked",
    "permission.v2.replied": "permission.replied",
    "question.v2.asked": "question.asked",
    "question.v2.replied": "question.replied",
    "question.v2.rejected": "question.rejected",
}
"""Type of an event in an older build -> its type in 2.x. All other types of the preview lose `next.`."""

_FIELDS: Mapping[str, str] = {"inputID": "inboxID", "callID": "id", "structured": "metadata"}
"""Field of an event's data in an older build -> its name in 2.x."""

_PREVIEW = "session.next."


def normalize(kind: str, data: Msg) -> tuple[str, Msg]:
    """Return an event's type and data by the names of 2.x. Those of 2.x are returned as they are."""
    name = _EVENTS.get(kind) or (f"session.{kind.removeprefix(_PREVIEW)}" if kind.startswith(_PREVIEW) else kind)
    if kind == "session.created":
        return name, {**obj(data.get("info")), **data}
    if kind == "form.created":
        return name, {**data, "sessionID": obj(data.get("form")).get("sessionID")}
    if name == "session.inbox.enqueued" and "item" not in data:
        return name, _inbox_item(data)
    if name == "session.inbox.delivered" and "messageID" in data:
        return name, {**data, "inboxID": data["messageID"]}
    if any(field in data for field in _FIELDS):
        return name, {_FIELDS.get(key, key): value for key, value in data.items()}
    return name, data


def _inbox_item(data: Msg) -> Msg:
    """Return the data of an admitted prompt as those of an item of the inbox."""
    admitted = obj(data.get("input"))
    payload = admitted.get("data") if admitted else data.get("prompt")
    item = {"type": text(admitted.get("type"), "user"), "payload": payload}
    return {**data, "inboxID": data.get("inputID") or data.get("messageID"), "item": item}


def slot_of(kind: str, data: Msg) -> tuple[str, str]:
    """Return the key of a text or reasoning part within its message: its ordinal, or the preview's id of it."""
    place = data.get("ordinal", data.get("textID", data.get("reasoningID", 0)))
    return kind, str(place)


def call_id_of(source: Json) -> str:
    """Return the tool call that a permission or a form belongs to."""
    values = obj(source)
    return text(values.get("id")) or text(values.get("callID"))


def texts_of(content: Json) -> str:
    """Return the texts of a tool's content, each on lines of its own."""
    return "\n".join(text(part.get("text")).removesuffix("\n") for part in map(obj, arr(content)) if part.get("type") == "text")
