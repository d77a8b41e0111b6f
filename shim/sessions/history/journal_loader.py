"""Loads a session's journal into its state, in time slices, with growing texts in few pieces.

Most events of a long session are pieces of text, of which only the sum matters. So pieces of one part that
stand between two other events are fed as two: the first, whose time is the part's, and the rest as one. What HTTP reads is
the same as if each had been fed (tests/unit/sessions/history/test_journal_loader.py), at a third of the time. Of long runs of
pieces the store has kept that already (docs/adr/0024).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import starmap
from time import perf_counter
from typing import Any

from shim.lib.errors import StoreError
from shim.sessions.history import checkpoints
from shim.sessions.session.session_state import SessionState
from shim.store.base import Store
from shim.store.rows import EventRow, body_of, event_of
from shim.store.stretches import JOINED, Key, PartsRun
from universal.events import EventType, ItemDeltaData, UniversalEvent
from universal.lib.jsonvalue import obj

PAGE = 1_000
"""Rows of the journal that are read at once."""
SLICE_S = 0.002
"""Seconds for which events are folded in at once. A request that comes meanwhile waits for some four of them:
it is read, begun, answered and written.
"""


TRIES = 8
"""Times that a journal which grows meanwhile is read on, to mend a session."""


async def load_journal(state: SessionState, store: Store, *, is_whole: bool = False, until: int | None = None) -> None:
    """Feed a session's state the part of its journal that it has not read. Raises StoreError if an event cannot be read.

    In: `is_whole`, read all of the journal, although there may be a checkpoint; `until`, the last event to read.
    """
    if state.sequence == 0 and not is_whole:
        await checkpoints.open_from(state, store, until=until)
    while page := await store.brief(state.id, state.sequence, PAGE if until is None else min(PAGE, until - state.sequence)):
        pause_at = perf_counter() + SLICE_S
        for event in join_deltas(page):
            state.load((event,))
            if event.type is EventType.TURN_ENDED:
                with suppress(TypeError, ValueError):  # logged when its checkpoint is written
                    await checkpoints.pack_in_steps(state)
            if perf_counter() > pause_at:
                await asyncio.sleep(0)  # other sessions go on
                pause_at = perf_counter() + SLICE_S


async def mend(state: SessionState, whole: SessionState, store: Store) -> None:
    """Remake the pages of a session that the store has lost, from its journal.

    In: `whole`, a state of the same session that has read nothing. Raises StoreError.
    """
    for _ in range(TRIES):
        await load_journal(whole, store, is_whole=True)
        if whole.sequence == state.sequence:
            checkpoints.mend(state, whole.session)
            return
    raise StoreError(f"Session {state.id} cannot be mended while so much happens in it: ask again.")


def join_deltas(rows: Iterable[EventRow]) -> Iterator[UniversalEvent]:
    """The events of these rows without raw payloads, with pieces joined.

    Sequences ascend; the last one is the last row's.

    Raises StoreError for a row that cannot be read.
    """
    run: PartsRun[tuple[EventRow, Any]] = PartsRun()
    for row in rows:
        body = body_of(row)
        key, piece = _delta_of(body) if row.type == EventType.ITEM_DELTA else (None, "")
        if key is not None:
            yield from starmap(_join, run.add(key, ((row, body),), (piece,)))
        else:
            yield from starmap(_join, run.take())
            yield event_of(row, with_raw=False, body=body)
    yield from starmap(_join, run.take())


def _delta_of(body: Any) -> tuple[Key | None, str]:
    """The part that a delta is for, and its text; None if the delta cannot be joined."""
    data = obj(obj(body).get("data"))
    piece = data.get("delta")
    if data.get("part_type") not in JOINED or not isinstance(piece, str):
        return None, ""
    return (data.get("item_id"), data.get("part_index")), piece


def _join(last: tuple[EventRow, Any], text: str) -> UniversalEvent:
    row, body = last
    event = event_of(row, with_raw=False, body=body)
    assert isinstance(event.data, ItemDeltaData)
    if event.data.delta == text:
        return event
    return event.model_copy(update={"data": event.data.model_copy(update={"delta": text})})
