"""Sessions of other servers, read from their journals: states for reads, and live changes for the clients of this server.

The owner tells the others that a journal has grown. If a client here listens, the new events are read, applied by the same pure
reducer, and published as if they had happened here. If nobody listens, the state is read when somebody asks for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import structlog

from shim.lib.errors import SessionElsewhere, StoreError
from shim.sessions.history.journal_loader import PAGE, join_deltas, load_journal
from shim.sessions.index.session_entry import SessionEntry
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.session_state import SessionState
from shim.store.peers import Growth
from shim.store.rows import EventRow, event_of
from universal.events import EventType, UniversalEvent
from universal.session.changes import Change, MessageRemoved, StatusChanged, TurnEnded
from universal.session.model import IDLE, Session

log = structlog.get_logger()

AGAIN_S = 1.0
"""Seconds between two tries to read a session to which a client listens."""
LOST = "error"
"""Reason of the end of a turn that was never stored."""
PASSED = 65_536
"""Sessions of which it is known what clients here have seen, beside those that are kept."""
KEPT = 64
"""Number of sessions of other servers whose last read state is kept in memory, beside those with a running turn."""


@dataclass(slots=True)
class LostView:
    """What clients of this server have seen of a session that another one has taken.

    messages  the ids of its messages; some may never have been stored
    is_busy   whether a turn runs, as they have seen
    """

    messages: tuple[str, ...]
    is_busy: bool

    def repeated_changes(self, event: UniversalEvent) -> tuple[type[Change], ...]:
        """The kinds of changes of an event that they have seen: the begin or the end of a turn that they saw here."""
        was_busy = self.is_busy
        if event.type is EventType.TURN_STARTED:
            self.is_busy = True
            return (StatusChanged,) if was_busy else ()
        if event.type is EventType.TURN_ENDED:
            self.is_busy = False
            return () if was_busy else (StatusChanged, TurnEnded)
        return ()

    def correct(self, state: SessionState) -> list[Change]:
        """Take up what is stored. Out: what no event tells of it: messages that are gone, and the end of a turn without one."""
        gone = [MessageRemoved(message_id) for message_id in self.messages if message_id not in state.session.messages]
        end = [StatusChanged(IDLE), TurnEnded(LOST)] if self.is_busy and not state.machine.busy else []
        self.messages, self.is_busy = (), self.is_busy and state.machine.busy
        return [*gone, *end]


@dataclass(slots=True)
class _Remote:
    """A session of another server.

    is_live    its events are published as they come
    begin      the last event before those that are published, of a session that has just become live
    has_begun  nothing before `begin` is left to be read
    view       what clients here have seen of a session that was lost, until they have seen what its new owner has stored
    task       reads what is new
    is_due     there is something new that the task has not begun to read
    """

    state: SessionState
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_live: bool = False
    begin: int = 0
    has_begun: bool = False
    view: LostView | None = None
    task: asyncio.Task[None] | None = None
    is_due: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether no turn runs, and nothing is being read."""
        is_reading = self.lock.locked() or self.is_due or (self.task is not None and not self.task.done())
        return not self.state.machine.busy and not is_reading and self.view is None

    @property
    def last_published(self) -> int:
        """The last event that was published here, of a live session."""
        return self.state.sequence if self.has_begun else self.begin


class RemoteSessions:
    """The sessions of other servers that somebody looks at.

    In: `new_state` makes an empty state that publishes nothing itself; `on_read` is called with a session that was read anew;
    `seams` has the events of a session after which pieces of text are not joined with those before.
    """

    def __init__(
        self,
        deps: SessionDeps,
        new_state: Callable[[str, str], SessionState],
        on_read: Callable[[Session], None],
        seams: Callable[[str], Collection[int]] = lambda session_id: (),
    ) -> None:
        self._deps = deps
        self._new_state = new_state
        self._on_read = on_read
        self._seams = seams
        self._ownership = deps.store.ownership
        self._remotes: dict[str, _Remote] = {}
        self._passed: OrderedDict[str, int] = OrderedDict()
        """Sessions that are not live any more -> the last event that clients here have seen, or that had none to see it."""

    async def close(self) -> None:
        """Stop reading."""
        tasks = [remote.task for remote in self._remotes.values() if remote.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def find(self, session_id: str) -> SessionState | None:
        """The state of a session as it was last read, or None."""
        remote = self._remotes.get(session_id)
        return None if remote is None else remote.state

    def is_live(self, session_id: str) -> bool:
        """Whether the session's events are published as they come."""
        remote = self._remotes.get(session_id)
        return remote is not None and remote.is_live

    def last_published(self, session_id: str) -> int | None:
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

    def with_requests(self) -> list[str]:
        """Ids of the sessions that had open requests when they were last read."""
        sessions = (remote.state.session for remote in self._remotes.values())
        return [session.id for session in sessions if session.permissions or session.questions]

    def forget(self, session_id: str) -> None:
        """Forget a session that is gone, and what clients here have seen of it."""
        self._passed.pop(session_id, None)
        self._drop(session_id)

    def _drop(self, session_id: str) -> _Remote | None:
        remote = self._remotes.pop(session_id, None)
        if remote is not None and remote.task is not None:
            remote.task.cancel()
        return remote

    def stop(self, session_id: str) -> None:
        """Stop reading a session that is ours now. What clients here have seen of it is still known."""
        remote = self._drop(session_id)
        if remote is not None and remote.is_live:
            self.note_published(session_id, remote.last_published)

    async def state(self, entry: SessionEntry) -> SessionState:
        """The stored state of a session as it is now. Nothing is written. Raises StoreError."""
        remote = self._get(entry)
        async with remote.lock:
            if remote.state.stored.is_damaged:  # its server has written other pages in the meantime
                remote.state = self._new_state(entry.record.id, entry.agent)
                remote.is_live = remote.has_begun = False
            await self._ownership.refresh(entry.record.id)
            await self._advance(entry, remote)
        return remote.state

    async def finish(self, entry: SessionEntry) -> None:
        """Publish what is left of a live session, before this server goes on with it. Raises StoreError."""
        if self.is_live(entry.record.id):
            await self.state(entry)

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

    def note_row(self, entry: SessionEntry, last: int) -> None:
        """The row of a session has changed, and tells of events up to `last`. Reads them soon if a client listens.

        The row itself is shown to nobody: a client that saw the end of a turn in it would see that again in the journal.
        """
        session_id, before = entry.record.id, entry.row_sequence
        entry.row_sequence = last
        if self.is_live(session_id):  # perhaps the owner's word was lost
            self._show_in_entry(entry, self._remotes[session_id])
            self.read_soon(entry)
        elif last > max(before, self._passed.get(session_id, 0)):
            self.note(entry, Growth(session_id, before + 1, last))

    def note_published(self, session_id: str, last: int) -> None:
        """Note the last event that clients have seen of a session whose state is not kept."""
        self._passed.pop(session_id, None)
        self._passed[session_id] = last
        if len(self._passed) > PASSED:
            self._passed.popitem(last=False)

    def take_up(self, entry: SessionEntry, stored: int, view: LostView) -> None:
        """Go on with a session that another server has taken from this one, if a client listens.

        In: `stored`, the last event that this server has written; `view`, what clients here have seen.
        """
        session_id = entry.record.id
        entry.row_sequence = stored
        if self._deps.listened(entry.record.directory, session_id):
            self.forget(session_id)  # it may have been read up to a later event
            remote = self._get(entry)
            remote.is_live, remote.begin, remote.has_begun, remote.view = True, stored, False, view
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
            except (StoreError, SessionElsewhere) as error:
                log.warning("remote_session.not_read", session_id=entry.record.id, error=str(error))
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
                    state.show(
                        event, self._deps.changes, without=() if remote.view is None else remote.view.repeated_changes(event)
                    )
            if feed.has_listener(state.id):  # it counts sequences, so it gets each piece
                for row in page:
                    feed.show(event_of(row))
            self._show_in_entry(entry, remote)
            await asyncio.sleep(0)  # other requests go on
        if remote.has_begun and (view := remote.view) is not None:
            self._deps.changes.publish(view.correct(state), state.session, self._deps.clock.now_ms(), is_resent=True)
            if view.is_busy == state.machine.busy:  # else the end of the turn, which they have seen, is still to come
                remote.view = None

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

    def _get(self, entry: SessionEntry) -> _Remote:
        session_id = entry.record.id
        remote = self._remotes.pop(session_id, None) or _Remote(self._new_state(session_id, entry.agent))
        self._remotes[session_id] = remote
        idle = [id_ for id_, other in self._remotes.items() if id_ != session_id and other.is_idle]
        for id_ in idle[: max(0, len(self._remotes) - KEPT)]:
            old = self._remotes.pop(id_)
            if old.is_live:
                self.note_published(id_, old.last_published)
        return remote


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
