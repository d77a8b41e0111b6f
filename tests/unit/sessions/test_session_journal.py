"""What a journal holds back while one read of an agent's output is worked off, and when it lets go."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from shim.clock import ManualClock
from shim.errors import StoreError
from shim.ids import Ids
from shim.sessions.feed import ChangeFeed
from shim.sessions.session_state import SessionState
from shim.store.memory import MemoryStore
from universal.events import ErrorData, EventType

ID = "ses_00000000000000000000000000"


@dataclass
class Made:
    state: SessionState
    store: MemoryStore
    calls: list[list[int]] = field(default_factory=list)
    """Sequences of each call of `append`."""
    full: bool = False

    def say(self, message: str) -> None:
        self.state.record(EventType.ERROR, ErrorData(message=message))


@pytest.fixture
async def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    store, clock = MemoryStore(), ManualClock()
    await store.open()
    state = SessionState(ID, "mock", store=store, changes=ChangeFeed(), clock=clock, ids=Ids(clock), on_change=lambda _: None)
    found = Made(state, store)
    append = store.append

    def counted(events) -> None:
        if found.full:
            raise StoreError("no room")
        found.calls.append([event.sequence for event in events])
        append(events)

    monkeypatch.setattr(store, "append", counted)
    return found


async def test_a_burst_is_one_call_of_the_store(made: Made) -> None:
    made.say("before")
    with made.state.journal.burst():
        made.say("one")
        made.say("two")
        assert made.calls == [[1]]
    made.say("after")
    assert made.calls == [[1], [2, 3], [4]]
    assert [event.sequence for event in await made.store.events(ID)] == [1, 2, 3, 4]


async def test_held_events_are_written_before_the_row(made: Made) -> None:
    with made.state.journal.burst():
        made.say("one")
        made.state.journal.release()
        assert made.calls == [[1]]
        made.state.journal.release()
        made.say("two")
    assert made.calls == [[1], [2]]


async def test_a_burst_that_fails_keeps_what_was_said(made: Made) -> None:
    def fail() -> None:
        with made.state.journal.burst():
            made.say("one")
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert made.calls == [[1]]


async def test_a_burst_that_the_store_refuses_goes_first_next_time(made: Made) -> None:
    made.full = True
    with made.state.journal.burst():
        made.say("one")
        made.say("two")
    made.say("three")
    made.full = False
    made.say("four")
    assert made.calls == [[1, 2, 3, 4]]


async def test_nothing_is_written_of_a_session_that_is_deleted_meanwhile(made: Made) -> None:
    with made.state.journal.burst():
        made.say("one")
        made.state.journal.is_closed = True
    assert made.calls == []
