"""What a client gets at another server: with what it has seen, all events once. A property over a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.cluster import replays as replays_module
from shim.cluster.peers import Growth
from shim.cluster.places import Places, Progress, Viewpoint, decode_viewpoint, hash_of
from shim.cluster.replays import Gap, Replays
from shim.lib.errors import StoreError, StoreUnavailable
from shim.stream.streams import MustReadAll
from tests.unit.cluster.test_places import MOMENT, change, publish

OURS, THEIRS = ("ses_our1", "ses_our2"), ("ses_their1", "ses_their2")
MADE = 2
"""Events that a face makes of an event of a journal."""
STEPS = ("publish", "store", "write", "word", "read", "take")
DRAWS = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), min_size=20, max_size=80)

Event = tuple[str, int, int]
"""Session, sequence, number among the events of a face that it makes."""


@dataclass
class Cluster:
    """A server A with readers, which owns two sessions, beside an owner of two other ones. Words come in any order."""

    a: Places = field(default_factory=lambda: Places("a", lambda session_id: 1, 0))
    stream: list[Growth] = field(default_factory=list)
    words: list[Growth] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*OURS, *THEIRS), 0))
    stored: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*OURS, *THEIRS), 0))
    shown: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*OURS, *THEIRS), 0))
    seen: set[Event] = field(default_factory=set)
    taken: list[tuple[str, frozenset[Event]]] = field(default_factory=list)

    def publish(self, number: int) -> None:
        session_id = OURS[number % 2]
        self.written[session_id] += 1
        self._show(session_id, self.written[session_id], is_stored=False)

    def store(self, number: int) -> None:
        self._write(OURS[number % 2], is_ours=True)

    def write(self, number: int) -> None:
        self.written[THEIRS[number % 2]] += 1 + number // 3
        self._write(THEIRS[number % 2], is_ours=False)

    def _write(self, session_id: str, *, is_ours: bool) -> None:
        first, last = self.stored[session_id] + 1, self.written[session_id]
        if last >= first:
            self.stream.append(Growth(session_id, first, last, len(self.stream) + 1, 1, is_ours))
            self.words.append(self.stream[-1])
            self.stored[session_id] = last

    def word(self, number: int) -> None:
        if self.words:
            growth = self.words.pop(number % min(len(self.words), 3))
            self.a.note(growth, None if growth.is_ours else self.shown[growth.session_id])

    def read(self, number: int) -> None:
        """Read one event of the other owner, perhaps before its word has come."""
        session_id = THEIRS[number % 2]
        if self.shown[session_id] < self.stored[session_id]:
            self._show(session_id, self.shown[session_id] + 1, is_stored=True)

    def take(self, number: int) -> None:
        self.taken.append((self.a.renew("x"), frozenset(self.seen)))

    def _show(self, session_id: str, sequence: int, *, is_stored: bool) -> None:
        published = change(session_id, sequence, is_stored=is_stored)
        self.a.begin(published)
        for number in range(MADE):
            position, _ = self.a.next(MOMENT)
            self.seen.add((session_id, sequence, number))
            self.taken.append((position, frozenset(self.seen)))
        self.a.end(published)
        self.shown[session_id] = sequence


def replays_at(
    places: Places,
    shown: dict[str, int] | None = None,
    read_words: Callable[[int], Awaitable[None]] | None = None,
    *,
    epoch: int = 1,
    is_loaded: bool = False,
    newest: int = 0,
    failing: Collection[str] = (),
    is_deleted: bool = False,
    row_sequence: int = 0,
) -> Replays:
    """Another server, which has shown what `shown` says, and nothing of other sessions."""
    record = SimpleNamespace(id="ses_a", directory="/srv")
    state = object() if is_loaded else None
    entry = SimpleNamespace(current_record=record, record=record, state=state, row_sequence=row_sequence)
    index: Any = MagicMock(find=lambda session_id: entry, agent_of=lambda session_id: "mock")
    index.__contains__.return_value = not is_deleted
    remotes: Any = SimpleNamespace(
        last_published=(shown or {}).get,
        read_words=read_words,
        note_replayed=lambda session_id, last: None,
        is_failing=failing.__contains__,
    )
    nothing: Any = None
    store: Any = SimpleNamespace(last_sequence=lambda session_id: (shown or {}).get(session_id, 0))
    peers: Any = SimpleNamespace(
        epoch_of=lambda session_id: epoch, is_orphan=lambda session_id: False, newest=partial(asyncio.sleep, 0, newest)
    )
    return Replays(store, index, remotes, partial(asyncio.sleep, 0), places, peers, nothing)


def events_of(gaps: list[Gap]) -> list[Event]:
    found: list[Event] = []
    for gap in gaps:
        for sequence in range(gap.start, gap.end + 1):
            begin = gap.count if sequence == gap.start else 0
            found += [(gap.session_id, sequence, number) for number in range(begin, MADE)]
    return found


@given(DRAWS)
def test_a_client_that_hops_gets_every_event_once(draws: list[tuple[str, int]]) -> None:
    cluster = Cluster()
    for name, number in draws:
        getattr(cluster, name)(number)
    for number in range(2):
        cluster.store(number)
    b = Places("b", lambda session_id: 1, 0)
    for growth in cluster.stream:
        b.note(growth, None)
    stored = ((session_id, sequence) for session_id, last in cluster.stored.items() for sequence in range(1, last + 1))
    whole = {(session_id, sequence, number) for session_id, sequence in stored for number in range(MADE)}
    for position, seen in cluster.taken:
        decoded = decode_viewpoint(position)
        assert decoded is not None
        missed = events_of(replays_at(b).gaps(decoded, lambda directory: True))
        assert len(set(missed)) == len(missed)
        assert not seen & set(missed)
        assert seen | set(missed) == whole


def note(*growths: tuple[str, int, int, int]) -> Places:
    """A server that was told of these messages: session, first, last, epoch."""
    places = Places("b", lambda session_id: 1, 0)
    for position, (session_id, first, last, epoch) in enumerate(growths, 1):
        places.note(Growth(session_id, first, last, position, epoch), None)
    return places


def test_a_client_that_has_seen_what_is_void_reads_all_again() -> None:
    """It has seen events of an owner that stored those up to 6, and the next owner has written 7 and 8."""
    places = note(("ses_a", 1, 6, 1), ("ses_a", 7, 6, 2), ("ses_a", 7, 8, 2))
    tag = hash_of("ses_a")
    for seen in (Progress(tag, 8, 0, 1), Progress(tag, 10, 0, 1), Progress(tag, 7, 1, 1), Progress(tag, 9, 0, 0, is_void=True)):
        with pytest.raises(MustReadAll, match="ses_a was lost"):
            replays_at(places).gaps(Viewpoint(3, (seen,)), lambda directory: True)


def test_a_client_goes_on_behind_an_owner_that_had_stored_what_it_has_seen() -> None:
    places = note(("ses_a", 1, 6, 1), ("ses_a", 7, 6, 2), ("ses_a", 7, 8, 2))
    progress = Progress(hash_of("ses_a"), 7, 0, 1)
    assert replays_at(places).gaps(Viewpoint(1, (progress,)), lambda directory: True) == [Gap("ses_a", "mock", 7, 0, 8)]
    stored = Progress(hash_of("ses_a"), 7, 1, 0)
    assert replays_at(places).gaps(Viewpoint(1, (stored,)), lambda directory: True) == [Gap("ses_a", "mock", 7, 1, 8)]


def test_events_that_are_not_published_here_are_left_to_the_live_stream() -> None:
    places = note(("ses_a", 1, 9, 1))
    assert replays_at(places, {"ses_a": 4}).gaps(Viewpoint(0), lambda directory: True) == [Gap("ses_a", "mock", 1, 0, 4)]
    assert replays_at(places, {"ses_a": 0}).gaps(Viewpoint(0), lambda directory: True) == []


def test_events_from_before_this_servers_start_are_sent_to_a_client_that_has_not_seen_them() -> None:
    """Their messages are before the client's position, and its server had not shown them: no word of them comes any more."""
    viewpoint = Viewpoint(9, (Progress(hash_of("ses_a"), 3, 0, 0),))
    places = Places("c", lambda session_id: 9, 9)
    places.learn("ses_a")
    assert replays_at(places, row_sequence=5).gaps(viewpoint, lambda _: True) == [Gap("ses_a", "mock", 3, 0, 5)]
    assert replays_at(places, {"ses_a": 2}, row_sequence=5).gaps(viewpoint, lambda _: True) == [], "they come live"


def test_sessions_of_other_directories_are_left_out() -> None:
    assert replays_at(note(("ses_a", 1, 9, 1))).gaps(Viewpoint(0), lambda directory: directory == "/other") == []


def test_events_that_are_shown_here_before_their_word_comes_are_sent() -> None:
    """A session of the new server itself: later events come by themselves, this one would be missing."""
    places = note(("ses_a", 1, 4, 1))
    publish(places, "ses_a", 5)
    assert replays_at(places, {"ses_a": 5}).gaps(Viewpoint(1), lambda directory: True) == [Gap("ses_a", "mock", 5, 0, 5)]
    assert replays_at(places, {"ses_a": 5}).gaps(Viewpoint(0), lambda directory: True) == [Gap("ses_a", "mock", 1, 0, 5)]


def test_a_session_is_not_gone_on_with_after_messages_of_which_no_word_has_come() -> None:
    """Message 2 may be of this session too. Of one whose events follow each other nothing is missing."""
    places = note(("ses_a", 1, 4, 1))
    places.note(Growth("ses_a", 5, 6, 3, 1), None)
    assert replays_at(places).gaps(Viewpoint(1), lambda directory: True) == [Gap("ses_a", "mock", 5, 0, 6)]
    places.note(Growth("ses_b", 9, 9, 4, 1), None)
    with pytest.raises(MustReadAll, match="no word of the events of ses_b before 9"):
        replays_at(places).gaps(Viewpoint(1), lambda directory: True)
    seen = Viewpoint(1, (Progress(hash_of("ses_b"), 3, 0, 1),))
    assert replays_at(places).gaps(seen, lambda directory: True)[0] == Gap("ses_b", "mock", 3, 0, 9)


async def test_messages_of_which_no_word_has_come_are_read_before_a_client_goes_on() -> None:
    """Nothing else happens in the cluster, so this server would not hear of them soon."""
    places, until = note(("ses_a", 1, 4, 1)), list[int]()

    async def read_words(newest: int) -> None:
        until.append(newest)
        places.note(Growth("ses_a", 5, 6, 2, 1), None)

    replays = replays_at(places, read_words=read_words)
    assert await replays.prepare("local.2") == Viewpoint(2)
    assert until == [2]


async def test_a_client_reads_everything_again_where_all_is_shown_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have seen it at another server. A server that stays behind does not take it."""
    monkeypatch.setattr(replays_module, "ANEW_S", 0.2)
    places, errors = note(("ses_a", 1, 4, 1)), [StoreError("NATS is gone")]

    async def read_words(newest: int) -> None:
        if errors:
            raise errors.pop()
        places.note(Growth("ses_a", 5, 6, newest, 1), None)

    replays = replays_at(places, read_words=read_words, newest=2)
    with pytest.raises(StoreUnavailable, match="has not read yet"):
        await replays.catch_up("local.1")
    await replays.catch_up("local.1")
    assert places.position == 2


async def test_a_server_that_has_not_shown_all_that_it_heard_of_refuses_a_full_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine reads a journal for longer than a client waits, and the client would get its events twice."""
    monkeypatch.setattr(replays_module, "ANEW_S", 0.1)
    places = note(("ses_a", 1, 4, 1))
    places.note(Growth("ses_a", 5, 6, 2, 1), 4)
    with pytest.raises(StoreUnavailable, match="has not read yet"):
        await replays_at(places, newest=2).catch_up("local.2")
    await replays_at(places, newest=2, failing=["ses_a"]).catch_up("local.2")  # of one session, and not of all
    for sequence in (5, 6):
        publish(places, "ses_a", sequence, is_stored=True)
    await replays_at(places, newest=2).catch_up("local.2")


async def test_a_client_reads_everything_again_where_all_is_shown_that_it_has_seen() -> None:
    """An owner shows events before they are stored. What another owner has replaced is not waited for."""
    places, shown = note(("ses_a", 1, 4, 1)), {"ses_a": 4}
    replays = replays_at(places, shown, newest=1)
    seen = f"local.1~{hash_of('ses_a')},7,0,1"
    task = asyncio.create_task(replays.catch_up(seen))
    assert not (await asyncio.wait({task}, timeout=0.2))[0]
    shown["ses_a"] = 6
    await asyncio.wait_for(task, 2)
    shown["ses_a"] = 4
    places.note(Growth("ses_a", 5, 5, 2, 2), None)
    await asyncio.wait_for(replays.catch_up(seen), 2)


async def test_a_client_is_sent_on_while_what_it_has_seen_may_still_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server was cut off for longer than the client waits, and stores it when NATS is back."""
    monkeypatch.setattr(replays_module, "ANEW_S", 0.1)
    places, seen = note(("ses_a", 1, 4, 1)), f"local.1~{hash_of('ses_a')},7,0,1"
    with pytest.raises(StoreUnavailable, match="is not stored yet"):
        await replays_at(places, {"ses_a": 4}, newest=1).catch_up(seen)
    await replays_at(places, {"ses_a": 4}, newest=1, is_deleted=True).catch_up(seen)
    await replays_at(places, {"ses_a": 6}, newest=1).catch_up(seen)
    await replays_at(places, newest=1).catch_up(f"local.1~{hash_of('ses_unknown')},7,0,1")
    places.note(Growth("ses_a", 5, 5, 2, 2), None)  # of the next owner
    await replays_at(places, {"ses_a": 5}, newest=2).catch_up(seen)


@pytest.mark.parametrize("error", [StoreError("NATS is gone"), TimeoutError()])
async def test_a_client_goes_on_at_a_server_that_cannot_catch_up(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(replays_module, "WAIT_S", 0.2)
    places = note(("ses_a", 1, 4, 1))

    async def read_words(newest: int) -> None:
        raise error

    replays = replays_at(places, read_words=read_words)
    viewpoint = await replays.prepare(f"local.2~{hash_of('ses_b')},5,0,0")
    assert viewpoint == Viewpoint(2, (Progress(hash_of("ses_b"), 5, 0, 0),))
    repeats = replays.repeats(viewpoint, replays.gaps(viewpoint, lambda directory: True), lambda directory: True)
    assert repeats is not None
    assert repeats.is_behind("ses_b")
