"""A client that was cut off at another server: what it is told if it cannot go on, and what it does not get again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

import pytest

from shim.cluster import streams
from shim.cluster.places import Viewpoint
from shim.cluster.replays import Gap
from shim.cluster.streams import ClusterStreams
from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.lib.errors import SessionElsewhere, SessionNotFound, StoreError, StoreUnavailable
from shim.stream.hub import Hub
from shim.stream.streams import MustReadAll
from shim.stream.subscription import Subscription
from tests.unit.stream.reading import drain, encoder, make_hub, numbered_event, numbers

SEEN = "local.5"
GAPS = [Gap(f"ses_{number}", "mock", 1, 0, 1) for number in range(20)]


class FakeRepeats:
    """Events that the client has seen: those before `is_over`."""

    def __init__(self) -> None:
        self.is_over = self.is_closed = False

    def bind(self, drop: object) -> None:
        """It is never dropped."""

    def is_behind(self, session_id: str) -> bool:
        return session_id == "ses_behind"

    def is_repeat(self) -> bool:
        return not self.is_over

    def position(self, position: str) -> str:
        return "both"

    def close(self) -> None:
        self.is_closed = True


class FakeReplays:
    """What a client has missed and seen. In: `error`, of reading the events."""

    def __init__(
        self, gaps: Sequence[Gap], repeats: FakeRepeats | None, error: Exception | None = None, *, is_behind: bool = False
    ) -> None:
        self.is_behind = is_behind
        self._gaps = gaps
        self._repeats = repeats
        self._error = error

    async def attend(self) -> None:
        pass
        self.reads = self.most_reads = 0

    async def freshen_requests(self) -> None:
        """They are fresh."""

    async def catch_up(self, last_event_id: str) -> None:
        if self.is_behind:
            raise StoreUnavailable("behind")

    def is_current(self, session_id: str) -> bool:
        return session_id != "ses_stale"

    async def prepare(self, last_event_id: str) -> Viewpoint:
        if isinstance(self._error, SessionNotFound):
            raise self._error
        return Viewpoint(5)

    def gaps(self, viewpoint: Viewpoint, is_wanted: object) -> Sequence[Gap]:
        if isinstance(self._error, MustReadAll):
            raise self._error
        return self._gaps

    def repeats(self, viewpoint: Viewpoint, gaps: object, is_wanted: object) -> FakeRepeats | None:
        return self._repeats

    async def changes(self, gap: Gap) -> AsyncIterator[Any]:
        self.reads += 1
        self.most_reads = max(self.most_reads, self.reads)
        try:
            await asyncio.sleep(0)
            if self._error is not None:
                raise self._error
        finally:
            self.reads -= 1
        return
        yield


def subscribe(hub: Hub, replays: FakeReplays, **more: Any) -> Awaitable[Subscription]:
    some: Any = replays
    return ClusterStreams(some).subscribe(hub, encoder(), last_event_id=SEEN, **more)


@pytest.mark.parametrize(
    "error",
    [
        StoreError("NATS is gone"),
        SessionElsewhere("ses_a", "another server"),
        SessionNotFound("ses_a"),
        TimeoutError(),
        MustReadAll("9 events"),
    ],
)
async def test_a_client_whose_missed_events_cannot_be_read_must_read_everything_again(error: Exception) -> None:
    """`server.connected` names a place of its own: a client that gets its own position back believes that nothing is missing."""
    hub = make_hub()
    reader = await subscribe(hub, FakeReplays(GAPS, FakeRepeats(), error))
    hub.publish(numbered_event(1))
    connected, *events = await drain(reader)
    assert (connected.type, connected.id == SEEN) == ("server.connected", False)
    assert numbers(events) == [1]
    assert hub.stats().readers == 1


async def test_a_server_that_stays_behind_refuses_a_client_that_must_read_everything_again() -> None:
    """Else the client would get the end of a turn again that it has seen at another server."""
    hub = make_hub()
    with pytest.raises(StoreUnavailable):
        await subscribe(hub, FakeReplays((), None, MustReadAll("9 events"), is_behind=True))
    assert hub.stats().readers == 0


async def test_a_client_that_can_go_on_gets_its_own_position_first() -> None:
    hub = make_hub()
    reader = await subscribe(hub, FakeReplays((), None))
    assert [frame.id for frame in await drain(reader)] == [SEEN]


async def test_journals_are_read_at_the_same_time_but_not_all() -> None:
    hub, replays = make_hub(), FakeReplays(GAPS, None)
    await subscribe(hub, replays)
    assert replays.most_reads == streams.READS_AT_ONCE < len(GAPS)


async def test_the_greeting_tells_nothing_of_sessions_of_which_the_client_knows_more() -> None:
    def greet(is_shown: Any) -> list[OpenCodeEvent]:
        return [numbered_event(number) for number, id_ in enumerate(("ses_behind", "ses_shown")) if is_shown(id_)]

    hub, repeats = make_hub(), FakeRepeats()
    replays = FakeReplays((), repeats)
    reader = await subscribe(hub, replays, greeting=greet)
    connected, *frames = await drain(reader)
    assert connected.id == SEEN
    assert (numbers(frames), [frame.id for frame in frames]) == ([1], ["both"])
    reader.close()
    assert repeats.is_closed
    assert hub.stats().readers == 0


async def test_repeats_are_kept_from_one_reader_alone_until_it_is_like_the_others() -> None:
    hub, repeats = make_hub(), FakeRepeats()
    other = hub.subscribe(encoder())
    reader = await subscribe(hub, FakeReplays((), repeats))
    hub.publish(numbered_event(1))
    assert numbers(await drain(other)) == [1]
    assert numbers(await drain(reader)) == []
    reader.send_heartbeat()
    assert [frame.id for frame in await drain(reader)] == ["both"]
    repeats.is_over = True
    for number in (2, 3):
        hub.publish(numbered_event(number))
        hub.bursts.deliver()
    frames = await drain(reader)
    assert numbers(frames) == [2, 3]
    assert [frame.id == "both" for frame in frames] == [True, False], "from the second one on it shares the bytes of the others"
    assert numbers(await drain(other)) == [2, 3]
    reader.close()
    assert hub.stats().readers == 1
