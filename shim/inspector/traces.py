"""Traces of sessions, page by page: a replay goes on where the last page ended, as long as it is remembered. Bounded.

A row's event is the stored text, for the wire; what is replayed has no raw payload, since the projection needs none.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from shim.inspector.trace import Row, Tracer, tracer_of
from shim.store.base import Store
from shim.store.rows import EventRow, event_of

REMEMBERED = 8
"""Replays that wait for their next page. Each holds its session's conversation."""
STEP = 500
"""Events between two turns of the event loop."""


class Traces:
    """Replays over the journals of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: OrderedDict[str, Tracer] = OrderedDict()

    async def page(self, session_id: str, after: int, limit: int) -> tuple[list[tuple[EventRow, Row]], bool]:
        """Rows after a sequence, at most `limit`, and whether there are more. Raises StoreError."""
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
            for one in stored:
                event = event_of(one, with_raw=False)
                tracer = tracer or tracer_of(event)
                row = tracer.feed(event)
                if event.sequence > after:
                    rows.append((one, row))
            await asyncio.sleep(0)
        if tracer is not None:
            more = self._store.last_sequence(session_id) > tracer.sequence
            self._waiting[session_id] = tracer
            while len(self._waiting) > REMEMBERED:
                self._waiting.popitem(last=False)
        return rows, more

    async def tracer(self, session_id: str, after: int) -> Tracer:
        """A replay of its own that has come to this sequence (or to the journal's end), to be fed with what follows."""
        first = await self._store.events(session_id, 0, 1)
        tracer = tracer_of(first[0]) if first else Tracer(session_id, "mock")
        while tracer.sequence < after:
            stored = await self._store.rows(session_id, tracer.sequence, min(STEP, after - tracer.sequence))
            for one in stored:
                tracer.feed(event_of(one, with_raw=False))
            if not stored:
                break
            await asyncio.sleep(0)
        return tracer

    def forget(self, session_id: str) -> None:
        """The session is gone."""
        self._waiting.pop(session_id, None)
