"""Replays a session's journal: each event with its OpenCode events and the turn's state after it. Pure.

The projection is a function of the journal (docs/adr/0003), so a replay gives the same ids and events that clients got, except
for resent events (the text so far, for a client that joins late).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from shim.faces.opencode1.events import render
from shim.lib.clock import from_rfc3339
from universal.events import EventType, ItemData, PermissionData, QuestionData, SessionStartedData, UniversalEvent
from universal.items import ItemKind, ItemRole, StatusPart
from universal.lib.jsonvalue import obj, text
from universal.session.reducer import Reducer

TurnState: TypeAlias = Literal["idle", "queued", "running", "waiting"]


@dataclass(frozen=True, slots=True)
class Row:
    """A universal event with its OpenCode events.

    opencode  events as on `/event`, without ids: {"type", "properties"}
    state     idle; queued: a turn began and the agent has no prompt yet; running; waiting for a user
    queued    number of prompts that the agent did not get yet
    open      ids of the open permission requests and questions
    """

    event: UniversalEvent
    opencode: tuple[dict[str, Any], ...]
    state: TurnState
    queued: int
    open: tuple[str, ...]


class Tracer:
    """Replays the events of a session, which the caller feeds from the first one on. `sequence`: the last event's."""

    def __init__(self, session_id: str, agent: str) -> None:
        self._reducer = Reducer(session_id, agent)
        self._busy = False
        self._at_work = False
        self._prompts: set[str] = set()
        self._open: dict[str, None] = {}
        self.sequence = 0

    def feed(self, event: UniversalEvent) -> Row:
        now = from_rfc3339(event.time)
        events = render(self._reducer.apply(event, now), self._reducer.session, now)
        self._fold(event)
        self.sequence = event.sequence
        opencode = tuple({"type": output.type, "properties": output.properties} for output in events)
        return Row(event, opencode, self._state(), len(self._prompts), tuple(self._open))

    def _state(self) -> TurnState:
        if not self._busy:
            return "idle"
        if self._open:
            return "waiting"
        return "running" if self._at_work else "queued"

    def _fold(self, event: UniversalEvent) -> None:
        data = event.data
        match event.type:
            case EventType.TURN_STARTED:
                self._busy = True
                self._at_work = not self._prompts  # without a prompt, the agent began the turn itself
            case EventType.TURN_ENDED:
                self._busy = self._at_work = False
                self._open.clear()
            case EventType.ITEM_COMPLETED if isinstance(data, ItemData):
                self._item(data)
            case EventType.PERMISSION_REQUESTED if isinstance(data, PermissionData):
                if not obj(data.metadata).get("auto"):
                    self._open[data.permission_id] = None
            case EventType.QUESTION_REQUESTED if isinstance(data, QuestionData):
                if not obj(data.metadata).get("auto"):
                    self._open[data.question_id] = None
            case EventType.PERMISSION_RESOLVED if isinstance(data, PermissionData):
                self._open.pop(data.permission_id, None)
            case EventType.QUESTION_RESOLVED if isinstance(data, QuestionData):
                self._open.pop(data.question_id, None)
            case _:
                pass

    def _item(self, data: ItemData) -> None:
        item = data.item
        if item.kind is ItemKind.MESSAGE and item.role is ItemRole.USER:
            self._prompts.add(item.item_id)
        elif item.kind is ItemKind.STATUS and any(isinstance(p, StatusPart) and p.label == "prompt" for p in item.content):
            meta = obj(item.metadata)
            self._prompts.discard(text(meta.get("item_id")))
            self._at_work = self._at_work or meta.get("state") in ("handed", "own")


def tracer_of(first: UniversalEvent) -> Tracer:
    """Create a tracer for the session that this event starts."""
    metadata = obj(first.data.metadata) if isinstance(first.data, SessionStartedData) else {}
    return Tracer(first.session_id, text(metadata.get("agent"), "mock"))
