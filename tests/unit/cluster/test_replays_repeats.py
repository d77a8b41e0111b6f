"""A client at a server that is behind gets no event that it has seen elsewhere, and all others. Properties over a cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.cluster.peers import Growth
from shim.cluster.places import EXCEPTIONS, STORED, Places, Progress, Viewpoint, decode_viewpoint, hash_of
from shim.cluster.replays import Repeats
from tests.conftest import LAW_EXAMPLES
from tests.unit.cluster.test_places import MOMENT, change
from tests.unit.cluster.test_replays import DRAWS, MADE, Cluster, Event, events_of, replays_at

LAGS = st.lists(st.integers(0, 9), min_size=4, max_size=40)
COUNTS = st.integers(0, 40)


def is_wanted(directory: str) -> bool:
    return True


@dataclass
class Follower:
    """A server that owns nothing. It hears of the messages late, and shows their events still later."""

    stream: list[Growth]
    places: Places = field(default_factory=lambda: Places("b", lambda session_id: 9, 0))
    shown: dict[str, int] = field(default_factory=dict)
    heard: int = 0

    def hear(self, count: int) -> None:
        """Note so many messages more."""
        for growth in self.stream[self.heard : self.heard + count]:
            self.places.note(growth, self.shown.setdefault(growth.session_id, 0))
        self.heard = min(len(self.stream), self.heard + count)

    def next_event(self) -> tuple[str, int] | None:
        """The oldest event that it has heard of and not shown."""
        for growth in self.stream[: self.heard]:
            if self.shown.get(growth.session_id, 0) < growth.last:
                return growth.session_id, self.shown.get(growth.session_id, 0) + 1
        return None

    def show(self, session_id: str, sequence: int, client: Client | None = None) -> None:
        """Show an event."""
        published = change(session_id, sequence, is_stored=True)
        self.places.begin(published)
        for number in range(MADE):
            position, _ = self.places.next(MOMENT)
            if client is not None:
                client.take((session_id, sequence, number), position)
        self.places.end(published)
        self.shown[session_id] = sequence


@dataclass
class Client:
    """A client of a server that is behind. `got`: all that it has seen, anywhere."""

    got: list[Event]
    repeats: Repeats | None
    up_to_date: Places
    whole: set[Event]

    def take(self, event: Event, position: str) -> None:
        """Take an event, unless it is a repeat. At any place it may go on at a server that has all messages."""
        if self.repeats is None or not self.repeats.is_repeat():
            self.got.append(event)
            self.check(position)

    def check(self, position: str) -> None:
        """Whether it would get the rest there."""
        then = decode_viewpoint(position if self.repeats is None else self.repeats.position(position))
        assert then is not None
        missed = events_of(replays_at(self.up_to_date).gaps(then, is_wanted))
        assert sorted((*self.got, *missed)) == sorted(self.whole)


@settings(max_examples=LAW_EXAMPLES // 4)
@given(DRAWS, LAGS, COUNTS, COUNTS, COUNTS)
def test_a_client_of_a_server_that_is_behind_gets_every_event_once(
    draws: list[tuple[str, int]], lags: list[int], choice: int, heard: int, shown: int
) -> None:
    cluster = Cluster()
    for name, number in draws:
        getattr(cluster, name)(number)
    for number in range(heard // 4):
        cluster.word(number)
    cluster.take(0)
    for number in range(2):
        cluster.store(number)
    position, seen = cluster.taken[-1 - choice % len(cluster.taken)]
    viewpoint = decode_viewpoint(position)
    assert viewpoint is not None
    behind, up_to_date = Follower(cluster.stream), Places("c", lambda session_id: 9, 0)
    for growth in cluster.stream:
        up_to_date.note(growth, None)
    behind.hear(heard)
    for _ in range(shown):
        if (event := behind.next_event()) is not None:
            behind.show(*event)
    server = replays_at(behind.places, behind.shown)
    gaps = server.gaps(viewpoint, is_wanted)
    repeats = server.repeats(viewpoint, gaps, is_wanted)
    stored = ((session_id, sequence) for session_id, last in cluster.stored.items() for sequence in range(1, last + 1))
    whole = {(session_id, sequence, number) for session_id, sequence in stored for number in range(MADE)}
    client = Client([*seen, *events_of(gaps)], repeats, up_to_date, whole)
    for lag in (*lags, *[len(cluster.stream)] * (len(whole) + 1)):
        behind.hear(lag)
        client.check(behind.places.renew("x"))
        if (event := behind.next_event()) is not None:
            behind.show(*event, client)
    assert sorted(client.got) == sorted(whole)
    assert repeats is None or not repeats.is_behind("")


def places_at(*growths: Growth) -> Places:
    places = Places("b", lambda session_id: 5, 0)
    for growth in growths:
        places.note(growth, None)
    return places


def show(places: Places, repeats: Repeats, sequence: int, *, is_stored: bool = True) -> bool:
    """Whether a client gets an event of `ses_a` that makes one event of its face."""
    published = change("ses_a", sequence, is_stored=is_stored)
    places.begin(published)
    places.next(MOMENT)
    is_sent = not repeats.is_repeat()
    places.end(published)
    return is_sent


A = hash_of("ses_a")


def test_an_event_that_an_owner_has_shown_and_stores_late_does_not_come_again() -> None:
    places = places_at(Growth("ses_a", 1, 6, 1, 1))
    repeats = Repeats(places, Viewpoint(1, (Progress(A, 9, 0, 1),)), [Progress(A, 9, 0, 1)])
    assert not repeats.is_over
    places.note(Growth("ses_a", 7, 9, 2, 1), 6)
    assert [show(places, repeats, sequence) for sequence in (7, 8)] == [False, False]
    assert repeats.is_over
    assert show(places, repeats, 9)


@pytest.mark.parametrize("is_stored", [True, False])
def test_events_behind_what_was_stored_are_new(*, is_stored: bool) -> None:
    """The owner was lost after it had stored all that the client has seen. Another server goes on, or this one."""
    places = places_at(Growth("ses_a", 1, 6, 1, 1))
    repeats = Repeats(places, Viewpoint(1, (Progress(A, 7, 0, 1),)), [Progress(A, 7, 0, 1)])
    places.note(Growth("ses_a", 7, 6, 2, 2, is_ours=not is_stored), 6 if is_stored else None)
    assert [show(places, repeats, sequence, is_stored=is_stored) for sequence in (7, 8)] == [True, True]


@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_client_that_has_seen_what_is_void_is_cut_off(*, is_stored: bool, is_noted: bool) -> None:
    """It comes again, and reads everything anew (`test_replays.py`). The word of the next owner may come after the client."""
    places = places_at(Growth("ses_a", 1, 6, 1, 1))
    repeats = Repeats(places, Viewpoint(1, (Progress(A, 9, 0, 1),)), [Progress(A, 9, 0, 1)])
    is_dropped = asyncio.Event()
    repeats.bind(is_dropped.set)
    if is_noted or is_stored:
        places.note(Growth("ses_a", 7, 6, 2, 2, is_ours=not is_stored), 6 if is_stored else None)
    assert [show(places, repeats, sequence, is_stored=is_stored) for sequence in (7, 8, 10)] == [False] * 3
    async with asyncio.timeout(1):
        await is_dropped.wait()


def test_later_messages_of_the_same_owner_do_not_cut_a_client_off() -> None:
    places = places_at()
    repeats = Repeats(places, Viewpoint(0, (Progress(A, 9, 0, 2),)), [Progress(A, 9, 0, 2)])
    places.note(Growth("ses_a", 1, 8, 1, 2), 0)
    places.note(Growth("ses_a", 9, 8, 2, 3), 0)
    assert [show(places, repeats, sequence) for sequence in (1, 8, 9)] == [False, False, True]


def test_pieces_of_text_are_not_joined_across_what_the_client_has_seen() -> None:
    places = places_at()
    assert places.seams("ses_a") == set()
    repeats = Repeats(places, Viewpoint(2, (Progress(A, 4, 1, STORED),)), [Progress(A, 4, 1, STORED)])
    places.note(Growth("ses_b", 1, 8, 1, 1), 0)
    assert (places.seams("ses_a"), places.seams("ses_b"), places.seams("ses_c")) == ({3, 4}, {8}, set())
    repeats.close()
    assert places.seams("ses_a") == set()


def test_only_sessions_of_which_the_client_may_know_more_are_behind() -> None:
    places = places_at(Growth("ses_b", 1, 1, 1, 1))
    repeats = Repeats(places, Viewpoint(2, (Progress(A, 9, 0, 1),)), [Progress(A, 9, 0, 1)])
    assert repeats.is_behind("ses_b"), "a message of which this server has not heard may be of any session"
    places.note(Growth("ses_c", 1, 1, 2, 1), 0)
    assert [repeats.is_behind(session_id) for session_id in ("ses_a", "ses_b", "ses_c")] == [True, False, True]


def test_a_session_without_readers_is_not_awaited() -> None:
    places = places_at()
    repeats = Repeats(places, Viewpoint(1), [])
    places.note(Growth("ses_a", 1, 3, 1, 1), 0)
    assert not repeats.is_over
    places.forget("ses_a")
    assert repeats.is_over


def test_positions_stay_bounded_while_a_server_is_behind() -> None:
    places = places_at()
    repeats = Repeats(places, Viewpoint(7), [])
    for number in range(2 * EXCEPTIONS):
        published = change(f"ses_{number}", 1)
        places.begin(published)
        places.next(MOMENT)
        assert not repeats.is_repeat()
        places.end(published)
    assert repeats.position("local.5") == "local."


def test_a_message_from_before_that_this_server_reads_only_now_is_a_repeat() -> None:
    """It has just been started, and learns from a row that a session has gone on."""
    places = Places("b", lambda session_id: 5, 7)
    repeats = Repeats(places, Viewpoint(7), [], keep_s=60.0)
    assert not repeats.is_over
    places.note(Growth("ses_a", 4, 6, 6, 1), 3)
    assert [show(places, repeats, sequence) for sequence in (4, 6, 7)] == [False, False, True]


def test_a_session_of_whose_later_owner_the_client_has_seen_more_is_not_shown_here() -> None:
    """This server was paused, and still believes that it has the session, with other events."""
    places = places_at(Growth("ses_a", 1, 6, 1, 1))
    server = replays_at(places, {"ses_a": 12}, epoch=1, is_loaded=True)
    for epoch, is_behind in ((1, False), (2, True)):
        viewpoint = Viewpoint(1, (Progress(A, 9, 0, epoch),))
        repeats = server.repeats(viewpoint, (), is_wanted)
        assert repeats is not None
        assert repeats.is_behind("ses_a") == is_behind
        repeats.close()
