"""Replays a session's journal: each event with its OpenCode events and the turn's state after it. Pure.

The projection is a function of the journal (docs/adr/0003), so a replay gives the same ids and events that clients got, except
for resent events (the text so far, for a client that joins late).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from shim.faces.opencode1.events import render
from shim.lib.clock import from_rfc3339
from shim.store.base import Store
from shim.store.rows import EventRow, event_of
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


REPLAYS_LIMIT = 8
"""Maximum cached replays. Each holds its session's conversation in memory."""
STEP = 500
"""Events that are replayed before other tasks get their turn."""


class Traces:
    """The replays of a store's journals."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: OrderedDict[str, Tracer] = OrderedDict()

    async def page(self, session_id: str, after: int, limit: int) -> tuple[list[tuple[EventRow, Row]], bool]:
        """Return at most `limit` rows after a sequence, and whether there are more. Raises StoreError."""
        tracer = self._waiting.pop(session_id, None)
        if tracer is not None and tracer.sequence > after:
            tracer = None
        rows: list[tuple[EventRow, Row]] = []
        more = True
        while more and len(rows) < limit:
            at = tracer.sequence if tracer is not None else 0
            want = min(STEP, after - at if at < after else limit - len(rows))
            stored = await self._store.rows(session_id, at, want)
            more = len(stored) == want
            for entry in stored:
                event = event_of(entry, with_raw=False)
                tracer = tracer or tracer_of(event)
                row = tracer.feed(event)
                if event.sequence > after:
                    rows.append((entry, row))
            await asyncio.sleep(0)  # other requests go on
        if tracer is not None:
            more = self._store.last_sequence(session_id) > tracer.sequence
            self._waiting[session_id] = tracer
            while len(self._waiting) > REPLAYS_LIMIT:
                self._waiting.popitem(last=False)
        return rows, more

    async def tracer(self, session_id: str, after: int) -> Tracer:
        """Create a replay up to this sequence (or the journal's end), which the caller feeds with later events."""
        first = await self._store.events(session_id, 0, 1)
        tracer = tracer_of(first[0]) if first else Tracer(session_id, "mock")
        while tracer.sequence < after:
            stored = await self._store.rows(session_id, tracer.sequence, min(STEP, after - tracer.sequence))
            for entry in stored:
                tracer.feed(event_of(entry, with_raw=False))
            if not stored:
                break
            await asyncio.sleep(0)  # other requests go on
        return tracer

    def forget(self, session_id: str) -> None:
        """Drop the cached replay of a deleted session."""
        self._waiting.pop(session_id, None)
