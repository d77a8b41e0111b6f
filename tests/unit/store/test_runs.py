"""Pieces of one text as one row of the journal: the same events, whatever is said and however it comes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.lib.clock import from_rfc3339
from shim.lib.errors import StoreError
from shim.sessions.history.journal_loader import join_deltas
from shim.store.rows import RAW_LIMIT_BYTES, EventRow, event_of, event_rows
from shim.store.runs import LONGEST, SHORTEST, brief_rows_of, journal_rows, rows_of
from shim.store.sqlite import SqliteStore
from tests.conftest import LAW_EXAMPLES
from tests.properties.walk import Walk
from tests.unit.store.store_contract import LONE, event
from universal.events import ItemData, ItemDeltaData, Source, UniversalEvent
from universal.items import Item, ItemKind, ItemStatus
from universal.session.messages import Message
from universal.session.reducer import Reducer


def delta_event(sequence: int, text: str = "piece ", item: str = "a", *, session: str = "ses_a", **of: Any) -> UniversalEvent:
    data = ItemDeltaData(item_id=item, delta=text, **of)
    one = event(sequence, session, data=data, raw={"n": sequence})
    return one.model_copy(update={"native_session_id": "native", "source": Source.AGENT, "synthetic": False})


def deltas(first: int, last: int, **of: Any) -> list[UniversalEvent]:
    """Pieces `first` to `last`, both included."""
    return [delta_event(number, f"{number} ", **of) for number in range(first, last + 1)]


def fold(session_id: str, rows: Iterable[EventRow]) -> dict[str, Message]:
    """The messages of the session."""
    reducer = Reducer(session_id, "mock")
    for one in join_deltas(rows):
        reducer.load(one, from_rfc3339(one.time))
    return reducer.session.messages


@settings(max_examples=LAW_EXAMPLES // 2, deadline=None)
@given(st.binary(min_size=40, max_size=160), st.integers(2, 5), st.integers(2, 9), st.integers(1, 40), st.integers(0, 30))
def test_any_journal_reads_the_same_however_it_comes(
    history: bytes, shortest: int, longest: int, together: int, after: int
) -> None:
    """`together`: how many events are appended at once."""
    story = Walk(history).story
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shim.store.runs.SHORTEST", shortest)
        patch.setattr("shim.store.runs.LONGEST", longest)
        stored = [
            row
            for begin in range(0, len(story.journal), together)
            for row in journal_rows(story.journal[begin : begin + together])
        ]
    assert [event_of(one) for row in stored for one in rows_of(row)] == story.journal
    assert [one._replace(raw=None) for row in stored for one in rows_of(row)] == [
        one._replace(raw=None) for one in event_rows(story.journal)
    ], "the texts too, which are sent as they are"
    brief = [one for row in stored for one in brief_rows_of(row, 0)]
    assert fold(story.id, brief) == fold(story.id, event_rows(story.journal))
    behind = [one.sequence for row in stored if row.sequence > after for one in brief_rows_of(row, after)]
    assert behind == sorted(set(behind))
    assert behind[-1:] == ([story.journal[-1].sequence] if after < story.journal[-1].sequence else [])
    assert all(sequence > after for sequence in behind)


def test_pieces_of_one_text_are_one_row() -> None:
    (row,) = journal_rows(deltas(7, 7 + 9))
    assert (row.first, row.sequence, row.event_id) == (7, 16, "evt_ses_a_16")
    assert [event_of(one) for one in rows_of(row)] == deltas(7, 16)
    first, rest = map(event_of, brief_rows_of(row, 0))
    assert (first.sequence, rest.sequence, first.time, rest.raw) == (7, 16, deltas(7, 7)[0].time, None)
    assert [one.data.delta for one in (first, rest) if isinstance(one.data, ItemDeltaData)] == [
        "7 ",
        "8 9 10 11 12 13 14 15 16 ",
    ]
    assert [one.sequence for one in brief_rows_of(row, 14)] == [15, 16]
    assert [one.sequence for one in brief_rows_of(row, 15)] == [16]


OTHER = {
    "item": {"item": "b"},
    "session": {"session": "ses_b"},
    "part": {"part_index": 1},
    "kind of part": {"part_type": "reasoning"},
    "the agent's item": {"native_item_id": "itm"},
}


@pytest.mark.parametrize("other", OTHER.values(), ids=OTHER)
def test_pieces_of_different_texts_are_different_rows(other: dict[str, Any]) -> None:
    rows = journal_rows([*deltas(1, SHORTEST), *deltas(11, 10 + SHORTEST, **other)])
    assert [(row.first, row.sequence) for row in rows] == [(1, SHORTEST), (11, 10 + SHORTEST)]


ENVELOPES: dict[str, dict[str, object]] = {
    "native session": {"native_session_id": "other"},
    "source": {"source": Source.DAEMON},
    "who made it": {"synthetic": True},
}


@pytest.mark.parametrize("other", ENVELOPES.values(), ids=ENVELOPES)
def test_pieces_of_different_origins_are_different_rows(other: dict[str, object]) -> None:
    rest = [one.model_copy(update=other) for one in deltas(SHORTEST + 1, 2 * SHORTEST)]
    assert len(journal_rows([*deltas(1, SHORTEST), *rest])) == 2


@pytest.mark.parametrize("raw", [{"lone": LONE}, {"big": 2**70}, "x" * RAW_LIMIT_BYTES], ids=["surrogate", "integer", "long"])
def test_pieces_that_do_not_fit_in_a_run_have_rows_of_their_own(raw: Any) -> None:
    pieces = [one.model_copy(update={"raw": raw}) for one in deltas(1, 6)]
    rows = journal_rows(pieces)
    assert [row.first for row in rows] == [None] * 6
    assert rows == event_rows(pieces)


def test_a_run_is_neither_short_nor_endless() -> None:
    assert [row.first for row in journal_rows(deltas(1, SHORTEST - 1))] == [None] * (SHORTEST - 1)
    assert [(row.first, row.sequence) for row in journal_rows(deltas(1, LONGEST + SHORTEST))] == [
        (1, LONGEST),
        (LONGEST + 1, LONGEST + SHORTEST),
    ]


def test_pieces_of_a_tools_output_are_not_joined_for_a_reader_of_text() -> None:
    """Each is an event that lasts, with a number of its own."""
    (row,) = journal_rows(deltas(1, 6, part_type="tool_output"))
    assert [one.sequence for one in brief_rows_of(row, 2)] == [3, 4, 5, 6]


# --- on disk -------------------------------------------------------------------------------------------------


def long_answer(first: int, pieces: int) -> list[UniversalEvent]:
    """So many pieces, then the whole."""
    last = first + pieces
    item = Item(item_id="a", kind=ItemKind.MESSAGE, status=ItemStatus.COMPLETED)
    return [*deltas(first, last - 1), event(last, data=ItemData(item=item))]


async def open_store(path: Path, *events: Sequence[UniversalEvent]) -> SqliteStore:
    store = SqliteStore(path / "journal.db")
    await store.open()
    for some in events:
        store.append(some)
    return store


async def test_a_journal_is_read_from_wherever_and_page_by_page(tmp_path: Path) -> None:
    """Also after a restart."""
    journal = [*long_answer(1, 500), *long_answer(502, 2), *long_answer(505, 300)]
    numbers = [one.sequence for one in journal]
    for written in ((journal[:70], journal[70:600], journal[600:]), ()):
        store = await open_store(tmp_path, *written)
        assert await store.events("ses_a") == journal
        for after, limit in ((0, None), (3, 10), (69, 2), (250, 300), (500, 5), (803, 9), (900, 9)):
            expected = numbers[after:][:limit]
            assert [row.sequence for row in await store.rows("ses_a", after, limit)] == expected
            assert [one.sequence for one in await store.events("ses_a", after, limit)] == expected
        for limit in (1, 2, 7, 30):
            after, found = 0, list[EventRow]()
            while page := await store.brief("ses_a", after, limit):
                found += page
                after = found[-1].sequence
            assert fold("ses_a", found) == fold("ses_a", event_rows(journal))
            assert len(found) < 30
        await store.close()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        assert db.execute("SELECT count(*) FROM event").fetchone()[0] < 20


async def test_a_deleted_session_leaves_none(tmp_path: Path) -> None:
    store = await open_store(tmp_path, long_answer(1, 200))
    store.delete_session("ses_a")
    store.append([delta_event(1, "anew"), delta_event(2, "and on")])
    assert [row.sequence for row in await store.brief("ses_a", 0, 1_000)] == [1, 2]
    await store.close()


@pytest.mark.parametrize("body", ["{", "[1]", "{}", '{"data": {}, "pieces": []}', '{"data": {}, "pieces": [[1], [2]]}'])
async def test_a_damaged_row_is_named(tmp_path: Path, body: str) -> None:
    store = await open_store(tmp_path, long_answer(1, 200))
    await store.flush()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db, db:
        db.execute("UPDATE event SET body = ? WHERE first IS NOT NULL", (body,))
    for read in (store.rows("ses_a"), store.events("ses_a"), store.brief("ses_a", 0, 1_000)):
        with pytest.raises(StoreError, match="stored events 1 to 200 of session ses_a cannot be read"):
            await read
    await store.close()
