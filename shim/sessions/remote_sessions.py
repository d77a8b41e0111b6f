"""Sessions of other servers, read from their journals: states for reads, and live changes for the clients of this server.

The owner tells the others that a journal has grown. If a client here listens, the new events are read, applied by the same pure
reducer, and published as if they had happened here. If nobody listens, the state is read when somebody asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from shim.errors import StoreError
from shim.sessions.dependencies import SessionDeps
from shim.sessions.journal_loader import PAGE, join_deltas, load_journal
from shim.sessions.session_entry import SessionEntry
from shim.sessions.session_state import SessionState
from shim.store.peers import Growth
from universal.session.model import Session

log = structlog.get_logger()

KEPT = 64
"""Number of sessions of other servers whose last read state is kept in memory, beside those with a running turn."""


@dataclass(slots=True)
class _Remote:
    """A session of another server.

    is_live  its events are published as they come
    begin    the last event that is not published, of a session that has just become live
    task     reads what is new
    is_due   there is something new that the task has not begun to read
    """

    state: SessionState
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_live: bool = False
    begin: int = 0
    task: asyncio.Task[None] | None = None
    is_due: bool = False


class RemoteSessions:
    """The sessions of other servers that somebody looks at.

    In: `new_state` makes an empty state that publishes nothing itself; `on_read` is called with a session that was read anew.
    """

    def __init__(
        self, deps: SessionDeps, new_state: Callable[[str, str], SessionState], on_read: Callable[[Session], None]
    ) -> None:
        self._deps = deps
        self._new_state = new_state
        self._on_read = on_read
        self._ownership = deps.store.ownership
        self._remotes: dict[str, _Remote] = {}

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

    def with_requests(self) -> list[str]:
        """Ids of the sessions that had open requests when they were last read."""
        sessions = (remote.state.session for remote in self._remotes.values())
        return [session.id for session in sessions if session.permissions or session.questions]

    def forget(self, session_id: str) -> None:
        """Forget a session that is gone, or ours now."""
        remote = self._remotes.pop(session_id, None)
        if remote is not None and remote.task is not None:
            remote.task.cancel()

    async def state(self, entry: SessionEntry) -> SessionState:
        """The stored state of a session as it is now. Nothing is written. Raises StoreError."""
        remote = self._get(entry)
        async with remote.lock:
            if remote.state.stored.is_damaged:  # its server has written other pages in the meantime
                remote.state = self._new_state(entry.record.id, entry.agent)
                remote.is_live = False
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
                remote.is_live = False
            return
        remote = self._get(entry)
        if not remote.is_live:
            remote.is_live, remote.begin = True, growth.first - 1
        self.read_soon(entry)

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
            except StoreError as error:  # the next growth, or the next look, reads it
                log.warning("remote_session.not_read", session_id=entry.record.id, error=str(error))

    async def _advance(self, entry: SessionEntry, remote: _Remote) -> None:
        """Read what is new, and publish it if the session is live."""
        state, store = remote.state, self._deps.store
        if not remote.is_live or state.sequence < remote.begin:
            before = state.sequence
            await load_journal(state, store, until=remote.begin if remote.is_live else None)
            if state.sequence != before:
                self._on_read(state.session)
        while remote.is_live and (page := await store.brief(state.id, state.sequence, PAGE)):
            with self._deps.changes.burst():
                for event in join_deltas(page):
                    state.show(event, self._deps.changes, self._deps.feed)
            entry.record, entry.busy = state.session.record, state.machine.busy
            await asyncio.sleep(0)

    def _get(self, entry: SessionEntry) -> _Remote:
        session_id = entry.record.id
        remote = self._remotes.pop(session_id, None) or _Remote(self._new_state(session_id, entry.agent))
        self._remotes[session_id] = remote
        idle = [id_ for id_, other in self._remotes.items() if not other.state.machine.busy and not other.lock.locked()]
        for id_ in idle[: max(0, len(self._remotes) - KEPT)]:
            if id_ != session_id:
                del self._remotes[id_]
        return remote
