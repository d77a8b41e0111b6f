"""This module shows the sessions of other servers on the same store and takes over those of a dead server.

Every LOOK_S seconds this server reads what the others have stored since the last look. It publishes that a session is new, has
changed or is gone. The content of a turn is read when somebody asks for the session, and in a cluster as long as a client
listens (`remote_sessions.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from shim.errors import NoServer, PlacedElsewhere, SessionElsewhere, StoreError
from shim.sessions.dependencies import SessionDeps
from shim.sessions.permissions.session_requests import SessionRequests
from shim.sessions.remote_sessions import RemoteSessions
from shim.sessions.session_entry import SessionEntry, entry_from_row
from shim.sessions.session_index import SessionIndex
from shim.sessions.session_state import SessionState
from shim.store.ownership import ClaimedSession, SessionChange
from shim.store.peers import Growth
from shim.store.servers import ServerRef
from universal.session.changes import Change, SessionChanged, SessionCreated, SessionDeleted, StatusChanged
from universal.session.model import BUSY, IDLE, Session, Status

log = structlog.get_logger()

LOOK_S = 1.0
"""Seconds between two looks at what other servers have done."""
NEW_LIMIT = 1_000
"""Maximum new sessions of other servers that wait for a look."""


class OtherServers:
    """The index of sessions that belong to other servers.

    In: `detached_state` makes an empty state for reading a session (id, agent); `load` loads a session that is ours (id);
    `requests` notes the open requests of sessions that were read.
    """

    def __init__(
        self,
        deps: SessionDeps,
        index: SessionIndex,
        detached_state: Callable[[str, str], SessionState],
        load: Callable[[str], Awaitable[object]],
        requests: SessionRequests,
    ) -> None:
        self._deps = deps
        self._index = index
        self._requests = requests
        self.remotes = RemoteSessions(deps, detached_state, requests.note)
        self._load = load
        self._ownership = deps.store.ownership
        self._owners: dict[str, ServerRef] = {}
        self._lost: dict[str, ServerRef] = {}
        """The owners of sessions that have died, until the sessions are loaded."""
        self._looking = asyncio.Lock()
        self._look_soon = asyncio.Event()
        self._new: dict[str, Growth] = {}
        """The first growth of sessions that no look has shown yet."""
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    async def start(self) -> None:
        """Read which sessions belong to other servers, and start the task that looks every LOOK_S seconds."""
        self._owners = await self._ownership.owners()
        if (peers := self._ownership.peers) is not None:
            await peers.watch(self._note_growth)
        self._task = asyncio.create_task(self._follow(), name="look at other servers")

    async def close(self) -> None:
        """Stop the task that looks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.remotes.close()

    def owner(self, session_id: str) -> ServerRef | None:
        """Return the living server that owns a session, or None if the session is ours or nobody's."""
        return self._owners.get(session_id)

    def take_lost_owner(self, session_id: str) -> ServerRef | None:
        """The dead server from which a session was taken over, once; None for others."""
        return self._lost.pop(session_id, None)

    async def claim(self, entry: SessionEntry) -> None:
        """Make a session ours, in its stored state. Raises SessionElsewhere if another server owns it."""
        session_id = entry.record.id
        claimed = await self._ownership.claim(session_id)
        if not isinstance(claimed, ClaimedSession):
            self._owners[session_id] = claimed
            raise SessionElsewhere(session_id, claimed)
        await self.remotes.finish(entry)
        if (owner := self._owners.pop(session_id, None)) is not None:
            self._lost[session_id] = owner
        self.remotes.forget(session_id)
        if claimed.row is not None:
            entry.update_from(entry_from_row(claimed.row))

    async def need_here(self, entry: SessionEntry) -> None:
        """Raise SessionElsewhere, PlacedElsewhere or NoServer if this server should not take a session."""
        if (placement := self._deps.placement) is None:
            return
        try:
            await placement.need_here(entry.record.directory, entry.agent)
        except (PlacedElsewhere, NoServer):
            owner = self.owner(entry.record.id)
            if owner is not None:
                raise SessionElsewhere(entry.record.id, owner) from None
            raise

    def must_only_read(self, session_id: str) -> bool:
        """Return whether a read must not claim the session, because another server owns it or may want it."""
        placement = self._deps.placement
        is_front = placement is not None and not placement.runs_agents
        return is_front or session_id in self._owners or self._ownership.is_shared()

    async def state(self, entry: SessionEntry) -> SessionState:
        """Return the stored state of a session that is not ours. Nothing is written."""
        return await self.remotes.state(entry)

    def _note_growth(self, growth: Growth) -> None:
        entry = self._index.find(growth.session_id)
        if entry is None and len(self._new) < NEW_LIMIT:
            self._new.setdefault(growth.session_id, growth)
            self._look_soon.set()
        elif entry is not None and entry.state is None:
            self.remotes.note(entry, growth)

    async def read_requests(self) -> None:
        """Read the sessions of other servers that may have open requests. Raises StoreError."""
        busy = [id_ for id_ in self._owners if (entry := self._index.find(id_)) is not None and entry.busy]
        for session_id in dict.fromkeys((*busy, *self.remotes.with_requests())):
            entry = self._index.find(session_id)
            if entry is not None and entry.state is None:
                await self.remotes.state(entry)

    async def owner_of_request(self, request_id: str) -> ServerRef | None:
        """The other server whose session waits for the answer to a request, or None. Raises StoreError."""
        if self._requests.session_of(request_id) is None:
            await self.read_requests()
        return self.owner(self._requests.session_of(request_id) or "")

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
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._look_soon.wait()
            self._look_soon.clear()
            try:
                await self.look()
                self._failing = False
            except StoreError as error:
                if not self._failing:
                    log.error("other_servers.look_failed", error=str(error))
                self._failing = True

    async def look(self) -> None:
        """Apply what other servers have done since the last look."""
        async with self._looking:
            look = await self._ownership.look()
            for session_id, owner in look.lost:
                await self._give_up(session_id, owner)
            for change in look.changes:
                self._apply(change)
            for server_id in look.ended:
                await self._take_over(server_id)

    async def look_now(self) -> None:
        """Look, because another server has changed something for a client of this one. The next look repeats a failed one."""
        with suppress(StoreError):
            await self.look()

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
            self.remotes.forget(change.session_id)
            if entry is not None:
                self._index.remove(change.session_id)
                self._publish(SessionDeleted(entry.record), entry)
            return
        if change.owner.pid:
            self._owners[change.session_id] = change.owner
        fresh = entry_from_row(change.row)
        if entry is None:
            self._index.add(fresh)
            growth = self._new.pop(change.session_id, None)
            if growth is not None and growth.first == 1:  # its events tell that it was created
                self.remotes.note(fresh, growth)
            if not self.remotes.is_live(change.session_id):
                self._publish(SessionCreated(fresh.record), fresh)
            return
        if self.remotes.is_live(change.session_id):  # its events tell it, also this one if its owner's word was lost
            entry.update_from(fresh)
            self.remotes.read_soon(entry)
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
            self._lost[session_id] = self._owners.pop(session_id)
        await self._deps.clean_up(server_id)
        orphans = [session_id for session_id in ours if (entry := self._index.find(session_id)) is not None and entry.busy]
        if orphans:
            log.warning("other_servers.took_over", server=server_id, sessions=len(orphans))
        placement = self._deps.placement
        for session_id in orphans:
            if placement is not None and placement.leaves_to_others(self._index.get(session_id).record.directory):
                continue
            with suppress(SessionElsewhere):  # a third server was quicker
                await self._load(session_id)

    def _publish(self, change: Change, entry: SessionEntry) -> None:
        self._deps.changes.publish([change], Session(entry.record, entry.agent), self._deps.clock.now_ms())
