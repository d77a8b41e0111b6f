"""Universal events live: history then live, each once, whatever the reader's speed; bounded; nobody waits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from shim.lib.errors import SessionElsewhere, StoreUnavailable
from shim.sessions.feed import Feed, Follower
from universal.events import ErrorData, EventType, Source, UniversalEvent

RUNS = 300
CAUGHT_UP = 12
"""Turns of the loop in which a reader comes to the journal's end and waits for what is live."""


def event(sequence: int, session: str = "s") -> UniversalEvent:
    return UniversalEvent(
        event_id=f"evt_{sequence}",
        sequence=sequence,
        time="2026-01-01T00:00:00.000Z",
        session_id=session,
        source=Source.DAEMON,
        synthetic=True,
        type=EventType.ERROR,
        data=ErrorData(message=str(sequence)),
    )


class Journal:
    """A journal that events enter before they are published, as sessions do it; reads take turns of the loop."""

    def __init__(self, feed: Feed, dice: random.Random | None = None) -> None:
        self.feed = feed
        self.dice = dice
        self.events: list[UniversalEvent] = []

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.events.append(event(len(self.events) + 1))
            self.feed.publish((self.events[-1],))

    async def read(self, after: int, limit: int) -> Sequence[UniversalEvent]:
        await asyncio.sleep(0)
        found = self.events[after : after + limit]
        for _ in range(self.dice.randrange(1, 5) if self.dice else 1):
            await asyncio.sleep(0)
        return found


async def test_history_then_live_at_random_speeds_has_no_gap_and_no_duplicate() -> None:
    dice = random.Random(7)
    for _ in range(RUNS):
        feed = Feed(queue=dice.choice([1, 2, 5, 50]))
        journal = Journal(feed, dice)
        journal.add(dice.randrange(20))
        after = dice.randrange(len(journal.events) + 1)
        follower = Follower(feed, "s", journal.read, after)
        got: list[int] = []
        end = len(journal.events) + 30

        async def write(journal: Journal = journal, end: int = end) -> None:
            while len(journal.events) < end:
                journal.add(min(dice.randrange(1, 9), end - len(journal.events)))
                for _ in range(dice.choice([0, 1, 2, CAUGHT_UP])):
                    await asyncio.sleep(0)

        writing = asyncio.ensure_future(write())
        async with asyncio.timeout(10):
            while not got or got[-1] < end:
                got += [one.sequence for one in await follower.take()]
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0)
        await writing
        follower.close()
        assert got == list(range(after + 1, end + 1))
        assert feed.listeners == 0


async def test_a_reader_that_does_not_read_holds_a_bounded_queue_and_loses_nothing() -> None:
    feed = Feed(queue=10)
    journal = Journal(feed)
    follower = Follower(feed, "s", journal.read, 0)
    journal.add(1)
    assert [one.sequence for one in await follower.take()] == [1]
    journal.add(1000)
    assert feed.lag() <= 10
    assert feed.cut_off > 0
    got: list[int] = []
    while len(got) < 1000:
        got += [one.sequence for one in await follower.take()]
    assert got == list(range(2, 1002))


async def test_a_hole_in_the_journal_does_not_hold_the_stream() -> None:
    feed = Feed()
    journal = Journal(feed)
    follower = Follower(feed, "s", journal.read, 0)
    feed.publish((event(1),))  # a disk that refused: published, never stored
    assert [one.sequence for one in await follower.take()] == [1]


async def test_take_ends_at_its_time_and_at_the_end_of_the_session() -> None:
    feed = Feed()
    journal = Journal(feed)
    follower = Follower(feed, "s", journal.read, 0)
    assert await follower.take(asyncio.get_running_loop().time()) == []
    assert not follower.over
    journal.add()
    feed.end("s")
    assert [one.sequence for one in await follower.take()] == [1]
    assert await follower.take() == []
    assert follower.over


async def test_other_sessions_are_not_heard_and_a_closed_feed_ends_all() -> None:
    feed = Feed()
    journal = Journal(feed)
    follower = Follower(feed, "s", journal.read, 0)
    feed.publish((event(1, "other"),))
    assert feed.lag() == 0
    feed.close()
    assert await follower.take() == []
    assert await Follower(feed, "s", journal.read, 0).take() == []


async def test_an_observer_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed()
    seen: list[int] = []

    def fail(_: UniversalEvent) -> None:
        raise RuntimeError("broken")

    feed.observe(fail)
    feed.observe(lambda one: seen.append(one.sequence))
    feed.publish((event(1),))
    assert seen == [1]


async def test_a_live_event_waits_until_it_is_stored() -> None:
    """Its sequence must mean the same at every server of a cluster. While NATS is away, the reader gets a sign of life."""
    feed, stored = Feed(), asyncio.Event()
    journal = Journal(feed)
    failures = [StoreUnavailable("NATS is away")]

    async def store() -> None:
        if failures:
            raise failures.pop()
        await stored.wait()

    follower = Follower(feed, "s", journal.read, 0, store)
    assert list(await follower.take(asyncio.get_running_loop().time())) == []
    journal.add()
    assert list(await follower.take()) == []
    waiting = asyncio.ensure_future(follower.take())
    for _ in range(CAUGHT_UP):
        await asyncio.sleep(0)
    assert not waiting.done()
    stored.set()
    assert [one.sequence for one in await waiting] == [1]
    follower.close()


async def test_events_of_a_lost_session_reach_no_reader() -> None:
    feed = Feed()
    journal = Journal(feed)

    async def store() -> None:
        raise SessionElsewhere("s", "another server")

    refused = Follower(feed, "s", journal.read, 0, store)
    late = Follower(feed, "s", journal.read, 0)
    for follower in (refused, late):
        assert list(await follower.take(asyncio.get_running_loop().time())) == []
    journal.add()
    assert list(await refused.take()) == []
    feed.end("s", is_lost=True)
    assert list(await late.take()) == []
    assert (refused.over, late.over) == (True, True)
    refused.close()
    late.close()


@pytest.mark.parametrize("is_away", [True, False])
async def test_events_of_a_session_that_is_lost_before_they_are_stored_reach_no_reader(is_away: bool) -> None:
    """It is lost while NATS is away, or while the store waits. Its next owner writes other events with these sequences."""
    feed = Feed()
    journal = Journal(feed)
    failures = [StoreUnavailable("NATS is away")] if is_away else []

    async def store() -> None:
        if failures:
            raise failures.pop()
        feed.end("s", is_lost=True)

    follower = Follower(feed, "s", journal.read, 0, store)
    assert list(await follower.take(asyncio.get_running_loop().time())) == []
    journal.add()
    assert list(await follower.take()) == []
    feed.end("s", is_lost=True)
    journal.add()
    assert list(await follower.take()) == []
    assert follower.over
    follower.close()
