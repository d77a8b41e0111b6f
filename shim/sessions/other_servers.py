"""This module shows the sessions of other servers on the same store and takes over those of a dead server.

Every LOOK_S seconds this server reads what the others have stored since the last look. It publishes that a session is new, has
changed or is gone. The content of a turn is read only when somebody asks for the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from shim.errors import SessionElsewhere, StoreError
from shim.sessions.dependencies import SessionDeps
from shim.sessions.journal_loader import load_journal
from shim.sessions.session_entry import SessionEntry, entry_from_row
from shim.sessions.session_index import SessionIndex
from shim.sessions.session_state import SessionState
from shim.store.ownership import ClaimedSession, SessionChange
from shim.store.servers import ServerRef
from universal.session.changes import Change, SessionChanged, SessionCreated, SessionDeleted, StatusChanged
from universal.session.model import BUSY, IDLE, Session, Status

log = structlog.get_logger()

LOOK_S = 1.0
"""Seconds between two looks at what other servers have done."""
KEPT = 64
"""Number of sessions of other servers whose last read state is kept in memory."""


class OtherServers:
    """The index of sessions that belong to other servers.

    In: `detached_state` makes an empty state for reading a session (id, agent); `load` loads a session that is ours (id).
    """

    def __init__(
        self,
        deps: SessionDeps,
        index: SessionIndex,
        detached_state: Callable[[str, str], SessionState],
        load: Callable[[str], Awaitable[object]],
    ) -> None:
        self._deps = deps
        self._index = index
        self._detached_state = detached_state
        self._load = load
        self._ownership = deps.store.ownership
        self._owners: dict[str, ServerRef] = {}
        self._read: dict[str, SessionState] = {}
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    async def start(self) -> None:
        """Read which sessions belong to other servers, and start the task that looks every LOOK_S seconds."""
        self._owners = await self._ownership.owners()
        self._task = asyncio.create_task(self._follow(), name="look at other servers")

    async def close(self) -> None:
        """Stop the task that looks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def owner(self, session_id: str) -> ServerRef | None:
        """Return the living server that owns a session, or None if the session is ours or nobody's."""
        return self._owners.get(session_id)

    async def claim(self, entry: SessionEntry) -> None:
        """Make a session ours, in its stored state. Raises SessionElsewhere if another server owns it."""
        session_id = entry.record.id
        claimed = await self._ownership.claim(session_id)
        if not isinstance(claimed, ClaimedSession):
            self._owners[session_id] = claimed
            raise SessionElsewhere(session_id, claimed)
        self._owners.pop(session_id, None)
        self._read.pop(session_id, None)
        if claimed.row is not None:
            entry.update_from(entry_from_row(claimed.row))

    def must_only_read(self, session_id: str) -> bool:
        """Return whether a read must not claim the session, because another server owns it or may want it."""
        return session_id in self._owners or self._ownership.is_shared()

    async def state(self, entry: SessionEntry) -> SessionState:
        """Return the stored state of a session that is not ours. Nothing is written."""
        session_id = entry.record.id
        state = self._read.pop(session_id, None)
        if state is None or state.stored.is_damaged:  # its server has written other pages in the meantime
            state = self._detached_state(session_id, entry.agent)
        await self._ownership.refresh(session_id)
        await load_journal(state, self._deps.store)
        self._read[session_id] = state
        while len(self._read) > KEPT:
            del self._read[next(iter(self._read))]
        return state

    async def refresh(self, session_id: str) -> None:
        """Read how far the journal of a session has grown, if the session is not ours."""
        entry = self._index.find(session_id)
        if entry is not None and entry.state is None and self.must_only_read(session_id):
            await self._ownership.refresh(session_id)

    def statuses(self) -> dict[str, Status]:
        """Return a busy status for each session of another server in which a turn runs."""
        entries = ((id_, self._index.find(id_)) for id_ in self._owners)
        return {id_: BUSY for id_, entry in entries if entry is not None and entry.busy}

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
                self._failing = False
            except StoreError as error:
                if not self._failing:
                    log.error("other_servers.look_failed", error=str(error))
                self._failing = True

    async def look(self) -> None:
        """Apply what other servers have done since the last look."""
        look = await self._ownership.look()
        for session_id, owner in look.lost:
            await self._give_up(session_id, owner)
        for change in look.changes:
            self._apply(change)
        for server_id in look.ended:
            await self._take_over(server_id)

    async def _give_up(self, session_id: str, owner: ServerRef) -> None:
        """End our agent and turn in a session that another server has taken, and forget what is loaded. Nothing is stored."""
        entry = self._index.find(session_id)
        if entry is None or entry.state is None:
            return
        log.warning("other_servers.session_taken", session_id=session_id, owner=str(owner))
        entry.state.journal.is_closed = True
        if entry.actor is not None and entry.subagent:
            entry.actor.abort()  # of its parent, whose agent works in it
        elif entry.actor is not None:
            await entry.actor.close(delete=True)
        entry.state = entry.actor = None
        if owner.pid:
            self._owners[session_id] = owner
        self._deps.feed.end(session_id)

    def _apply(self, change: SessionChange) -> None:
        entry = self._index.find(change.session_id)
        if entry is not None and entry.state is not None:
            return  # it became ours in the meantime
        if change.row is None:
            self._owners.pop(change.session_id, None)
            self._read.pop(change.session_id, None)
            if entry is not None:
                self._index.remove(change.session_id)
                self._publish(SessionDeleted(entry.record), entry)
            return
        if change.owner.pid:
            self._owners[change.session_id] = change.owner
        fresh = entry_from_row(change.row)
        if entry is None:
            self._index.add(fresh)
            self._publish(SessionCreated(fresh.record), fresh)
            return
        was_busy, before = entry.busy, entry.record
        entry.update_from(fresh)
        if entry.record != before:
            self._publish(SessionChanged(entry.record), entry)
        if entry.busy != was_busy:
            self._publish(StatusChanged(BUSY if entry.busy else IDLE), entry)

    async def _take_over(self, server_id: str) -> None:
        """Clean up after a dead server, and end the turns that it left running."""
        ours = [session_id for session_id, owner in self._owners.items() if owner.id == server_id]
        for session_id in ours:
            del self._owners[session_id]
        await self._deps.clean_up(server_id)
        orphans = [session_id for session_id in ours if (entry := self._index.find(session_id)) is not None and entry.busy]
        if orphans:
            log.warning("other_servers.took_over", server=server_id, sessions=len(orphans))
        for session_id in orphans:
            with suppress(SessionElsewhere):  # a third server was quicker
                await self._load(session_id)

    def _publish(self, change: Change, entry: SessionEntry) -> None:
        self._deps.changes.publish([change], Session(entry.record, entry.agent), self._deps.clock.now_ms())
