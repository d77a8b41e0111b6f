"""Loads a session's journal into its state, in time slices, with growing texts in few pieces.

Most events of a long session are pieces of text, of which only the sum matters. So pieces of one part that
stand between two other events are fed as two: the first, whose time is the part's, and the rest as one. What HTTP reads is
the same as if each had been fed (tests/unit/sessions/history/test_journal_loader.py), at a third of the time. What came
together the store has joined already (docs/adr/0024).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import starmap
from time import perf_counter
from typing import Any, TypeAlias

from shim.lib.errors import StoreError
from shim.sessions.history import checkpoints
from shim.sessions.session.session_state import SessionState
from shim.store.base import Store
from shim.store.rows import EventRow, body_of, event_of
from shim.store.runs import JOINED
from universal.events import EventType, ItemDeltaData, UniversalEvent
from universal.lib.jsonvalue import obj

_Key: TypeAlias = tuple[object, object]
"""The item and part of a piece of text."""
_Read: TypeAlias = tuple[EventRow, Any]
"""A row, and its body."""

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
        if until is not None and page[-1].sequence > until:  # a run is read whole
            page = await store.rows(state.id, state.sequence, until - state.sequence, with_raw=False)
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
    run = _PartsRun()
    for row in rows:
        body = body_of(row)
        key, piece = _delta_of(body) if row.type == EventType.ITEM_DELTA else (None, "")
        if key is not None:
            yield from starmap(_join, run.add(key, (row, body), piece))
        else:
            yield from starmap(_join, run.take())
            yield event_of(row, with_raw=False, body=body)
    yield from starmap(_join, run.take())


class _PartsRun:
    """Pieces of several texts with nothing else between them, joined to two for each: the first, and all others.

    The first stands alone, since its time is the time of the part, and after all pieces that came before it. A joined piece has
    the row of its last piece. Joined pieces are in the order of these last pieces, so sequences ascend.
    """

    __slots__ = ("_started", "_texts")

    def __init__(self) -> None:
        self._started: set[_Key] = set()
        self._texts: dict[_Key, tuple[_Read, list[str]]] = {}

    def add(self, key: _Key, read: _Read, piece: str) -> list[tuple[_Read, str]]:
        """Append a piece to the text of this key; return the pieces that are complete now, joined."""
        if key not in self._started:
            self._started.add(key)
            return [*self._join(), (read, piece)]
        _, text = self._texts.pop(key, (read, []))  # put in again at the end
        text.append(piece)
        self._texts[key] = read, text
        return []

    def take(self) -> list[tuple[_Read, str]]:
        """Return the pieces that are left, joined, and start an empty run."""
        self._started = set()
        return self._join()

    def _join(self) -> list[tuple[_Read, str]]:
        texts, self._texts = self._texts, {}
        return [(read, "".join(pieces)) for read, pieces in texts.values()]


def _delta_of(body: Any) -> tuple[_Key | None, str]:
    """The part that a delta is for, and its text; None if the delta cannot be joined."""
    data = obj(obj(body).get("data"))
    piece = data.get("delta")
    if data.get("part_type") not in JOINED or not isinstance(piece, str):
        return None, ""
    return (data.get("item_id"), data.get("part_index")), piece


def _join(last: _Read, text: str) -> UniversalEvent:
    row, body = last
    event = event_of(row, with_raw=False, body=body)
    assert isinstance(event.data, ItemDeltaData)
    if event.data.delta == text:
        return event
    return event.model_copy(update={"data": event.data.model_copy(update={"delta": text})})
