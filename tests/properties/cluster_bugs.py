"""Bugs that somebody may plausibly write into a cluster, one function each. `test_cluster_bugs.py` wants each of them found."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import count
from typing import Any

import pytest

from shim.cluster.nats.commands import BEGIN, CANCEL, ID, PART, Commands
from shim.cluster.nats.connection import Connection, Parcel
from shim.cluster.nats.journals import Journal, Journals
from shim.cluster.nats.lanes import LaneWriter
from shim.cluster.nats.leases import Leases
from shim.cluster.nats.store import JetStreamStore
from shim.cluster.remote_sessions import RemoteSessions
from shim.cluster.replays import Gap, Repeats, Replays
from shim.sessions.feed import SessionChanges
from shim.sessions.history import checkpoints
from shim.sessions.other_servers import OtherServers
from shim.sessions.prompts import prompt_request, submit
from shim.sessions.session.session_state import SessionState
from shim.store.ownership import ClaimedSession, LostSession
from shim.store.rows import EventRow
from shim.store.servers import ServerRef
from tests.properties.cluster_world import ClusterNode
from universal.session.changes import StatusChanged, TurnEnded

Bug = Callable[[pytest.MonkeyPatch], None]


# --- fencing -------------------------------------------------------------------------------------------------------------


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    """An append names no number that the journal's last message must have."""
    real = Connection.append

    async def append(self: Connection, subject: str, payload: bytes, *, after: int | None = None, expires_s: int = 0) -> int:
        return await real(self, subject, payload, after=None if ".journal." in subject else after, expires_s=expires_s)

    patch.setattr(Connection, "append", append)


def takes_a_refusal_for_a_delay(patch: pytest.MonkeyPatch) -> None:
    """A refused append is repeated behind whatever the last message is, also another owner's."""

    async def go_on(self: Journals, journal: Journal, subject: str) -> None:
        message = await self._connection.last(self._layout.journal, subject)
        journal.position = 0 if message is None else message.sequence

    patch.setattr(Journals, "_explain_refusal", go_on)


def takes_sessions_of_the_living(patch: pytest.MonkeyPatch) -> None:
    """A claim does not look whether the owner lives, and the owner does not notice."""

    async def find_none(self: Leases, server_id: str) -> ServerRef | None:
        return None

    patch.setattr(Leases, "find", find_none)
    keeps_a_lost_session(patch)


def keeps_a_lost_session(patch: pytest.MonkeyPatch) -> None:
    """A server that has lost a session goes on with its agent and its turn."""

    async def go_on(self: OtherServers, lost: LostSession) -> None:
        pass

    patch.setattr(OtherServers, "give_up", go_on)


def acknowledges_what_was_refused(patch: pytest.MonkeyPatch) -> None:
    """A flush says nothing of a session that another server has taken."""

    async def flush(self: JetStreamStore, session_id: str | None = None) -> None:
        await self._use().lanes.flush()

    patch.setattr(JetStreamStore, "flush", flush)


def acknowledges_before_nats(patch: pytest.MonkeyPatch) -> None:
    """A flush does not wait."""

    async def flush(self: LaneWriter, key: object = None) -> None:
        pass

    patch.setattr(LaneWriter, "flush", flush)


# --- leases --------------------------------------------------------------------------------------------------------------


def renews_the_lease_of_a_dead_server(patch: pytest.MonkeyPatch) -> None:
    """A lease without its server is taken for a living one."""
    real = Leases._read
    known: dict[int, dict[str, Any]] = {}

    async def read(self: Leases) -> dict[str, Any]:
        known.setdefault(id(self), {}).update(await real(self))
        return dict(known[id(self)])

    async def find(self: Leases, server_id: str) -> ServerRef | None:
        return self.live_servers.get(server_id)

    patch.setattr(Leases, "_read", read)
    patch.setattr(Leases, "find", find)


def leaves_the_turn_of_a_dead_server(patch: pytest.MonkeyPatch) -> None:
    """Nobody ends the turns of a server that died."""

    async def leave(self: OtherServers, session_id: str) -> None:
        pass

    patch.setattr(OtherServers, "_end_left_turn", leave)


def ends_a_turn_without_a_claim(patch: pytest.MonkeyPatch) -> None:
    """Each server that sees the death ends the turn, and writes behind the others."""

    async def claim(self: JetStreamStore, session_id: str) -> ClaimedSession | ServerRef:
        return ClaimedSession(None)

    patch.setattr(JetStreamStore, "claim", claim)


def says_nothing_of_what_waited(patch: pytest.MonkeyPatch) -> None:
    """A prompt that waited behind a lost turn gets no error."""

    def lose_prompt(self: SessionState, pending: object) -> None:
        pass

    patch.setattr(SessionState, "lose_prompt", lose_prompt)


# --- commands ------------------------------------------------------------------------------------------------------------


def does_a_repeated_command_again(patch: pytest.MonkeyPatch) -> None:
    """A copy of a command is one of its own, and the word of the asker begins both."""
    real, numbers = Commands._receive, count(1)

    async def receive(self: Commands, parcel: Parcel) -> None:
        id_, part = parcel.headers.get(ID, ""), parcel.headers.get(PART, "")
        if part == BEGIN:
            for key, work in self._works.items():
                if key.startswith(f"{id_}/"):
                    work.word.set()
        elif part != CANCEL and (id_ in self._works or id_ in self._done):
            parcel = parcel._replace(headers={**parcel.headers, ID: f"{id_}/{next(numbers)}"})
        await real(self, parcel)

    patch.setattr(Commands, "_receive", receive)


def begins_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """A command begins without the word of its asker."""

    async def is_wanted(self: Commands, work: object) -> bool:
        return True

    patch.setattr(Commands, "_is_wanted", is_wanted)


def appends_again_what_was_stored(patch: pytest.MonkeyPatch) -> None:
    """After a lost answer, the same events are appended once more."""

    async def forget(self: Journals, journal: Journal, subject: str) -> None:
        message = await self._connection.last(self._layout.journal, subject)
        assert journal.record is not None
        if message is not None and f'"epoch":{journal.record.epoch},'.encode() in message.data:
            journal.position = message.sequence
        else:
            await real(self, journal, subject)

    real = Journals._explain_refusal
    patch.setattr(Journals, "_explain_refusal", forget)


# --- readers -------------------------------------------------------------------------------------------------------------


def reads_behind_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """A reader goes on some events before the checkpoint with which it began."""
    real = checkpoints.open_from

    async def open_from(state: Any, store: Any, **options: Any) -> bool:
        is_open = await real(state, store, **options)
        if is_open and state.sequence:
            state.journal.sequence -= min(state.sequence, 6)
        return is_open

    patch.setattr(checkpoints, "open_from", open_from)


def skips_what_a_replica_lacks(patch: pytest.MonkeyPatch) -> None:
    """A reader takes what a replica has for all there is, though its client was told of more."""

    async def rows(
        self: JetStreamStore, session_id: str, after: int = 0, limit: int | None = None, *, with_raw: bool = True
    ) -> list[EventRow]:
        return await self._read_rows(self._use().journals.get(session_id), max(after, 0), limit, with_raw=with_raw)

    patch.setattr(JetStreamStore, "rows", rows)


def shows_events_twice(patch: pytest.MonkeyPatch) -> None:
    """A reader reads from the begin of what it was told of, whether it has read it or not."""
    real = JetStreamStore.brief

    async def brief(self: JetStreamStore, session_id: str, after: int, limit: int) -> Sequence[EventRow]:
        rows = await real(self, session_id, after, limit)
        return rows if rows or after < 2 or told.pop(session_id, None) is None else await real(self, session_id, after - 1, limit)

    told: dict[str, int] = {}
    note = RemoteSessions.note

    def note_growth(self: RemoteSessions, entry: Any, growth: Any) -> None:
        told[entry.record.id] = growth.last
        note(self, entry, growth)

    patch.setattr(JetStreamStore, "brief", brief)
    patch.setattr(RemoteSessions, "note", note_growth)


def hears_of_nothing(patch: pytest.MonkeyPatch) -> None:
    """A reader misses the last words of an owner, and does not look."""
    real = RemoteSessions.note

    def note(self: RemoteSessions, entry: Any, growth: Any) -> None:
        if growth.last % 3:
            real(self, entry, growth)

    def look_away(self: RemoteSessions, entry: Any) -> None:
        if entry.busy or not self.is_live(entry.record.id):
            read_soon(self, entry)

    read_soon = RemoteSessions.read_soon
    patch.setattr(RemoteSessions, "note", note)
    patch.setattr(RemoteSessions, "read_soon", look_away)


# --- what a verification from outside has found ----------------------------------------------------------------------------


def writes_back_what_it_has_read(patch: pytest.MonkeyPatch) -> None:
    """The last event of a session is read before NATS is asked, and put back after it."""
    real = Journals._create

    async def create(self: Journals, journal: Journal, what: object) -> None:
        last = journal.last
        await real(self, journal, what)
        journal.last = last

    patch.setattr(Journals, "_create", create)


def claims_what_was_deleted(patch: pytest.MonkeyPatch) -> None:
    """A claim takes a deleted session for a new one."""
    real = Journals._claim

    async def claim(self: Journals, journal: Journal, *, is_creation: bool = False) -> Journal | ServerRef:
        return await real(self, journal, is_creation=True)

    patch.setattr(Journals, "_claim", claim)


def forgets_to_delete_what_was_lost(patch: pytest.MonkeyPatch) -> None:
    """A deletion is acknowledged before its entry is written, and dropped if NATS refuses it."""

    async def delete(self: Journals, journal: Journal) -> None:
        journal.is_ours, journal.record, journal.is_deleted = False, None, True

    patch.setattr(Journals, "_delete", delete)


def shows_again_what_was_replayed(patch: pytest.MonkeyPatch) -> None:
    """A row that tells of events which a client has got as missed ones is news to it."""
    patch.setattr(RemoteSessions, "note_replayed", lambda self, session_id, last: None)


def leaves_what_is_void(patch: pytest.MonkeyPatch) -> None:
    """The streams of a server that has lost a session go on, and so does a client that comes with what was never stored."""
    patch.setattr(ClusterNode, "_end_streams", lambda self, directory: None)
    patch.setattr(Replays, "_without_doubt", lambda self, progress, session_id: progress)
    patch.setattr(Repeats, "_void", lambda self: None)


def shows_a_dialog_that_is_over(patch: pytest.MonkeyPatch) -> None:
    """A client that comes is shown the open requests as they were read once."""

    async def leave(self: RemoteSessions) -> None:
        pass

    patch.setattr(RemoteSessions, "freshen_requests", leave)
    patch.setattr(RemoteSessions, "is_stale", lambda self, session_id: False)


def keeps_the_end_of_a_turn_from_who_missed_it(patch: pytest.MonkeyPatch) -> None:
    """Who has missed the end of a turn is not told of it, since readers of this server have seen it."""
    real = Replays.changes

    async def changes(self: Replays, gap: Gap) -> AsyncGenerator[SessionChanges]:
        async for change in real(self, gap):
            kept = [one for one in change.changes if not isinstance(one, StatusChanged | TurnEnded)]
            yield change._replace(changes=kept)

    patch.setattr(Replays, "changes", changes)


def says_of_a_message_that_it_exists_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """A 409 tells of a message that is only queued: nothing is flushed before ids are looked up."""

    async def need_new_ids(actor: Any, body: Any) -> None:
        prompt_request.check_ids(actor.main.session, body)

    async def require_writable(self: JetStreamStore, session_id: str) -> None:
        self._use().connection.need()

    patch.setattr(submit, "_need_new_ids", need_new_ids)
    patch.setattr(JetStreamStore, "require_writable", require_writable)


BUGS: tuple[Bug, ...] = (
    no_fencing,
    takes_a_refusal_for_a_delay,
    takes_sessions_of_the_living,
    keeps_a_lost_session,
    acknowledges_what_was_refused,
    acknowledges_before_nats,
    renews_the_lease_of_a_dead_server,
    leaves_the_turn_of_a_dead_server,
    ends_a_turn_without_a_claim,
    says_nothing_of_what_waited,
    does_a_repeated_command_again,
    begins_without_a_word,
    appends_again_what_was_stored,
    reads_behind_the_checkpoint,
    skips_what_a_replica_lacks,
    shows_events_twice,
    hears_of_nothing,
    writes_back_what_it_has_read,
    claims_what_was_deleted,
    forgets_to_delete_what_was_lost,
    shows_again_what_was_replayed,
    leaves_what_is_void,
    shows_a_dialog_that_is_over,
    keeps_the_end_of_a_turn_from_who_missed_it,
    says_of_a_message_that_it_exists_before_it_is_stored,
)
