"""The order of the index is the order of a sort, whatever has changed meanwhile."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.sessions.feed import ChangeFeed
from shim.sessions.index import session_index
from shim.sessions.index.session_entry import SessionEntry
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.session.session_state import SessionState
from shim.store.memory import MemoryStore
from universal.session.values import SessionRecord

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
    return SessionState(
        entry.record.id, "mock", store=store, changes=ChangeFeed(), clock=clock, ids=Ids(clock), on_change=lambda _: None
    )


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
