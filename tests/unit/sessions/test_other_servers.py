"""What other servers of a cluster have stored reaches clients here once, and what a dead one has left is cleaned up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from shim.cluster.peers import Growth
from shim.cluster.remote_sessions import RemoteSessions
from shim.lib.clock import ManualClock
from shim.lib.errors import SessionBusy, SessionElsewhere, SessionNotFound, StoreError, StoreUnavailable
from shim.sessions import other_servers
from shim.sessions.feed import ChangeFeed, Feed
from shim.sessions.index.session_entry import SessionEntry
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.other_servers import OtherServers
from shim.sessions.other_servers import _hand_over as hand_over  # pyright: ignore[reportPrivateUsage]
from shim.sessions.placement import Placement
from shim.sessions.session.session_state import SessionState
from shim.store.memory import MemoryStore
from shim.store.ownership import ClaimedSession, Look, LostSession, SessionChange
from shim.store.rows import SessionRow
from shim.store.servers import ServerRef
from tests.support.session_states import state_deps
from tests.unit.cluster.test_remote_sessions import BEGIN, BOUND_S, END, SETTLE_TURNS, STATES, turn
from universal.session.changes import Change, SessionDeleted
from universal.session.values import SessionRecord

OTHER = ServerRef("other", 1)
NOBODY = ServerRef("")


@dataclass
class FakeCluster:
    """The ownership of this server's store. `looks`: what the next looks show; `epoch`: the number of this server's ownership;
    `messages`: those of the journals."""

    server_id: str = "here"
    owned: dict[str, ServerRef] = field(default_factory=dict[str, ServerRef])
    looks: list[Look] = field(default_factory=list[Look])
    epoch: int = 1
    claims: list[ClaimedSession | ServerRef | Exception] = field(default_factory=list[Any])
    messages: list[Growth] = field(default_factory=list[Growth])
    tell: Callable[[Growth], None] = lambda growth: None
    sessions_move: bool = True

    def confirm_loss(self, session_id: str) -> None:
        """Nothing waits for it."""

    @property
    def peers(self) -> Any:
        return SimpleNamespace(
            epoch_of=lambda session_id: self.epoch,
            watch=self.watch,
            nodes=lambda: (),
            growths_of=self.growths_of,
            is_orphan=lambda session_id: False,
            has_writes=lambda session_id: False,
            attend=self.attend,
        )

    async def attend(self, *, is_wanted: bool) -> bool:
        return False

    async def growths_of(self, session_id: str, after: int) -> list[Growth]:
        return [message for message in self.messages if message.session_id == session_id and message.position > after]

    async def watch(self, tell: Callable[[Growth], None], tell_read: Callable[[Growth], None]) -> int:
        self.tell = tell
        return 0

    def is_shared(self) -> bool:
        return True

    async def owners(self) -> dict[str, ServerRef]:
        return self.owned

    async def refresh(self, session_id: str) -> None:
        pass

    async def look(self) -> Look:
        return self.looks.pop(0) if self.looks else Look()

    async def claim(self, session_id: str) -> ClaimedSession | ServerRef:
        answer = self.claims.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class World:
    """Session `ses_a` of the server OTHER: a turn has begun, and its row says so. A client here listens."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(owned={"ses_a": OTHER})
        self.told: list[Change] = []
        self.loaded: list[str] = []
        self.failures: list[Exception] = []
        self.claims_of_a_load: list[ClaimedSession | ServerRef] = []
        self.is_listening = True
        self.ended_streams: list[str] = []
        self.clock = ManualClock()
        cluster = self.cluster

        class Store(MemoryStore):
            ownership: Any = cluster

        self.store = Store()
        changes = ChangeFeed()
        changes.observe(lambda published: self.told.extend(published.changes))
        deps: Any = SimpleNamespace(
            store=self.store,
            feed=Feed(),
            changes=changes,
            clock=self.clock,
            listened=lambda directory, session_id: self.is_listening,
            end_streams=self.ended_streams.append,
            placement=Placement(),
            clean_up=self.clean_up,
        )
        self.index = SessionIndex(self.store)
        requests: Any = SimpleNamespace(note=lambda session: None)
        peers: Any = cluster.peers
        remotes = RemoteSessions(deps, self.index, self.new_state, requests.note, peers, self.delete_elsewhere)
        self.others = OtherServers(deps, self.index, remotes, self.load, self.remove, requests)

    async def start(self) -> None:
        await self.store.open()
        self.store.append([turn(1, "started")])
        self.index.add(entry("ses_a"))
        await self.others.start()

    async def clean_up(self, server_id: str) -> None:
        pass

    async def delete_elsewhere(self, session_id: str, owner: ServerRef) -> None:
        raise AssertionError(f"{session_id} was deleted at {owner}")

    def new_state(self, session_id: str, agent: str) -> SessionState:
        return SessionState(session_id, agent, state_deps(self.store, self.clock))

    async def load(self, session_id: str) -> None:
        """As the manager does, which claims the session and ends its turn."""
        self.loaded.append(session_id)
        if self.failures:
            raise self.failures.pop(0)
        if self.claims_of_a_load:
            self.cluster.claims = [self.claims_of_a_load.pop(0)]
            await self.others.claim(self.index.get(session_id))
        self.index.get(session_id).busy = False

    async def remove(self, session_id: str) -> None:
        """As the manager does, which looks first."""
        await self.others.look_now()
        if self.failures:
            raise self.failures.pop(0)
        self.index.remove(session_id)

    async def look(self, *looks: Look) -> None:
        self.cluster.looks += looks
        await self.others.look()

    async def settle(self) -> None:
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)

    def states(self) -> list[Change]:
        return [change for change in self.told if isinstance(change, STATES)]


def entry(session_id: str) -> SessionEntry:
    record = SessionRecord(session_id, "slug", "1", "p", "/", None, "", 0, 0)
    return SessionEntry(record, "mock", {}, busy=True)


def change(sequence: int, owner: ServerRef = OTHER) -> Look:
    """The row of `ses_a` says that no turn runs."""
    row: SessionRow = SessionEntry(entry("ses_a").record, "mock", {}).to_row()
    return Look((SessionChange("ses_a", owner, row, sequence),))


@pytest.fixture
async def w(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(other_servers, "LOOK_S", BOUND_S)
    world = World()
    await world.start()
    async with asyncio.timeout(BOUND_S):
        yield world
    await world.others.close()


# --- what a row tells ----------------------------------------------------------------------------------------------------


async def test_the_end_of_a_turn_of_which_a_row_tells_is_read_from_the_journal_and_shown_once(w: World) -> None:
    """Its owner was paused after it stored the end: the row of the next owner comes first, and the word late."""
    w.store.append([turn(2, "ended")])
    await w.look(change(2, NOBODY))
    await w.settle()
    assert w.states() == END
    w.cluster.tell(Growth("ses_a", 2, 2, 2, 1))
    await w.settle()
    assert w.states() == END


async def test_a_row_behind_a_word_shows_nothing_again(w: World) -> None:
    w.store.append([turn(2, "ended")])
    w.cluster.tell(Growth("ses_a", 2, 2, 2, 1))
    await w.settle()
    await w.look(change(2))
    await w.settle()
    assert w.states() == END


async def test_a_row_without_a_listener_shows_no_change(w: World) -> None:
    """A client that comes later reads what is stored. A word that comes late repeats nothing for it."""
    w.is_listening = False
    w.store.append([turn(2, "ended")])
    await w.look(change(2))
    await w.settle()
    assert w.others.remotes.find("ses_a") is None
    assert w.states() == []
    w.is_listening = True
    await w.look(change(2))
    await w.settle()
    assert w.others.remotes.find("ses_a") is None, "it was read, though nothing is new"
    w.cluster.tell(Growth("ses_a", 2, 2, 2, 1))
    await w.settle()
    assert w.states() == []
    assert not w.index.get("ses_a").busy


# --- late words ----------------------------------------------------------------------------------------------------------


async def test_a_late_word_of_the_owner_before_shows_nothing_while_this_server_loads_the_session(w: World) -> None:
    w.cluster.tell(Growth("ses_a", 1, 1, 1, 1))
    await w.settle()
    w.store.append([turn(2, "ended")])
    w.cluster.claims = [ClaimedSession(None)]
    await w.others.claim(w.index.get("ses_a"))
    w.cluster.epoch = 2
    assert w.states() == [*BEGIN, *END]
    w.cluster.tell(Growth("ses_a", 2, 2, 2, 1))
    await w.settle()
    assert not w.others.remotes.is_live("ses_a")
    assert w.states() == [*BEGIN, *END]


@pytest.mark.parametrize("is_listening", [True, False])
async def test_a_claim_shows_clients_what_the_owner_before_has_stored_without_a_word(w: World, is_listening: bool) -> None:
    """This server has started after the last word of the session. Its clients have come from another one."""
    w.is_listening = is_listening
    w.cluster.messages = [Growth("ses_a", 2, 2, 7, 1), Growth("ses_a", 3, 2, 8, 2, is_ours=True)]
    w.store.append([turn(2, "ended")])
    w.cluster.claims = [ClaimedSession(None)]
    await w.others.claim(w.index.get("ses_a"))
    assert w.states() == (END if is_listening else [])
    w.cluster.tell(Growth("ses_a", 2, 2, 7, 1))
    await w.settle()
    assert w.states() == (END if is_listening else [])


async def test_a_claim_without_a_load_keeps_what_clients_have_seen(w: World) -> None:
    w.cluster.tell(Growth("ses_a", 1, 1, 1, 1))
    await w.settle()
    w.cluster.claims = [ClaimedSession(None)]
    await w.others.claim(w.index.get("ses_a"))
    w.store.append([turn(2, "ended")])
    w.cluster.tell(Growth("ses_a", 1, 2, 2, 2))
    await w.settle()
    assert w.states() == [*BEGIN, *END]


# --- what a dead server has left -----------------------------------------------------------------------------------------


@contextmanager
def failing_claim(w: World) -> Iterator[None]:
    """A claim that NATS does not take to its end."""
    w.cluster.claims = [StoreUnavailable("its owner still writes")]
    with pytest.raises(StoreUnavailable):
        yield


async def test_a_look_goes_on_whose_client_has_gone(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No later look shows again what this one has read."""
    is_read = asyncio.Event()

    async def look() -> Look:
        await is_read.wait()
        return Look((SessionChange("ses_b", OTHER, entry("ses_b").to_row(), 1),))

    monkeypatch.setattr(w.cluster, "look", look)
    asking = asyncio.create_task(w.others.look_now())
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    is_read.set()
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)
    assert "ses_b" in w.index


async def test_a_look_ends_the_other_turns_of_a_dead_server_and_the_next_one_tries_again_where_the_store_failed(w: World) -> None:
    w.index.add(entry("ses_b"))
    await w.look(Look((SessionChange("ses_b", OTHER, entry("ses_b").to_row(), 1),)))
    w.failures = [StoreUnavailable("NATS works on a message of the owner before")]
    await w.look(Look(ended=("other",)))
    assert w.loaded == ["ses_a", "ses_b"]
    await w.look()
    assert w.loaded == ["ses_a", "ses_b", "ses_a"]
    await w.look()
    assert w.loaded == ["ses_a", "ses_b", "ses_a"]


async def test_a_turn_of_a_dead_server_whose_lease_is_not_over_for_all_is_ended_by_a_later_look(w: World) -> None:
    """A copy at NATS says that the server is dead, and the leader, a moment later, that it lives. No look tells it again."""
    w.claims_of_a_load = [OTHER, ClaimedSession(None)]
    await w.look(Look(ended=("other",)))
    assert w.others.owner("ses_a") is None
    await w.look()
    await w.look()
    assert w.loaded == ["ses_a", "ses_a"]


async def test_a_turn_that_another_server_has_taken_meanwhile_is_left_to_it(w: World) -> None:
    w.failures = [StoreUnavailable("NATS is away")]
    await w.look(Look(ended=("other",)))
    third = ServerRef("third", 3)
    await w.look(Look((SessionChange("ses_a", third, entry("ses_a").to_row(), 1),)))
    await w.look()
    assert w.loaded == ["ses_a"]
    assert w.others.owner("ses_a") == third


async def test_a_claim_that_failed_halfway_is_repeated_without_a_visible_turn(w: World) -> None:
    """The other servers may see this one as the owner already, and leave to it a turn that was stored meanwhile."""
    w.index.get("ses_a").busy = False
    with failing_claim(w):
        await w.others.claim(w.index.get("ses_a"))
    assert w.others.owner("ses_a") is None
    await w.look()
    assert w.loaded == ["ses_a"]
    await w.look()
    assert w.loaded == ["ses_a"]


async def test_a_session_that_was_deleted_is_gone_for_all_when_a_claim_finds_that_out(w: World) -> None:
    """The look that would show the deletion comes later, and shows it to nobody again."""
    w.cluster.claims = [SessionNotFound("ses_a")]
    with pytest.raises(SessionNotFound):
        await w.others.claim(w.index.get("ses_a"))
    assert w.index.find("ses_a") is None
    await w.look(Look((SessionChange("ses_a", OTHER, None),)))
    assert [type(change) for change in w.told] == [SessionDeleted]


async def test_the_turn_of_a_dead_server_in_a_session_that_was_deleted_is_left(w: World) -> None:
    w.failures = [SessionNotFound("ses_a")]
    await w.look(Look(ended=("other",)))
    await w.look()
    assert w.loaded == ["ses_a"]


@pytest.mark.parametrize("stored", [1, 2])
async def test_clients_that_have_seen_what_was_never_stored_read_all_again(w: World, stored: int) -> None:
    """They get what the new owner has stored behind that, once."""
    w.store.append([turn(2, "ended")])
    mine = w.index.get("ses_a")
    mine.state = w.new_state("ses_a", "mock")
    mine.state.load(await w.store.events("ses_a"))
    await w.others.give_up(LostSession("ses_a", OTHER, stored))
    assert w.ended_streams == ([] if stored == 2 else ["/"])
    await w.settle()
    assert w.states() == (END if stored == 1 else [])


async def test_clients_that_saw_a_deletion_read_all_again_when_another_server_has_the_session(w: World) -> None:
    """The deletion waited to be stored, and its client was refused. The row may come with a later look than the loss."""
    w.index.remove("ses_a")
    await w.look(Look(lost=(LostSession("ses_a", OTHER, 1),)))
    assert w.ended_streams == []
    await w.look(change(1))
    assert w.ended_streams == ["/"]
    assert "ses_a" in w.index
    await w.look(Look((SessionChange("ses_a", OTHER, None),)))
    await w.look(change(1))
    assert w.ended_streams == ["/"], "a session that another server has made anew is new"


async def test_a_session_of_a_server_that_lives_is_not_claimed_again(w: World) -> None:
    with failing_claim(w):
        await w.others.claim(w.index.get("ses_a"))
    w.failures = [SessionElsewhere("ses_a", OTHER)]
    await w.look()
    await w.look()
    assert w.loaded == ["ses_a"]


def test_the_second_of_two_hand_overs_keeps_its_mark() -> None:
    releases: dict[str, asyncio.Event] = {}
    with hand_over(releases, ["ses_a"]):
        with hand_over(releases, ["ses_a"]):
            pass
        assert not releases, "the first one does not bring it back, and fails on nothing"
    with hand_over(releases, ["ses_a"]):
        second = hand_over(releases, ["ses_a"])
        second.__enter__()
    assert list(releases) == ["ses_a"], "the second one still runs"
    second.__exit__(None, None, None)
    assert not releases


@pytest.mark.parametrize("error", [SessionNotFound("ses_a"), StoreError("damaged")])
async def test_a_list_of_requests_does_not_fail_because_of_one_session(w: World, error: Exception) -> None:
    with failing_state(w, error):
        await w.others.read_requests()


async def test_a_list_of_requests_is_refused_while_the_store_is_away(w: World) -> None:
    with failing_state(w, StoreUnavailable("NATS is away")), pytest.raises(StoreUnavailable):
        await w.others.read_requests()


@contextmanager
def failing_state(w: World, error: Exception) -> Iterator[None]:
    """Another server's session cannot be read."""

    async def fail(entry: SessionEntry) -> SessionState:
        raise error

    w.others.remotes.state = fail  # type: ignore[method-assign]
    yield


# --- what was made below a session that is gone --------------------------------------------------------------------


@pytest.mark.parametrize("failures", [[], [SessionBusy("ses_child")], [StoreError("full")]], ids=["", "busy", "full"])
@pytest.mark.parametrize("tidied", [None, StoreUnavailable("NATS is away")], ids=["", "and the look fails"])
async def test_a_child_that_was_made_here_goes_with_the_parent_that_another_server_deleted(
    monkeypatch: pytest.MonkeyPatch, failures: list[Exception], tidied: Exception | None
) -> None:
    """Its server was cut off when it made the child, so who deleted the parent had not heard of it."""
    w = World()
    await w.start()
    for session_id, parent_id in (("ses_child", "ses_a"), ("ses_b", None), ("ses_below", "ses_b")):
        made = entry(session_id)
        made.record = replace(made.record, parent_id=parent_id)
        made.state = w.new_state(session_id, "mock")
        w.index.add(made)
    w.failures = failures
    with monkeypatch.context() as patch, suppress(StoreUnavailable):
        if tidied is not None:
            patch.setattr(w.others.remotes, "tidy", AsyncMock(side_effect=tidied))
        await w.look(Look((SessionChange("ses_a", OTHER, None),)))
    await w.look()
    assert sorted(record.id for record in w.index.records()) == ["ses_b", "ses_below"]
    await w.others.close()
