"""What each universal event of a session made: its OpenCode events, and the turn's state after it. For the inspector. Pure.

The projection is a function of the journal (docs/adr/0003), so this is a replay of it: the same ids, the same events as the
clients were sent, but for those of other sources (a growing text told anew to who reads in the middle).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from shim.clock import from_rfc3339
from shim.faces.opencode1.render import render
from universal.events import (
    EventType,
    ItemData,
    PermissionData,
    QuestionData,
    SessionStartedData,
    UniversalEvent,
)
from universal.items import ItemKind, ItemRole, StatusPart
from universal.jsonvalue import obj, text
from universal.session.reducer import Reducer

TurnState: TypeAlias = Literal["idle", "queued", "running", "waiting"]


@dataclass(frozen=True, slots=True)
class Row:
    """One event and what it made.

    opencode  events as on `/event`, without ids: {"type", "properties"}
    state     idle; queued: a turn has begun and the agent has no prompt yet; running; waiting for a person
    queued    prompts that the agent has not been given
    open      ids of what a person is asked
    """

    event: UniversalEvent
    opencode: tuple[dict[str, Any], ...]
    state: TurnState
    queued: int
    open: tuple[str, ...]


class Tracer:
    """Feed it a session's events from the first one on. `sequence` is the last one that it was fed."""

    def __init__(self, session_id: str, agent: str) -> None:
        self._reducer = Reducer(session_id, agent)
        self._busy = False
        self._at_work = False
        self._prompts: set[str] = set()
        self._open: dict[str, None] = {}
        self.sequence = 0

    def feed(self, event: UniversalEvent) -> Row:
        """The next event."""
        now = from_rfc3339(event.time)
        made = render(self._reducer.apply(event, now), self._reducer.session, now)
        self._fold(event)
        self.sequence = event.sequence
        opencode = tuple({"type": one.type, "properties": one.properties} for one in made)
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
                self._at_work = not self._prompts  # the agent woke up by itself
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
    """A tracer for the session that this event begins."""
    metadata = obj(first.data.metadata) if isinstance(first.data, SessionStartedData) else {}
    return Tracer(first.session_id, text(metadata.get("agent"), "mock"))
