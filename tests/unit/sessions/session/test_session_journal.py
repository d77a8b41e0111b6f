"""What a journal holds back while one read of an agent's output is worked off, and when it lets go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from shim.lib.clock import ManualClock
from shim.lib.errors import SessionElsewhere, StoreError
from shim.sessions.session import session_journal
from shim.sessions.session.session_state import SessionState
from shim.store.memory import MemoryStore
from shim.store.servers import ServerRef
from tests.support.session_states import state_deps
from universal.events import ErrorData, EventType, TurnData, UniversalEvent

ID = "ses_00000000000000000000000000"


@dataclass
class JournalFixture:
    state: SessionState
    store: MemoryStore
    calls: list[list[int]] = field(default_factory=list)
    """Sequences of each call of `append`."""
    full: bool = False

    def say(self, message: str) -> None:
        self.state.record(EventType.ERROR, ErrorData(message=message))


@pytest.fixture
async def journal(monkeypatch: pytest.MonkeyPatch) -> JournalFixture:
    store, clock = MemoryStore(), ManualClock()
    await store.open()
    state = SessionState(ID, "mock", state_deps(store, clock))
    found = JournalFixture(state, store)
    append = store.append

    def count_append(events) -> None:
        if found.full:
            raise StoreError("no room")
        found.calls.append([event.sequence for event in events])
        append(events)

    monkeypatch.setattr(store, "append", count_append)
    return found


async def test_a_burst_is_one_call_of_the_store(journal: JournalFixture) -> None:
    journal.say("before")
    with journal.state.journal:
        journal.say("one")
        journal.say("two")
        assert journal.calls == [[1]]
    journal.say("after")
    assert journal.calls == [[1], [2, 3], [4]]
    assert [event.sequence for event in await journal.store.events(ID)] == [1, 2, 3, 4]


async def test_held_events_are_written_before_the_row(journal: JournalFixture) -> None:
    with journal.state.journal:
        journal.say("one")
        journal.state.journal.release()
        assert journal.calls == [[1]]
        journal.state.journal.release()
        journal.say("two")
    assert journal.calls == [[1], [2]]


async def test_a_failed_burst_keeps_its_text(journal: JournalFixture) -> None:
    def fail() -> None:
        with journal.state.journal:
            journal.say("one")
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert journal.calls == [[1]]


async def test_a_burst_that_the_store_refuses_goes_first_next_time(journal: JournalFixture) -> None:
    journal.full = True
    with journal.state.journal:
        journal.say("one")
        journal.say("two")
    journal.say("three")
    journal.full = False
    journal.say("four")
    assert journal.calls == [[1, 2, 3, 4]]


async def test_a_store_that_has_some_room_again_gets_as_many_events_as_it_takes(
    journal: JournalFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_journal, "RETRY_EVENTS", 2)
    journal.full = True
    for number in range(5):
        journal.say(str(number))
    append, room = journal.store.append, 2

    def take_two(events: Sequence[UniversalEvent]) -> None:
        nonlocal room
        journal.full = len(events) > room
        append(events)
        room -= len(events)

    monkeypatch.setattr(journal.store, "append", take_two)
    journal.state.journal.retry()
    assert (journal.calls, journal.state.journal.is_behind) == ([[1, 2]], True)
    room = 10
    journal.say("more")
    assert journal.calls == [[1, 2], [3, 4], [5, 6]]
    assert not journal.state.journal.is_behind


async def test_nothing_is_written_of_a_session_that_is_deleted_meanwhile(journal: JournalFixture) -> None:
    with journal.state.journal:
        journal.say("one")
        journal.state.journal.is_closed = True
    assert journal.calls == []


async def test_a_flush_says_that_events_wait_here(journal: JournalFixture) -> None:
    journal.full = True
    journal.say("one")
    with pytest.raises(StoreError, match="no room"):
        await journal.state.journal.flush()
    journal.full = False
    await journal.state.journal.flush()
    assert journal.calls == [[1]]


async def test_a_flush_of_a_lost_session_names_the_other_server(journal: JournalFixture) -> None:
    """The store forgets the loss when it has reported it."""
    journal.state.journal.lost_to = ServerRef("other", 1)
    with pytest.raises(SessionElsewhere) as caught:
        await journal.state.journal.flush()
    assert caught.value.owner == ServerRef("other", 1)


@pytest.mark.parametrize("data", [ErrorData(message="no"), TurnData(phase="started", turn_id="trn_1")])
def test_a_payload_of_another_type_is_refused(journal: JournalFixture, data: ErrorData | TurnData) -> None:
    with pytest.raises(TypeError, match=r"item\.delta carries ItemDeltaData, not (Error|Turn)Data"):
        journal.state.record(EventType.ITEM_DELTA, data)
    assert journal.state.sequence == 0 and journal.calls == []
