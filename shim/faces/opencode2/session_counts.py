"""Reads sessions for statistics: their messages without texts, once for each state of the journal.

    Counted.of(session)  -> its record, and messages as JSON with the fields that `shim.faces.opencode2.stats` reads

Sessions are read one after the other, also for several callers, and are not loaded: each is read from its checkpoint and the rest
of its journal, page by page. At most KEPT summaries are kept, with about 200 bytes for each step of a model. A session that has
changed is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shim.faces.opencode2 import names, read
from shim.faces.opencode2.events import Wire
from shim.sessions.journal_loader import load_journal
from shim.sessions.session_state import SessionState
from shim.store.base import Store
from universal.session.entries import StepEntry
from universal.session.model import Session, SessionRecord

KEPT = 10_000
AT_ONCE = 32
"""Messages that are counted before others have their turn: a few ms, if they were packed."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A session's record and messages, up to the event `sequence` of its journal."""

    sequence: int
    record: SessionRecord
    messages: tuple[Wire, ...]


class CountedSessions:
    """The summaries of sessions.

    In: `loaded`, which returns a session if it is loaded; `detached`, which makes a state to read one into that is not.
    """

    def __init__(
        self, store: Store, loaded: Callable[[str], Session | None], detached: Callable[[str], SessionState | None]
    ) -> None:
        self._store = store
        self._loaded = loaded
        self._detached = detached
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
            return await _summary_of(sequence, session.copy())
        state = self._detached(session_id)
        if state is None:
            return None
        self.read += 1
        await load_journal(state, self._store)
        return await _summary_of(state.sequence, state.session) if state.sequence else None


async def _summary_of(sequence: int, session: Session) -> Summary:
    found: list[Wire] = []
    for number, wire in enumerate(_count(session), 1):
        found += [] if wire is None else [wire]
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    return Summary(sequence, session.record, tuple(found))


def _count(session: Session) -> Iterator[Wire | None]:
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
        yield kept if kind in ("assistant", "user") else None
