"""The order of the index is the order of a sort, whatever has changed meanwhile."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from shim.lib.clock import ManualClock
from shim.sessions.index import session_index
from shim.sessions.index.session_entry import ListedRecord, SessionEntry
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.session.native_sessions import NativeSession
from shim.sessions.session.session_state import SessionState
from shim.store.memory import MemoryStore
from tests.support.session_states import state_deps
from universal.session.record_json import record_json
from universal.session.values import ModelRef, SessionRecord

TIMES = 5
"""Few, so that many sessions were changed, and created, at the same time."""


def sorted_records(index: SessionIndex) -> list[SessionRecord]:
    by_id = sorted(index.records(), key=lambda record: record.id)
    return sorted(by_id, key=lambda record: (record.updated_ms, record.created_ms), reverse=True)


def new_entry(random: Random, number: int) -> SessionEntry:
    record = SessionRecord(
        f"ses_{random.randrange(10**6)}_{number}", created_ms=random.randrange(TIMES), updated_ms=random.randrange(TIMES)
    )
    return SessionEntry(record, "mock", {})


def new_state(entry: SessionEntry, store: MemoryStore) -> SessionState:
    clock = ManualClock()
    return SessionState(entry.record.id, "mock", state_deps(store, clock))


@pytest.mark.parametrize("sort_from", [1, 4, 1000])
def test_the_newest_come_first_after_any_changes(sort_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of other servers come, sessions are loaded, at work, lost, deleted and added again."""
    monkeypatch.setattr(session_index, "SORT_FROM", sort_from)
    random, store = Random(1), MemoryStore()
    index = SessionIndex(store)
    entries: list[SessionEntry] = []
    for number in range(300):
        for _ in range(random.randrange(4)):
            entry = random.choice(entries) if entries else None
            match random.randrange(10):
                case 1 if entry is not None:
                    entry.update_from(replace(new_entry(random, number), record=replace(entry.record, updated_ms=number % TIMES)))
                case 2 if entry is not None:
                    entry.state = new_state(entry, store)
                    entry.state.session.record = replace(entry.record, updated_ms=random.randrange(TIMES))
                case 3 if entry is not None:
                    entry.state = None
                case 4 if entry is not None:
                    index.remove(entry.record.id)
                    entries.remove(entry)
                case 5 if entry is not None:
                    index.add(replace(entry, record=replace(entry.record, updated_ms=random.randrange(TIMES))))
                    entries[entries.index(entry)] = index.get(entry.record.id)
                case _:
                    entries.append(new_entry(random, number))
                    index.add(entries[-1])
        if random.randrange(3):
            assert list(index.newest_first()) == sorted_records(index)
    assert len(index) > 100


def test_an_order_that_was_taken_does_not_change() -> None:
    index, random = SessionIndex(MemoryStore()), Random(1)
    for number in range(3):
        index.add(new_entry(random, number))
    order = index.newest_first()
    before = list(order)
    index.add(new_entry(random, 4))
    index.newest_first()
    assert list(order) == before


async def test_loaded_sessions_are_in_order() -> None:
    store, random = MemoryStore(), Random(1)
    await store.open()
    for number in range(20):
        store.save_session(new_entry(random, number).to_row())
    index = SessionIndex(store)
    await index.load()
    assert list(index.newest_first()) == sorted_records(index)
    assert len(index) == 20


async def stored_index(*records: SessionRecord, busy: str = "") -> SessionIndex:
    """An index that was just read from a store."""
    store = MemoryStore()
    await store.open()
    for record in records:
        native = {"mock": NativeSession(f"native_{record.id}")}
        store.save_session(SessionEntry(record, "mock", native, record.id == busy, ended=True, facts={"idle": 1}).to_row())
    index = SessionIndex(store)
    await index.load()
    return index


def full_rows(index: SessionIndex) -> set[str]:
    """The sessions of which more than the columns was asked for."""
    records = (entry.record for entry in index)
    return {record.id for record in records if not isinstance(record, ListedRecord) or not record.text}


RECORD = SessionRecord(
    "ses_a", directory="/a", project_id="p", parent_id="ses_b", title='A "title" ß', created_ms=1, updated_ms=2, mode="plan",
    model=ModelRef("claude", "opus", "high"), metadata={"a": [1]}, owner="ann", extra={"x": None}, archived_ms=5,
)  # fmt: skip


async def test_a_row_is_decoded_when_something_beside_its_columns_is_asked_for() -> None:
    index = await stored_index(RECORD, replace(RECORD, id="ses_b", parent_id=None))
    assert [record.id for record in index.newest_first()] == ["ses_a", "ses_b"]
    assert [record.id for record in index.children("ses_b")] == ["ses_a"]
    assert index.with_all_below("ses_b") == ["ses_b", "ses_a"]
    assert [(entry.record.directory, entry.busy, entry.actor) for entry in index] == [("/a", False, None)] * 2
    assert full_rows(index) == set()
    assert index.record("ses_a").title == RECORD.title
    assert full_rows(index) == {"ses_a"}
    assert index.native_id("ses_b") == "native_ses_b"
    assert index.is_ended("ses_b")
    assert index.facts("ses_b") == {"idle": 1}


async def test_a_field_that_was_changed_is_not_decoded_again() -> None:
    entry = (await stored_index(RECORD)).get("ses_a")
    entry.agent, entry.facts = "claude", {"idle": 2}
    assert entry.native == {"mock": NativeSession("native_ses_a")}
    assert (entry.agent, entry.facts, entry.ended) == ("claude", {"idle": 2}, True)
    with pytest.raises(AttributeError, match="nothing"):
        _ = getattr(entry, "nothing")  # noqa: B009 - pyright knows that there is none


async def test_a_record_that_is_not_decoded_is_as_any_other() -> None:
    stored = (await stored_index(RECORD)).record("ses_a")
    assert type(stored) is not SessionRecord
    assert stored == RECORD
    assert (await stored_index(RECORD)).record("ses_a") != replace(RECORD, title="other")
    assert (await stored_index(RECORD)).record("ses_a") != "ses_a"
    assert replace((await stored_index(RECORD)).record("ses_a"), title="new") == replace(RECORD, title="new")
    assert record_json((await stored_index(RECORD)).record("ses_a")) == record_json(RECORD)
    assert (await stored_index(RECORD)).get("ses_a").to_row() == (await stored_index(stored)).get("ses_a").to_row()
    with pytest.raises(AttributeError, match="nothing"):
        _ = getattr(stored, "nothing")  # noqa: B009 - pyright knows that there is none


async def test_a_session_whose_turn_ran_is_decoded_at_once() -> None:
    index = await stored_index(
        RECORD, replace(RECORD, id="ses_b"), replace(RECORD, id="ses_c", title='"busy":true'), busy="ses_b"
    )
    assert {entry.record.id for entry in index if entry.busy} == {"ses_b"}
    assert full_rows(index) == {"ses_b"}


@pytest.mark.parametrize("words", ['a "TITLE', "SS", "ß", "ann", "\\", "\ud800"])
async def test_a_search_leaves_out_only_what_has_no_such_words(words: str) -> None:
    others = [replace(RECORD, id="ses_b", title="B", owner=""), replace(RECORD, id="ses_c", title="a\\b \ud800 ß", owner="")]
    index = await stored_index(RECORD, *others)
    found = index.newest_first(words)
    wanted = [record for record in (RECORD, *others) if words.casefold() in f"{record.title} {record.owner}".casefold()]
    assert wanted
    assert {record.id for record in wanted} <= {record.id for record in found}
    assert not {"ses_b"} & {record.id for record in found}
