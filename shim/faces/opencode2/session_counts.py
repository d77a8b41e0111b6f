"""Reads sessions for statistics: their messages without texts, once for each state of the journal.

    Counted.of(session)  -> its record, and messages as JSON with the fields that `shim.faces.opencode2.stats` reads

Sessions are read one after the other, also for several callers, and are not loaded. At most KEPT summaries are kept, with about
200 bytes for each step of a model. A session that has changed is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shim.clock import from_rfc3339
from shim.faces.opencode2 import names, read
from shim.faces.opencode2.events import Wire
from shim.sessions.journal_loader import PAGE, SLICE, join_deltas
from shim.store.base import Store
from universal.session.entries import StepEntry
from universal.session.model import Session, SessionRecord
from universal.session.reducer import Reducer, reducer_of

KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Summary:
    """A session's record and messages, up to the event `sequence` of its journal."""

    sequence: int
    record: SessionRecord
    messages: tuple[Wire, ...]


class CountedSessions:
    """The summaries of sessions. In: `loaded`, which returns a session if it is loaded."""

    def __init__(self, store: Store, loaded: Callable[[str], Session | None]) -> None:
        self._store = store
        self._loaded = loaded
        self._kept: dict[str, Summary] = {}
        self._reading = asyncio.Lock()
        self.read = 0
        """Number of sessions that were read from the journal."""

    async def of(self, session_id: str) -> Summary | None:
        """The summary of a session, or None if it is gone or empty. Raises StoreError."""
        async with self._reading:
            kept = self._kept.pop(session_id, None)
            if kept is None or kept.sequence != self._store.last_sequence(session_id):
                kept = await self._summary(session_id)
            if kept is not None:
                self._kept[session_id] = kept  # at the end: the most recently used
                if len(self._kept) > KEPT:
                    del self._kept[next(iter(self._kept))]
            return kept

    async def _summary(self, session_id: str) -> Summary | None:
        sequence = self._store.last_sequence(session_id)
        if (session := self._loaded(session_id)) is not None:
            return _summary_of(sequence, session)
        self.read += 1
        reducer: Reducer | None = None
        sequence = 0
        while page := await self._store.brief(session_id, sequence, PAGE):
            for number, event in enumerate(join_deltas(page)):
                reducer = reducer or reducer_of(event)
                reducer.load(event, from_rfc3339(event.time))
                if number % SLICE == 0:
                    await asyncio.sleep(0)
            sequence = page[-1].sequence
        return None if reducer is None else _summary_of(sequence, reducer.session)


def _summary_of(sequence: int, session: Session) -> Summary:
    return Summary(sequence, session.record, tuple(_count(session)))


def _count(session: Session) -> Iterator[Wire]:
    for entry in session.timeline.entries.values():
        kind = read.kind_of(entry)
        kept: Wire = {"type": kind, "time": {"created": entry.created_ms}}
        if isinstance(entry, StepEntry):
            calls = [wire for wire in read.content(entry, session) if wire["type"] == "tool"]
            kept["content"] = [
                {"type": "tool", "name": wire["name"], "time": wire["time"], "state": {"status": wire["state"]["status"]}}
                for wire in calls
            ]
            kept |= {"model": names.model_ref(entry.model), **read.step_cost(entry)}
        if kind in ("assistant", "user"):
            yield kept
