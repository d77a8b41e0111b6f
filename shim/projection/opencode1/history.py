"""The history of a session's lasting events, as OpenCode numbers them for servers that follow each other. Pure.

`seq` counts from 0 per session; deltas, status, idle, errors, permissions and questions are no part of it. The numbers depend on
the journal alone, so what is told live (`sync` twins on `/global/event`) is what a rebuilt history says. Source: docs/wire.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from shim.ids import COUNTER_SPAN, MASK, hashed_tail, render
from shim.opencode.build import Wire
from shim.opencode.events import OpenCodeEvent, Sync

LASTING = frozenset(
    {
        *("session.created", "session.updated", "session.deleted"),
        *("message.updated", "message.removed", "message.part.updated", "message.part.removed"),
    }
)
VERSION = ".1"
"""Behind each type: the version of its shape."""


class History:
    """Numbers the lasting events of one session."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self.next_seq = 0

    def numbered(self, events: list[OpenCodeEvent], at_ms: int) -> list[OpenCodeEvent]:
        """The same events; lasting ones know their place. Growing texts told anew are no part of it."""
        for e in events:
            if e.type in LASTING:
                return [replace(e, sync=self._next(at_ms)) if e.type in LASTING else e for e in events]
        return events

    def skip(self, kind: str) -> None:
        """One of this type has had its number, if it is lasting; the next ones come after it."""
        self.next_seq += kind in LASTING

    def _next(self, at_ms: int) -> Sync:
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        id_ = render("evt", (at_ms * COUNTER_SPAN + seq % COUNTER_SPAN) & MASK, hashed_tail(f"{self._session_id}:sync:{seq}"))
        return Sync(self._session_id, seq, id_)


def row(event: OpenCodeEvent) -> Wire:
    """One entry of `POST /sync/history`. Only for lasting events."""
    assert event.sync is not None
    place = {"id": event.sync.id, "aggregate_id": event.sync.session_id, "seq": event.sync.seq}
    return {**place, "type": event.type + VERSION, "data": event.properties}


class Broken(ValueError):
    """A history that cannot be played; the text says why."""


def fold(events: Iterable[Mapping[str, Any]]) -> Wire:
    """What a session's whole history comes to, as an exported document. Raises Broken."""
    info: Wire | None = None
    messages: dict[str, Wire] = {}
    session_id = ""
    for number, event in enumerate(sorted(events, key=lambda e: e["seq"])):
        session_id = session_id or event["aggregateID"]
        if event["aggregateID"] != session_id:
            raise Broken(f"events of two sessions, {session_id} and {event['aggregateID']}")
        if event["seq"] != number:
            raise Broken(f"event {number} is missing: the next one has seq {event['seq']}")
        kind, data = str(event["type"]).removesuffix(VERSION), event["data"]
        if kind not in LASTING:
            raise Broken(f"event {number} is of an unknown type, {event['type']}")
        try:
            info = _apply(kind, data, info, messages)
        except (KeyError, TypeError) as error:
            raise Broken(f"event {number} ({event['type']}) lacks {error}") from error
    if info is None:
        raise Broken("the session is deleted at its end" if messages else "no event makes a session")
    found = [{"info": m["info"], "parts": list(m["parts"].values())} for m in messages.values()]
    return {"info": info, "messages": found}


def _apply(kind: str, data: Wire, info: Wire | None, messages: dict[str, Wire]) -> Wire | None:
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
