"""Sessions of other servers reach the clients of this one as they reach those of their owner, and the lag is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import pytest_asyncio

from shim.cluster import remote_sessions
from shim.cluster.peers import Growth
from shim.cluster.places import Places
from shim.cluster.remote_sessions import RemoteSessions
from shim.lib.clock import ManualClock
from shim.lib.errors import SessionElsewhere, StoreUnavailable
from shim.sessions import stored_sessions
from shim.sessions.feed import ChangeFeed, Feed, Follower
from shim.sessions.history import checkpoints
from shim.sessions.index.session_entry import SessionEntry
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.session.session_state import SessionState
from shim.store.memory import MemoryStore
from tests.support.session_states import state_deps
from tests.unit.cluster.test_places import publish, viewpoint_of
from tests.unit.sessions.history.test_journal_loader import delta
from universal.events import EventType, PermissionData, TurnData, UniversalEvent
from universal.session.changes import Change, StatusChanged, TurnEnded
from universal.session.values import BUSY, IDLE, SessionRecord

BOUND_S = 10.0
SETTLE_TURNS = 20
"""Turns of the loop in which a reader does what is left after its last event."""
STORED, READ = 7, 2


async def test_lag_counts_stored_events_of_watched_sessions_until_they_are_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def read_without_end(state: SessionState, store: object, *, until: int | None) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(remote_sessions, "load_journal", read_without_end)
    watched = {"ses_watched"}
    deps: Any = SimpleNamespace(
        store=SimpleNamespace(ownership=None, last_sequence=lambda session_id: STORED),
        listened=lambda directory, session_id: session_id in watched,
    )
    state: Any = SimpleNamespace(sequence=READ, machine=SimpleNamespace(busy=True))
    unused: Any = None
    remotes = RemoteSessions(deps, unused, lambda session_id, agent: state, lambda session: None, unused, unused)
    for session_id in ("ses_watched", "ses_unwatched"):
        record = SimpleNamespace(id=session_id, directory="/srv")
        entry: Any = SimpleNamespace(record=record, agent="mock", busy=True)
        remotes.note(entry, Growth(session_id, 1, STORED))
    assert remotes.lags() == {"ses_watched": STORED - READ}
    state.sequence = STORED
    assert remotes.lags() == {"ses_watched": 0}
    remotes.forget("ses_watched")
    assert remotes.lags() == {}
    await remotes.close()


class OtherStore(MemoryStore):
    """A store whose sessions belong to another server."""

    ownership: Any = SimpleNamespace(refresh=lambda session_id: asyncio.sleep(0))


@dataclass
class Place:
    """The sessions of other servers, with all that they need, and what clients here are told."""

    remotes: RemoteSessions
    store: OtherStore
    feed: Feed
    entry: SessionEntry
    told: list[Change]
    deps: Any
    seams: set[int]


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Place]:
    """A session `ses_a` of another server. A client here listens."""
    store, feed, changes, clock = OtherStore(), Feed(), ChangeFeed(), ManualClock()
    await store.open()
    told: list[Change] = []
    changes.observe(lambda published: told.extend(published.changes))
    deps: Any = SimpleNamespace(store=store, feed=feed, changes=changes, clock=clock, listened=lambda directory, session_id: True)

    def new_state(session_id: str, agent: str) -> SessionState:
        return SessionState(session_id, agent, state_deps(store, clock))

    entry = SessionEntry(SessionRecord("ses_a", "slug", "1", "p", "/", None, "", 0, 0), "mock", {})
    seams = set[int]()
    places: Any = SimpleNamespace(seams=lambda session_id: seams, forget=lambda session_id: None)
    unused: Any = None
    remotes = RemoteSessions(deps, unused, new_state, lambda session: None, unused, unused)
    remotes.places = places
    place = Place(remotes, store, feed, entry, told, deps, seams)
    yield place
    await place.remotes.close()


async def read_until(place: Place, sequence: int) -> None:
    async with asyncio.timeout(BOUND_S):
        while (state := place.remotes.find("ses_a")) is None or state.sequence < sequence:
            await asyncio.sleep(0)
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)


async def test_a_reader_of_universal_events_gets_each_piece_with_its_sequence(place: Place) -> None:
    """Changes are made of joined pieces, but who counts sequences would miss some, or get text twice."""
    pieces = [delta(number, f"{number} ") for number in range(1, 8)]
    place.store.append(pieces[:2])
    follower = Follower(place.feed, "ses_a", partial(place.store.events, "ses_a"), 0)
    async with asyncio.timeout(BOUND_S):
        assert list(await follower.take()) == pieces[:2]
        place.remotes.note(place.entry, Growth("ses_a", 1, 2))
        waiting = asyncio.ensure_future(follower.take())
        await read_until(place, 2)
        place.store.append(pieces[2:])
        place.remotes.note(place.entry, Growth("ses_a", 3, 7))
        assert list(await waiting) == pieces[2:]
    follower.close()


async def test_text_that_a_client_has_seen_elsewhere_is_not_joined_with_more(place: Place) -> None:
    place.store.append([delta(number, f"{number} ") for number in range(1, 8)])
    published = list[int]()
    place.deps.changes.observe(lambda changes: published.append(changes.sequence))
    place.seams.add(3)
    place.remotes.note(place.entry, Growth("ses_a", 1, 7))
    await read_until(place, 7)
    assert published == [1, 3, 4, 7], "the first piece gives the part its time; the others are joined"


def turn(sequence: int, phase: Literal["started", "ended"]) -> UniversalEvent:
    kind = EventType.TURN_STARTED if phase == "started" else EventType.TURN_ENDED
    data = TurnData(phase=phase, turn_id=f"trn_{sequence}", metadata={"reason": "completed"} if phase == "ended" else {})
    return delta(sequence, "").model_copy(update={"type": kind, "data": data})


STATES = (StatusChanged, TurnEnded)


def states_of(place: Place) -> list[Change]:
    return [change for change in place.told if isinstance(change, STATES)]


BEGIN, END = [StatusChanged(BUSY)], [StatusChanged(IDLE), TurnEnded("completed")]


async def test_clients_of_a_lost_session_see_all_that_its_new_owner_has_stored(place: Place) -> None:
    """Those who have seen more than this server had stored are not among them: their streams have ended."""
    place.store.append([turn(1, "started"), turn(2, "ended"), turn(3, "started"), turn(4, "ended")])
    place.remotes.take_up(place.entry, 1)
    await read_until(place, 4)
    assert states_of(place) == [*END, *BEGIN, *END]
    place.store.append([turn(5, "started"), turn(6, "ended")])
    place.remotes.note(place.entry, Growth("ses_a", 5, 6))
    await read_until(place, 6)
    assert states_of(place) == [*END, *BEGIN, *END, *BEGIN, *END]


async def test_a_session_that_cannot_be_read_is_read_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when an append of the time before it was lost is refused only now."""
    monkeypatch.setattr(remote_sessions, "AGAIN_S", 0.0)
    failures: list[Exception] = [SessionElsewhere("ses_a", "another server"), StoreUnavailable("NATS is away")]

    async def checkpoint(session_id: str) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(place.store, "checkpoint", checkpoint)
    place.store.append([turn(1, "started"), turn(2, "ended")])
    place.remotes.note(place.entry, Growth("ses_a", 1, 2))
    await read_until(place, 2)
    assert states_of(place) == [*BEGIN, *END]


def other_entry(number: int) -> SessionEntry:
    record = SessionRecord(f"ses_{number}", "slug", "1", "p", "/", None, "", 0, 0)
    return SessionEntry(record, "mock", {})


async def test_a_late_word_of_a_session_that_is_not_kept_repeats_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server reads all that is stored at the first word of it; the others come later, when it keeps other sessions."""
    monkeypatch.setattr(stored_sessions, "KEPT", 1)
    place.store.append([turn(1, "started"), turn(2, "ended"), turn(3, "started"), turn(4, "ended")])
    place.remotes.note(place.entry, Growth("ses_a", 1, 2))
    await read_until(place, 4)
    assert states_of(place) == [*BEGIN, *END, *BEGIN, *END]
    place.remotes.note(other_entry(1), Growth("ses_1", 1, 1))
    assert not place.remotes.is_live("ses_a")
    place.remotes.note(place.entry, Growth("ses_a", 3, 4))
    await read_until(place, 4)
    assert states_of(place) == [*BEGIN, *END, *BEGIN, *END]


async def test_a_lost_word_of_a_session_that_is_not_kept_loses_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_sessions, "KEPT", 1)
    place.store.append([turn(1, "started"), turn(2, "ended")])
    place.remotes.note(place.entry, Growth("ses_a", 1, 2))
    await read_until(place, 2)
    place.remotes.note(other_entry(1), Growth("ses_1", 1, 1))
    place.store.append([turn(3, "started"), turn(4, "ended"), turn(5, "started"), turn(6, "ended")])
    place.remotes.note(place.entry, Growth("ses_a", 5, 6))
    await read_until(place, 6)
    assert states_of(place) == 3 * [*BEGIN, *END]


@pytest.mark.parametrize(("is_busy", "states"), [(False, [*BEGIN, *END]), (True, END)])
async def test_a_lost_word_of_an_idle_session_loses_nothing_after_a_start_of_this_server(
    place: Place, is_busy: bool, states: list[Change]
) -> None:
    """Where a turn ran, the row may be behind what clients had read when they came."""
    place.entry.row_sequence, place.entry.busy = 1, is_busy
    place.store.append([delta(1, ""), turn(2, "started"), turn(3, "ended")])
    place.remotes.note(place.entry, Growth("ses_a", 3, 3))
    await read_until(place, 3)
    assert states_of(place) == states


async def test_nothing_is_skipped_because_the_owner_has_saved_a_checkpoint_behind_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that is read up to the first event that is told may not begin behind it."""
    events = [turn(1, "started"), turn(2, "ended"), turn(3, "started"), turn(4, "ended")]
    place.store.append(events)
    await place.remotes.state(place.entry)
    state = place.remotes.find("ses_a")
    assert state is not None
    monkeypatch.setattr(checkpoints, "EVERY", 1)
    await checkpoints.save_in_steps(state, place.store)
    assert (await place.store.checkpoint("ses_a")) is not None
    place.remotes.forget("ses_a")
    place.entry.row_sequence = 2
    place.remotes.note(place.entry, Growth("ses_a", 3, 4))
    await read_until(place, 4)
    assert sum(isinstance(change, TurnEnded) for change in place.told) == 1


# --- places for clients that come from other servers ---------------------------------------------------------------------


class FakePeers:
    """A cluster in which this server owns its sessions in epoch 2. In: `messages`, those that can be read.

    has_deletion  the deletion of a session waits to be written
    """

    def __init__(self, messages: list[Growth]) -> None:
        self._messages = messages
        self.has_deletion = False

    def has_writes(self, session_id: str) -> bool:
        return self.has_deletion

    def epoch_of(self, session_id: str) -> int:
        return 2

    def is_orphan(self, session_id: str) -> bool:
        return False

    async def attend(self, *, is_wanted: bool) -> bool:
        return False

    async def growths(self, after: int, until: int) -> list[Growth]:
        return [message for message in self._messages if after < message.position <= until]


def make_remotes(sequence: int | None, messages: list[Growth]) -> tuple[RemoteSessions, Places]:
    """A server with a session up to this event, as it believes; None: of another server. No client listens."""
    state = None if sequence is None else SimpleNamespace(sequence=sequence)
    entry = SimpleNamespace(state=state, record=SimpleNamespace(id="ses_a", directory="/srv"), agent="mock")
    peers: Any = FakePeers(messages)
    deps: Any = SimpleNamespace(store=SimpleNamespace(ownership=None), listened=lambda directory, session_id: False)
    index: Any = SimpleNamespace(find=lambda session_id: entry)
    unused: Any = None
    remotes = RemoteSessions(deps, index, unused, unused, peers, unused)
    remotes.places = Places("server", peers.epoch_of, 0)
    return remotes, remotes.places


@pytest.mark.parametrize(("epoch", "last"), [(1, 9), (2, 9), (3, 6)])
async def test_of_a_session_that_was_taken_what_is_shown_counts_until_its_new_owner_writes(epoch: int, last: int) -> None:
    """This server was paused, and has not looked who owns its sessions. It will show what the new owner has written."""
    remotes, places = make_remotes(9, [Growth("ses_a", 7, 8, 1, epoch)])
    await remotes.read_words(1)
    assert remotes.last_published("ses_a") == last
    assert places.unshown(1) == ({"ses_a": 8} if epoch == 3 else {})


async def test_messages_of_which_no_word_came_are_noted_when_they_are_read() -> None:
    remotes, places = make_remotes(None, [Growth("ses_a", 1, 4, 1, 1), Growth("ses_a", 5, 6, 3, 1)])
    await remotes.read_words(3)
    assert (places.position, places.hole()) == (3, None)
    assert places.last_of("ses_a") == 6


@pytest.mark.parametrize("epoch", [2, 3], ids=["stored", "void"])
async def test_a_session_that_its_server_gave_up_stands_in_positions_until_what_readers_saw_is_stored(epoch: int) -> None:
    """NATS had no room. A client whose position does not name it would get the end of the turn again."""
    remotes, places = make_remotes(None, [])
    position = publish(places, "ses_a", 1)
    await remotes.tidy()
    assert [progress.last for progress in viewpoint_of(places.renew(position)).sessions] == [1]
    places.note(Growth("ses_a", 1, 1, 1, epoch, is_ours=epoch == 2), None)
    await remotes.tidy()
    assert not places.exception_ids()


async def test_a_session_stands_in_positions_until_its_deletion_is_stored() -> None:
    """NATS has no leader for its entry. Another server shows the session still, and would send its events again."""
    remotes, places = make_remotes(None, [])
    index: Any = SimpleNamespace(find=lambda session_id: None)
    remotes._index = index  # pyright: ignore[reportPrivateUsage]
    peers: Any = remotes._peers  # pyright: ignore[reportPrivateUsage]
    position, peers.has_deletion = publish(places, "ses_a", 1), True
    await remotes.tidy()
    assert [progress.last for progress in viewpoint_of(places.renew(position)).sessions] == [1]
    peers.has_deletion = False
    await remotes.tidy()
    assert not places.exception_ids()


def asks(sequence: int, status: Literal["requested", "reject"]) -> UniversalEvent:
    """A question of an agent for a permission, or its answer."""
    kind = EventType.PERMISSION_REQUESTED if status == "requested" else EventType.PERMISSION_RESOLVED
    data = PermissionData(permission_id="per_1", action="push", status=status, metadata={"tool": "bash"})
    return delta(sequence, "").model_copy(update={"type": kind, "data": data})


async def test_a_request_that_was_answered_without_a_listener_is_shown_to_no_later_client(place: Place) -> None:
    """The answer is behind what it is sent: a dialog that is shown would stay for ever."""
    is_listening = False
    place.deps.listened = lambda directory, session_id: is_listening
    place.remotes._index = index = SessionIndex(place.store)  # pyright: ignore[reportPrivateUsage]
    index.add(place.entry)
    place.store.append([turn(1, "started"), asks(2, "requested")])
    place.remotes.note(place.entry, Growth("ses_a", 1, 2))
    state = await place.remotes.state(place.entry)  # a client has asked for the open requests
    assert list(state.session.permissions) == ["per_1"]
    assert not place.remotes.is_stale("ses_a")
    place.store.append([asks(3, "reject")])
    place.remotes.note(place.entry, Growth("ses_a", 3, 3))
    assert place.remotes.is_stale("ses_a"), "nothing of it may be shown"
    await place.remotes.freshen_requests()
    assert not place.remotes.is_stale("ses_a")
    assert not state.session.permissions
