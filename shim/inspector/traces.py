"""Serves replays of sessions page by page. A cached replay continues where the last page ended.

A row has the stored event for the wire. The replay drops raw payloads, because the projection does not need them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from shim.inspector.trace import Row, Tracer, tracer_of
from shim.store.base import Store
from shim.store.rows import EventRow, event_of

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
