"""A journal that is read with fewer pieces makes the same conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.faces.opencode1 import read
from shim.lib.clock import ManualClock, from_rfc3339
from shim.lib.errors import StoreError
from shim.sessions.history import journal_loader
from shim.sessions.history.journal_loader import join_deltas
from shim.sessions.session.session_state import SessionState
from shim.store.memory import MemoryStore
from shim.store.rows import row_of
from tests.conftest import LAW_EXAMPLES
from tests.properties.walk import Walk
from tests.support.session_states import state_deps
from universal.events import EventType, ItemDeltaData, Source, UniversalEvent
from universal.session.model import Session
from universal.session.reducer import Reducer


def fed(session_id: str, events: Iterable[UniversalEvent]) -> Session:
    reducer = Reducer(session_id, "mock")
    for event in events:
        reducer.apply(event, from_rfc3339(event.time))
    return reducer.session


def client_view(session: Session) -> object:
    """What clients see of it: texts that stream are joined."""
    return read.export(session)


@settings(max_examples=LAW_EXAMPLES // 2, deadline=None)
@given(st.binary(min_size=40, max_size=160), st.integers(1, 60))
def test_any_text_reads_the_same_wherever_a_page_ends(history: bytes, page: int) -> None:
    story = Walk(history).story
    rows = [row_of(event) for event in story.journal]
    events = [event for begin in range(0, len(rows), page) for event in join_deltas(rows[begin : begin + page])]
    sequences = [event.sequence for event in events]
    assert sequences == sorted(set(sequences))
    assert sequences[-1:] == [row.sequence for row in rows[-1:]]
    assert client_view(fed(story.id, events)) == client_view(fed(story.id, story.journal))


def delta(sequence: int, text: str, item: str = "a", part: int = 0) -> UniversalEvent:
    return UniversalEvent(
        event_id=f"evt_{sequence}",
        sequence=sequence,
        time=f"2026-11-22T00:00:{sequence:02}.000Z",
        session_id="ses_a",
        native_session_id=f"native {sequence}",
        source=Source.AGENT,
        synthetic=False,
        type=EventType.ITEM_DELTA,
        data=ItemDeltaData(item_id=item, delta=text, part_index=part),
        raw={"n": sequence},
    )


def test_pieces_of_a_part_are_its_first_and_the_rest() -> None:
    events = [delta(1, "a"), delta(2, "b"), delta(3, "c"), delta(4, "x", "b"), delta(5, "d"), delta(6, "y", "b"), delta(7, "e")]
    told = [
        (event.sequence, event.native_session_id, event.data.delta)
        for event in join_deltas(map(row_of, events))
        if isinstance(event.data, ItemDeltaData)
    ]
    assert told == [
        (1, "native 1", "a"),
        (3, "native 3", "bc"),
        (4, "native 4", "x"),
        (6, "native 6", "y"),
        (7, "native 7", "de"),
    ]


def test_a_row_that_cannot_be_read() -> None:
    good = row_of(delta(1, "a"))
    for body in ("{", '{"data":7}', '{"data":{"delta":1}}'):
        with pytest.raises(StoreError, match="event 2 of session ses_a"):
            list(join_deltas([good, good._replace(sequence=2, body=body)]))


async def empty_branch(store: MemoryStore, events: Sequence[UniversalEvent]) -> SessionState:
    await store.open()
    store.append(events)
    clock = ManualClock()
    return SessionState("ses_a", "mock", state_deps(store, clock))


async def test_loading_a_journal_yields_to_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_loader, "SLICE_S", -1.0)
    state = await empty_branch(MemoryStore(), [delta(number, "a", f"item {number}") for number in range(1, 60)])
    seen: list[int] = []

    async def look() -> None:
        while state.sequence < 59:
            seen.append(state.sequence)
            await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(look(), journal_loader.load_journal(state, state.journal._store)), 10)
    assert seen == list(range(59))
