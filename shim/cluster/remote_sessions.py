"""Sessions of other servers, read from their journals: states for reads, and live changes for the clients of this server.

The owner tells the others that a journal has grown. If a client here listens, the new events are read, applied by the same pure
reducer, and published as if they had happened here. If nobody listens, the state is read when somebody asks for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from shim.cluster.peers import Growth, Peers
from shim.cluster.places import Places
from shim.lib.errors import SessionElsewhere, SessionNotFound, StoreError
from shim.sessions.history.journal_loader import PAGE, join_deltas, load_journal
from shim.sessions.index.session_entry import SessionEntry
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.session_state import SessionState
from shim.sessions.stored_sessions import NewState, Reading, StoredSessions
from shim.store.rows import EventRow, event_of
from shim.store.servers import ServerRef
from universal.events import UniversalEvent
from universal.session.model import Session

log = structlog.get_logger()

AGAIN_S = 1.0
"""Seconds between two tries to read a session to which a client listens."""
NEW_LIMIT = 1_000
"""Maximum new sessions of other servers that wait for a look."""
FRESHEN_TRIES = 3
"""Looks whether open requests are read as they are now."""
PASSED = 65_536
"""Sessions of which it is known what clients here have seen, beside those that are kept."""


@dataclass(slots=True)
class _Remote(Reading):
    """A session of another server.

    is_live    its events are published as they come
    begin      the last event before those that are published, of a session that has just become live
    has_begun  nothing before `begin` is left to be read
    task       reads what is new
    is_due     there is something new that the task has not begun to read
    is_failing  the last try to read it failed
    """

    is_live: bool = False
    begin: int = 0
    has_begun: bool = False
    task: asyncio.Task[None] | None = None
    is_due: bool = False
    is_failing: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether no turn runs, and nothing is being read."""
        is_reading = self.lock.locked() or self.is_due or (self.task is not None and not self.task.done())
        return not self.state.machine.busy and not is_reading

    @property
    def last_published(self) -> int:
        """The last event that was published here, of a live session."""
        return self.state.sequence if self.has_begun else self.begin


class RemoteSessions(StoredSessions[_Remote]):
    """The `Remotes` of a server in a cluster: what their owners tell of them is read soon if a client listens.

    In: `peers`, the other servers.
    """

    def __init__(
        self,
        deps: SessionDeps,
        index: SessionIndex,
        new_state: NewState,
        on_read: Callable[[Session], None],
        peers: Peers,
        delete_elsewhere: Callable[[str, ServerRef], Awaitable[None]],
    ) -> None:
        super().__init__(deps, new_state, on_read, _Remote)
        self._index = index
        self._peers = peers
        self._delete_elsewhere = delete_elsewhere
        self._passed: OrderedDict[str, int] = OrderedDict()
        """Sessions that are not live any more -> the last event that clients here have seen, or that had none to see it."""
        self._new: dict[str, Growth] = {}
        """The first growth of sessions that no look has shown yet."""
        self.places: Places | None = None
        """The positions of the clients' streams, after `start`."""
        self._hole: tuple[int, int] | None = None
        """Messages of journals that were missing at the last look."""
        self._look_soon: Callable[[], None] = lambda: None
        self.is_read: Callable[[], bool] = lambda: True
        """Whether clients read at this server. If not, it is told of journals a moment later, which costs it less."""

    async def start(self, look_soon: Callable[[], None]) -> None:
        """Hear from now on which journals have grown."""
        self._look_soon = look_soon
        last_sequence = self._deps.store.last_sequence
        for entry in self._index:
            entry.row_sequence = last_sequence(entry.record.id)
        since = await self._peers.watch(self._note_growth, self._note_read)
        self.places = Places(self._ownership.server_id, self._peers.epoch_of, since)

    async def attend(self) -> None:
        """Be told of each message at once, since a client comes, and take in before what has come without a client."""
        with suppress(StoreError):  # then it is late, as while NATS is away
            if await self._peers.attend(is_wanted=True):
                await self.read_words(await self._peers.newest())

    async def close(self) -> None:
        """Stop reading."""
        tasks = [remote.task for remote in self._remotes.values() if remote.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def is_live(self, session_id: str) -> bool:
        """Whether the session's events are published as they come."""
        remote = self._remotes.get(session_id)
        return remote is not None and remote.is_live

    def is_failing(self, session_id: str) -> bool:
        """Whether a session cannot be read, as far as it was tried."""
        remote = self._remotes.get(session_id)
        return remote is not None and remote.is_failing

    def _last_live(self, session_id: str) -> int | None:
        """The last event of a live session that was published here. None for other sessions."""
        remote = self._remotes.get(session_id)
        if remote is None or not remote.is_live:
            return None
        return remote.last_published

    def lags(self) -> dict[str, int]:
        """Session -> number of events that are stored and not yet published here, of the live sessions."""
        last = self._deps.store.last_sequence
        return {id_: max(0, last(id_) - remote.state.sequence) for id_, remote in self._remotes.items() if remote.is_live}

    def with_turn(self) -> list[str]:
        """Ids of the live sessions in which a turn runs, as far as they were read."""
        return [id_ for id_, remote in self._remotes.items() if remote.is_live and remote.state.machine.busy]

    def forget(self, session_id: str) -> None:
        """Forget a session that is gone or that nobody listens to, and what clients here have seen of it."""
        self._forget_read(session_id)
        if self.places is not None:
            self.places.forget(session_id)

    def _forget_read(self, session_id: str) -> None:
        self._passed.pop(session_id, None)
        self._drop(session_id)

    def _drop(self, session_id: str) -> _Remote | None:
        remote = super()._drop(session_id)
        if remote is not None and remote.task is not None:
            remote.task.cancel()
        return remote

    def stop(self, session_id: str) -> None:
        """Stop reading a session that is ours now. What clients here have seen of it is still known."""
        remote = self._drop(session_id)
        if remote is not None and remote.is_live:
            self.note_published(session_id, remote.last_published)

    def _renew(self, entry: SessionEntry, remote: _Remote) -> None:
        super()._renew(entry, remote)
        remote.is_live = remote.has_begun = False

    async def finish(self, entry: SessionEntry) -> None:
        """Publish what is left of a live session, before this server goes on with it. Raises StoreError."""
        await self._hear_owner_before(entry)
        if self.is_live(entry.record.id):
            await self.state(entry)

    async def _hear_owner_before(self, entry: SessionEntry) -> None:
        """Note what the owner before has written of which no word has come, if a client waits for it. Raises StoreError.

        The word may still come: it is taken for a late one then, because this server has read the journal.
        """
        session_id, places = entry.record.id, self.places
        if places is None or not self._deps.listened(entry.record.directory, session_id):
            return
        for growth in await self._peers.growths_of(session_id, places.position):
            if growth.has_events:
                self.note(entry, growth)
                places.note(growth, self._last_live(session_id))

    def note(self, entry: SessionEntry, growth: Growth) -> None:
        """Its owner has told that a journal has grown. Reads it soon if a client listens."""
        session_id = entry.record.id
        if not self._deps.listened(entry.record.directory, session_id):
            remote = self._remotes.get(session_id)
            if remote is not None:
                remote.is_live = remote.has_begun = False
            self.note_published(session_id, max(growth.last, self._passed.get(session_id, 0)))
            return
        remote = self._get(entry)
        if not remote.is_live:  # words may come late, or be lost
            begin = self._passed.pop(session_id, None)
            if begin is None:  # since this server's start: its row is exact unless a turn ran then
                begin = growth.first - 1 if entry.busy else min(entry.row_sequence, growth.first - 1)
            remote.is_live, remote.begin, remote.has_begun = True, begin, False
        self.read_soon(entry)

    def note_new(self, entry: SessionEntry, sequence: int) -> bool:
        """Note a session that was not known. Clients are told of it unless its events do that."""
        session_id = entry.record.id
        entry.row_sequence = sequence
        growth = self._new.pop(session_id, None)
        if growth is not None and growth.first == 1:  # its events tell that it was created
            self.note(entry, growth)
        if self.is_live(session_id):
            return False
        self.forget(session_id)
        self.note_published(session_id, sequence)
        return True

    def note_row(self, entry: SessionEntry, sequence: int) -> bool:
        """The row of a session has changed, and tells of events up to `sequence`. Reads them soon if a client listens.

        The row itself is shown to nobody: a client that saw the end of a turn in it would see that again in the journal.
        """
        session_id, before, last = entry.record.id, entry.row_sequence, sequence
        entry.row_sequence = last
        if self.is_live(session_id):  # perhaps the owner's word was lost
            self._show_in_entry(entry, self._remotes[session_id])
            self.read_soon(entry)
        elif last > max(before, self._passed.get(session_id, 0)):
            self.note(entry, Growth(session_id, before + 1, last))
        return False

    def note_published(self, session_id: str, last: int) -> None:
        """Note the last event that clients have seen of a session whose state is not kept."""
        self._passed.pop(session_id, None)
        self._passed[session_id] = last
        if len(self._passed) > PASSED:
            self._passed.popitem(last=False)

    def note_replayed(self, session_id: str, last: int) -> None:
        """Note up to which event a client gets what it has missed. A later row about that event is no news to it."""
        if not self.is_live(session_id) and last > self._passed.get(session_id, 0):
            self.note_published(session_id, last)

    def note_release(self, session_id: str, sequence: int) -> None:
        """Note that a session is not ours any more. A word of an earlier owner may come late."""
        if (entry := self._index.find(session_id)) is not None:
            entry.row_sequence = sequence
        self.note_published(session_id, sequence)

    def take_up(self, entry: SessionEntry, stored: int) -> None:
        """Go on with a session that another server has taken from this one, if a client listens.

        In: `stored`, the last event that this server has written. Clients here have seen no later ones, or read all again.
        """
        session_id = entry.record.id
        entry.row_sequence = stored
        if self._deps.listened(entry.record.directory, session_id):
            self._forget_read(session_id)  # it may have been read up to a later event
            remote = self._get(entry)
            remote.is_live, remote.begin, remote.has_begun = True, stored, False
            self.read_soon(entry)
        else:
            self.note_published(session_id, stored)

    def read_soon(self, entry: SessionEntry) -> None:
        """Read what is new of a session in a task, one for each session."""
        remote = self._get(entry)
        remote.is_due = True
        if remote.task is None or remote.task.done():
            remote.task = asyncio.create_task(self._follow(entry, remote), name=f"follow {entry.record.id}")

    async def _follow(self, entry: SessionEntry, remote: _Remote) -> None:
        while remote.is_due:
            remote.is_due = False
            try:
                async with remote.lock:
                    await self._advance(entry, remote)
                remote.is_failing = False
            except (StoreError, SessionElsewhere, SessionNotFound) as error:
                log.warning("remote_session.not_read", session_id=entry.record.id, error=str(error))
                remote.is_failing = True
                if remote.is_live:  # perhaps no growth comes any more
                    await asyncio.sleep(AGAIN_S)
                    remote.is_due = True

    async def _advance(self, entry: SessionEntry, remote: _Remote) -> None:
        """Read what is new, and publish it if the session is live."""
        await self._begin(entry, remote)
        state, feed = remote.state, self._deps.feed
        while remote.has_begun and (page := await self._next_page(state)):
            if not remote.has_begun:  # its clients left, or others came who begin at a later event
                break
            with self._deps.changes.burst:
                for event in _join(page, self._seams(state.id)):
                    state.show(event, self._deps.changes)
            if feed.has_listener(state.id):  # it counts sequences, so it gets each piece
                for row in page:
                    feed.show(event_of(row))
            self._show_in_entry(entry, remote)
            await asyncio.sleep(0)  # other requests go on

    @staticmethod
    def _show_in_entry(entry: SessionEntry, remote: _Remote) -> None:
        """Let lists show what is published. A row may be behind: it is written after the events."""
        if remote.has_begun and remote.state.sequence >= entry.row_sequence:
            entry.record, entry.busy = remote.state.session.record, remote.state.machine.busy

    async def _begin(self, entry: SessionEntry, remote: _Remote) -> None:
        """Read what is not published: all of a session, or of a live one what is up to `begin`. Clients may come meanwhile."""
        store, before = self._deps.store, remote.state.sequence
        if not remote.is_live:
            await load_journal(remote.state, store, until=None)
        while remote.is_live and not remote.has_begun:
            if remote.state.sequence > remote.begin:  # it was read before the word of its growth came
                remote.state = self._new_state(entry.record.id, entry.agent)
            sequence = remote.state.sequence
            if sequence == remote.begin:
                remote.has_begun = True
                break
            await load_journal(remote.state, store, until=remote.begin)
            if remote.state.sequence == sequence:
                break  # it was deleted
        if remote.state.sequence != before:
            self._on_read(remote.state.session)

    async def _next_page(self, state: SessionState) -> Sequence[EventRow]:
        """What is new of a session; with raw payloads only if a reader of universal events listens."""
        store = self._deps.store
        read = store.rows if self._deps.feed.has_listener(state.id) else store.brief
        return await read(state.id, state.sequence, PAGE)

    def _seams(self, session_id: str) -> Collection[int]:
        """The events of a session after which pieces of text are not joined with those before."""
        return () if self.places is None else self.places.seams(session_id)

    async def delete(self, session_id: str, owner: ServerRef) -> None:
        """Let the owner of a session delete it. Raises StoreError."""
        await self._delete_elsewhere(session_id, owner)

    # --- open requests -----------------------------------------------------------------------------------------------

    def is_stale(self, session_id: str) -> bool:
        """Whether what was read of a session is older than what clients who come now are not sent any more."""
        remote = self._remotes.get(session_id)
        if remote is None or remote.has_begun:
            return False
        return remote.state.sequence < (remote.begin if remote.is_live else self._passed.get(session_id, 0))

    async def freshen_requests(self) -> None:
        """Read again the sessions whose open requests may have been answered while nobody listened here."""
        for _ in range(FRESHEN_TRIES):  # more may be told of meanwhile
            stale = [entry for id_ in self.with_requests() if self.is_stale(id_) and (entry := self._index.find(id_)) is not None]
            for entry in stale:
                with suppress(StoreError, SessionElsewhere, SessionNotFound):  # of one session, and not of all
                    await self.state(entry)
            if not stale:
                return

    # --- what the owners tell ----------------------------------------------------------------------------------------

    def _note_growth(self, growth: Growth) -> None:
        entry = self._index.find(growth.session_id)
        is_late = growth.epoch < self._peers.epoch_of(growth.session_id)  # this server has read it when it claimed the session
        is_news = growth.has_events and not growth.is_ours and not is_late
        if entry is None and is_news and len(self._new) < NEW_LIMIT:
            self._new.setdefault(growth.session_id, growth)
            self._look_soon()
        elif entry is not None and entry.state is None and is_news:
            self.note(entry, growth)
        if self.places is not None:
            is_new = entry is None and not growth.is_ours
            is_taken = entry is not None and entry.state is not None and is_news and self._has_lost(growth)
            shown = growth.first - 1 if is_new or is_taken else self._last_live(growth.session_id)
            self.places.note(growth, shown)

    def _has_lost(self, growth: Growth) -> bool:
        """Whether another server has written as the next owner of a session that is ours, as far as this one knows."""
        return growth.epoch > self._peers.epoch_of(growth.session_id)

    def _note_read(self, growth: Growth) -> None:
        """Note that a message of a journal was read, perhaps before it was announced."""
        if self.places is not None:
            self.places.note(growth, self._last_live(growth.session_id))

    async def read_words(self, until: int) -> None:
        """Read the messages of all journals up to this one of which no word has come. Raises StoreError."""
        if (places := self.places) is not None:
            for growth in await self._peers.growths(places.position, until):
                self._note_growth(growth)
            places.close_hole(until)

    def last_published(self, session_id: str) -> int | None:
        """The last event of a session that was published here. None if later ones come as soon as their owner tells of them."""
        entry = self._index.find(session_id)
        if entry is None or entry.state is None:
            return self._last_live(session_id)
        if self.places is None:
            return entry.state.sequence
        lost = self.places.first_since(session_id, self._peers.epoch_of(session_id))  # given up soon, and read from there on
        return entry.state.sequence if lost is None else min(entry.state.sequence, lost - 1)

    async def tidy(self) -> None:
        """Forget places of sessions without readers. Read the messages of journals of which no word has come."""
        places = self.places
        if places is None:
            return
        await self._peers.attend(is_wanted=self.is_read())
        places.look_for_orphans(self._peers.is_orphan)
        for session_id in places.exception_ids():
            entry = self._index.find(session_id)
            has_readers = self.is_live(session_id) or session_id in self._new
            is_ours = entry is not None and (entry.state is not None or places.is_unstored(session_id))
            is_ours = is_ours or self._peers.has_writes(session_id)  # it is deleted here, and others may still show it
            if not has_readers and not is_ours:
                places.forget(session_id)
        hole, before = places.hole(), self._hole
        self._hole = hole
        if hole is None or before is None or before[0] != hole[0]:
            return
        await self.read_words(hole[1])


def _join(page: Sequence[EventRow], seams: Collection[int]) -> Iterator[UniversalEvent]:
    """The events of these rows, with pieces joined, but not across a seam."""
    if not seams:
        yield from join_deltas(page)
        return
    part: list[EventRow] = []
    for row in page:
        part.append(row)
        if row.sequence in seams:
            yield from join_deltas(part)
            part = []
    yield from join_deltas(part)
