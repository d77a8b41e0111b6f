"""Runs of pieces as the events that they add up to: the same conversation, whatever is said and wherever a run is cut."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.lib.clock import from_rfc3339
from shim.lib.errors import StoreError
from shim.sessions.history.journal_loader import join_deltas
from shim.store import stretches
from shim.store.rows import EventRow, event_of, row_of
from shim.store.sqlite import SqliteStore
from shim.store.stretches import PartsRun, Stretch, Stretches, rows_of
from tests.conftest import LAW_EXAMPLES
from tests.properties.walk import Walk
from tests.unit.store.store_contract import LONE, event
from universal.events import ItemData, ItemDeltaData, UniversalEvent
from universal.items import Item, ItemKind, ItemStatus
from universal.session.messages import Message
from universal.session.reducer import Reducer


def delta_event(sequence: int, text: str, item: str = "a", *, session: str = "ses_a") -> UniversalEvent:
    return event(sequence, session, data=ItemDeltaData(item_id=item, delta=text), raw={"n": sequence})


def brief(journal: Iterable[UniversalEvent], over: Iterable[Stretch]) -> Iterator[EventRow]:
    """The journal's rows, those of the stretches in the place of theirs."""
    left = {stretch.first: stretch for stretch in over}
    until = 0
    for one in journal:
        if one.sequence in left:
            yield from rows_of(left[one.sequence])
            until = left[one.sequence].last
        elif one.sequence > until:
            yield row_of(one)


def fold(session_id: str, rows: Iterable[EventRow]) -> tuple[dict[str, Message], int]:
    """Messages, and how many lasting events there were."""
    reducer = Reducer(session_id, "mock")
    for one in join_deltas(rows):
        reducer.load(one, from_rfc3339(one.time))
    return reducer.session.messages, reducer.session.lasting


@settings(max_examples=LAW_EXAMPLES // 2, deadline=None)
@given(st.binary(min_size=40, max_size=160), st.integers(1, 4), st.integers(2, 9), st.integers(0, 3))
def test_any_text_reads_the_same_wherever_it_is_cut(history: bytes, shortest: int, longest: int, skipped: int) -> None:
    """`skipped`: the server died, and the stretches before that were never closed."""
    story = Walk(history).story
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "SHORTEST", shortest)
        patch.setattr(stretches, "LONGEST", longest)
        over = Stretches().add(story.journal[skipped:])
    rows = list(brief(story.journal, over))
    assert [row.sequence for row in rows] == sorted({row.sequence for row in rows})
    assert rows[-1].sequence == story.journal[-1].sequence
    assert fold(story.id, rows) == fold(story.id, map(row_of, story.journal))


def test_of_each_part_the_first_piece_and_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "SHORTEST", 1)
    texts = [("a", "a"), ("b", "a"), ("c", "a"), ("x", "b"), ("d", "a"), ("y", "b"), ("e", "a"), (LONE, "b")]
    journal = [delta_event(sequence, *text) for sequence, text in enumerate(texts, 1)]
    item = Item(item_id="a", kind=ItemKind.MESSAGE, status=ItemStatus.COMPLETED)
    growing = Stretches()
    assert growing.add(journal) == []
    (stretch,) = growing.add([event(9, data=ItemData(item=item)), delta_event(10, "another one")])
    assert stretch[:3] == ("ses_a", 1, 8)
    read = [event_of(row) for row in rows_of(stretch)]
    assert [(one.sequence, one.data.delta) for one in read if isinstance(one.data, ItemDeltaData)] == [
        (1, "a"),
        (3, "bc"),
        (4, "x"),
        (7, "de"),
        (8, "y" + LONE),
    ]
    assert all(one.raw is None for one in read)
    for one in read:
        of_it = journal[one.sequence - 1]
        assert (one.event_id, one.time, one.native_session_id) == (of_it.event_id, of_it.time, of_it.native_session_id)


def test_few_pieces_and_those_of_a_tool_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "SHORTEST", 3)
    growing = Stretches()
    output = ItemDeltaData(item_id="t", delta="line", part_type="tool_output")
    assert growing.add([delta_event(1, "a"), delta_event(2, "b"), *(event(number, data=output) for number in range(3, 9))]) == []
    (stretch,) = growing.add([delta_event(9, "a"), delta_event(10, "b"), delta_event(11, "c"), event(12, data=output)])
    assert (stretch.first, stretch.last) == (9, 11)


def test_sessions_grow_beside_each_other_and_what_grows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "SHORTEST", 1)
    monkeypatch.setattr(stretches, "LONGEST", 3)
    growing = Stretches()
    events = [delta_event(number, "x", session=session) for number in range(1, 8) for session in ("ses_a", "ses_b", "ses_c")]
    growing.drop("ses_c")
    over = growing.add(events)
    assert [(one.session_id, one.first, one.last) for one in over if one.session_id != "ses_c"] == [
        ("ses_a", 1, 3),
        ("ses_b", 1, 3),
        ("ses_a", 4, 6),
        ("ses_b", 4, 6),
    ]
    monkeypatch.setattr(stretches, "MOST_CHARS", 2)
    growing = Stretches()
    assert growing.add([delta_event(1, "xy")]) == []
    assert [one[1:3] for one in growing.add([delta_event(2, "x")])] == [(1, 1)]


# --- on disk -------------------------------------------------------------------------------------------------


def long_answer(first: int, pieces: int) -> list[UniversalEvent]:
    """So many pieces, then the whole."""
    last = first + pieces
    item = Item(item_id="a", kind=ItemKind.MESSAGE, status=ItemStatus.COMPLETED)
    return [*(delta_event(number, f"{number} ") for number in range(first, last)), event(last, data=ItemData(item=item))]


async def test_a_long_journal_is_few_rows(tmp_path: Path) -> None:
    """Also after a restart, from wherever it is read, and page by page."""
    path = tmp_path / "journal.db"
    journal = [*long_answer(1, 500), *long_answer(502, 20), *long_answer(523, 500)]
    for store in (SqliteStore(path), SqliteStore(path)):
        await store.open()
        if store.last_sequence("ses_a") == 0:
            store.append(journal)
        assert len(await store.rows("ses_a")) == len(journal)
        expected = [1, 500, 501, *range(502, 523), 523, 1022, 1023]
        assert [row.sequence for row in await store.brief("ses_a", 0, 1_000)] == expected
        for limit in (1, 2, 7, 30):
            after, found = 0, list[int]()
            while page := await store.brief("ses_a", after, limit):
                found += [row.sequence for row in page]
                after = found[-1]
            assert found == expected
        assert [row.sequence for row in await store.brief("ses_a", 498, 1_000)] == [499, *expected[1:]]
        assert {row.raw for row in await store.brief("ses_a", 0, 1_000)} == {None}
        await store.close()


async def test_an_open_stretch_of_a_dead_server_is_read(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "journal.db")
    await store.open()
    journal = long_answer(1, 200)
    store.append(journal[:-1])
    await store.close()
    await store.open()
    store.append(journal[-1:])
    assert [row.sequence for row in await store.brief("ses_a", 0, 1_000)] == list(range(1, 202))
    await store.close()


async def test_a_deleted_session_leaves_none(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "journal.db")
    await store.open()
    store.append(long_answer(1, 200))
    store.delete_session("ses_a")
    store.append([delta_event(1, "anew"), delta_event(2, "and on")])
    assert [row.sequence for row in await store.brief("ses_a", 0, 1_000)] == [1, 2]
    await store.close()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        assert db.execute("SELECT count(*) FROM stretch").fetchone() == (0,)


@pytest.mark.parametrize("rows", ["{", "[[1]]", "[1]", "7"])
async def test_a_damaged_one_is_named(tmp_path: Path, rows: str) -> None:
    store = SqliteStore(tmp_path / "journal.db")
    await store.open()
    store.append(long_answer(1, 200))
    await store.flush()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db, db:
        db.execute("UPDATE stretch SET rows = ?", (rows,))
    with pytest.raises(StoreError, match="stretch 1 of session ses_a"):
        await store.brief("ses_a", 0, 1_000)
    await store.close()


def test_a_run_of_parts_leaves_the_first_piece_of_each_alone() -> None:
    run: PartsRun[int] = PartsRun()
    assert run.add("a", [1], ["1"]) == [(1, "1")]
    assert run.add("a", [2], ["2"]) == []
    assert run.add("a", [3], ["3"]) == []
    assert run.add("b", [4], ["x"]) == [(3, "23"), (4, "x")], "a part that begins stands after what came before it"
    assert run.add("a", [5], ["4"]) == []
    assert run.take() == [(5, "4")]
    assert run.add("b", [6, 7, 8], ["y", "z", "!"]) == [(6, "y")], "of pieces that come together, too"
    assert run.take() == [(8, "z!")]
    assert run.add("a", [9], ["5"]) == [(9, "5")], "after the end of a run each part begins anew"
