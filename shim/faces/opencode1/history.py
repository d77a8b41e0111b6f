"""The history of a session's lasting events, numbered as OpenCode does for servers that replicate each other. Pure.

`seq` counts from 0 per session, without deltas, status, idle, errors, permissions and questions. The numbers depend only on the
journal, so the live `sync` twins on `/global/event` equal a rebuilt history. Source: docs/wire.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from shim.faces.opencode1.events import OpenCodeEvent
from universal.lib.jsonvalue import JsonObject

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import HistoryEvent

LASTING_EVENTS = frozenset(
    {
        *("session.created", "session.updated", "session.deleted"),
        *("message.updated", "message.removed", "message.part.updated", "message.part.removed"),
    }
)
VERSION = ".1"
"""The suffix of each type: the version of its schema."""


def row(event: OpenCodeEvent) -> HistoryEvent:
    """Build one entry of `POST /sync/history` from a lasting event."""
    assert event.sync is not None
    return {
        "id": event.sync.id,
        "aggregate_id": event.sync.session_id,
        "seq": event.sync.seq,
        "type": event.type + VERSION,
        "data": event.properties,
    }


class BrokenHistory(ValueError):
    """The history cannot be replayed. The text says why."""


def fold(events: Iterable[Mapping[str, Any]]) -> JsonObject:
    """Replay a session's whole history into an exported document. Raises BrokenHistory."""
    info: JsonObject | None = None
    messages: dict[str, JsonObject] = {}
    session_id = ""
    for number, event in enumerate(sorted(events, key=lambda e: e["seq"])):
        session_id = session_id or event["aggregateID"]
        if event["aggregateID"] != session_id:
            raise BrokenHistory(f"events of two sessions, {session_id} and {event['aggregateID']}")
        if event["seq"] != number:
            raise BrokenHistory(f"event {number} is missing: the next one has seq {event['seq']}")
        kind, data = str(event["type"]).removesuffix(VERSION), event["data"]
        if kind not in LASTING_EVENTS:
            raise BrokenHistory(f"event {number} is of an unknown type, {event['type']}")
        try:
            info = _apply(kind, data, info, messages)
        except (KeyError, TypeError) as error:
            raise BrokenHistory(f"event {number} ({event['type']}) lacks {error}") from error
    if info is None:
        raise BrokenHistory("the session is deleted at its end" if messages else "no event makes a session")
    exported = [{"info": m["info"], "parts": list(m["parts"].values())} for m in messages.values()]
    return {"info": info, "messages": exported}


def _apply(kind: str, data: JsonObject, info: JsonObject | None, messages: dict[str, JsonObject]) -> JsonObject | None:
    match kind:
        case "session.created" | "session.updated":
            return {**(info or {}), **data["info"]}
        case "session.deleted":
            return None
        case "message.updated":
            messages.setdefault(data["info"]["id"], {"parts": {}})["info"] = data["info"]
        case "message.removed":
            messages.pop(data["messageID"], None)
        case "message.part.updated":
            messages[data["part"]["messageID"]]["parts"][data["part"]["id"]] = data["part"]
        case _:
            messages[data["messageID"]]["parts"].pop(data["partID"], None)
    return info
