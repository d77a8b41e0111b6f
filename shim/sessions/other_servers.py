"""This module shows the sessions of other servers on the same store and takes over those of a dead server.

Every LOOK_S seconds this server reads what the others have stored since the last look. It publishes that a session is new, has
changed or is gone. The content of a turn is read by `Remotes` (`stored_sessions.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Set
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import structlog

from shim.lib.errors import (
    InvalidRequest,
    NoServer,
    PlacedElsewhere,
    ServerStopping,
    SessionBusy,
    SessionElsewhere,
    SessionNotFound,
    StoreError,
    StoreUnavailable,
)
from shim.lib.tasks import end_tasks, retrieve_error, wait_at_most
from shim.sessions.index.session_entry import SessionEntry, entry_from_row
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.permissions.session_requests import SessionRequests
from shim.sessions.placement import Need, labels_of
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.session_state import SessionState
from shim.sessions.stored_sessions import Remotes
from shim.store.ownership import ClaimedSession, LostSession, SessionChange
from shim.store.servers import ServerRef
from universal.events import ErrorData
from universal.session.changes import Change, SessionChanged, SessionCreated, SessionDeleted, StatusChanged
from universal.session.model import Session
from universal.session.values import BUSY, IDLE, Status

log = structlog.get_logger()

LOOK_S = 1.0
"""Seconds between two looks at what other servers have done."""
RELEASE_S = 10.0
"""Maximum seconds that a request waits for a session that is given up: its agent has some seconds to end."""


class OtherServers:
    """The index of sessions that belong to other servers.

    In: `remotes` reads them; `load` loads a session that is ours (id), and `remove` deletes one; `requests` knows their open
    requests.
    """

    def __init__(
        self,
        deps: SessionDeps,
        index: SessionIndex,
        remotes: Remotes,
        load: Callable[[str], Awaitable[object]],
        remove: Callable[[str], Awaitable[object]],
        requests: SessionRequests,
    ) -> None:
        self._deps = deps
        self._index = index
        self._requests = requests
        self.remotes = remotes
        self._load, self._remove = load, remove
        self._ownership = deps.store.ownership
        self._owners: dict[str, ServerRef] = {}
        self._lost: dict[str, ServerRef] = {}
        """The owners of sessions that have died, until the sessions are loaded."""
        self._left_turns: dict[str, bool] = {}
        """Sessions in which a dead server has left a turn, until it is ended. True: a claim failed, so there may be one."""
        self._releases: dict[str, asyncio.Event] = {}
        """Sessions that are given up at this moment."""
        self._deletions: list[tuple[str, asyncio.Event]] = []
        """Sessions that this server deletes at this moment. Set when a look has shown that another one has deleted it."""
        self._undeleted = set[str]()
        """Sessions that another server has taken before this one had stored their deletion, until a look lists them again."""
        self._orphans = set[str]()
        """Sessions of ours whose parent another server has deleted, until they are deleted too."""
        self._looking = asyncio.Lock()
        self._look_soon = asyncio.Event()
        self._value_observers: dict[str, Callable[[str, Any], None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    async def start(self) -> None:
        """Read which sessions belong to other servers, and start the task that looks every LOOK_S seconds."""
        self._owners = await self._ownership.owners()
        await self.remotes.start(self._look_soon.set)
        self._task = asyncio.create_task(self._follow(), name="look at other servers")

    async def close(self) -> None:
        await end_tasks(self._task)
        await self.remotes.close()

    async def delete(self, error: SessionElsewhere) -> None:
        """Let the owner of a session delete it, with all below it. Raises SessionElsewhere without a cluster, and StoreError."""
        if not isinstance(error.owner, ServerRef):
            raise error
        await self.remotes.delete(error.session_id, error.owner)
        await self.look_now()

    @contextmanager
    def watch_deletion(self, session_id: str) -> Generator[Callable[[], bool]]:
        """Say within the block whether a look has shown meanwhile that another server has deleted a session."""
        deletion = session_id, asyncio.Event()
        self._deletions.append(deletion)
        try:
            yield deletion[1].is_set
        finally:
            self._deletions.remove(deletion)

    def observe_values(self, namespace: str, observer: Callable[[str, Any], None]) -> None:
        """Call a function with the key and the new value of each small value that another server changes; None: removed."""
        self._value_observers[namespace] = observer

    def owner(self, session_id: str) -> ServerRef | None:
        """Return the living server that owns a session, or None if the session is ours or nobody's."""
        return self._owners.get(session_id)

    def take_lost_owner(self, session_id: str) -> ServerRef | None:
        """The dead server from which a session was taken over, once; None for others."""
        return self._lost.pop(session_id, None)

    async def claim(self, entry: SessionEntry) -> None:
        """Make a session ours, in its stored state.

        Raises SessionElsewhere if another server owns it, SessionNotFound if one has deleted it, and StoreError.
        """
        session_id = entry.record.id
        await self._wait_for_release(session_id)
        before = self.owner(session_id)
        try:
            claimed = await self._ownership.claim(session_id)
            if isinstance(claimed, ClaimedSession):
                await self.remotes.finish(entry)
        except SessionNotFound:  # no look has shown its deletion yet
            self._apply(SessionChange(session_id, ServerRef(""), None))
            raise
        except StoreError:  # the other servers may see it as ours already, and leave its turn to us
            self._owners.pop(session_id, None)
            self._left_turns[session_id] = True
            raise
        if not isinstance(claimed, ClaimedSession):
            if self.owner(session_id) == before:  # else a look has seen a later one
                self._owners[session_id] = claimed
            raise SessionElsewhere(session_id, claimed)
        if (owner := self._owners.pop(session_id, None)) is not None:
            self._lost[session_id] = owner
        self.remotes.stop(session_id)
        if claimed.row is not None and entry.state is None:  # else another claim of this server was quicker
            entry.update_from(entry_from_row(claimed.row))

    async def need_new_here(self, directory: str, agent: str | None, metadata: object, *, is_final: bool) -> None:
        """Raise PlacedElsewhere if another server should take a new session, NoServer if none can.

        In: `is_final`, another server has chosen this one, which does not ask a third.
        """
        await self._deps.placement.need_new_here(Need(directory, agent, labels_of(metadata)), is_final=is_final)

    async def need_here(self, entry: SessionEntry) -> None:
        """Raise SessionElsewhere, PlacedElsewhere or NoServer if this server should not take a session."""
        await self._wait_for_release(entry.record.id)
        try:
            await self._deps.placement.need_here(_need_of(entry, entry.agent))
        except (PlacedElsewhere, NoServer, ServerStopping):
            owner = self.owner(entry.record.id)
            if owner is not None:
                raise SessionElsewhere(entry.record.id, owner) from None
            raise

    def must_only_read(self, session_id: str) -> bool:
        """Return whether a read must not claim the session, because another server owns it or may want it."""
        is_others = session_id in self._owners or self._ownership.is_shared()
        return is_others or not self._deps.placement.may_take_sessions

    async def state(self, entry: SessionEntry) -> SessionState:
        """Return the stored state of a session that is not ours. Ends a turn that a dead server has left in it."""
        state = await self.remotes.state(entry)
        is_left = self.owner(entry.record.id) is None and entry.record.id not in self._releases
        if state.machine.busy and is_left:  # the row did not say so when its server died
            await self._end_left_turn(entry.record.id)
            return entry.state or await self.remotes.state(self._index.get(entry.record.id))
        return state

    async def read_requests(self) -> None:
        """Read the sessions of other servers that may have open requests. Raises StoreUnavailable."""
        busy = [id_ for id_ in self._owners if (entry := self._index.find(id_)) is not None and entry.busy]
        for session_id in dict.fromkeys((*busy, *self.remotes.with_requests())):
            entry = self._index.find(session_id)
            if entry is not None and entry.state is None:
                try:
                    await self.remotes.state(entry)
                except StoreUnavailable:
                    raise
                except (StoreError, SessionNotFound) as error:  # deleted meanwhile, or damaged: the others have requests too
                    log.info("requests.not_read", session_id=session_id, error=str(error))

    async def find_request(self, request_id: str) -> None:
        """Read the sessions of other servers if an open request is not known. Raises StoreUnavailable."""
        if self._requests.session_of(request_id) is None:
            await self.read_requests()

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
            await wait_at_most(self._look_soon.wait(), LOOK_S)
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
            await asyncio.gather(*map(self.give_up, look.lost))
            for change in look.changes:
                self._apply(change)
                self._undeleted.discard(change.session_id)
            self._note_orphans({change.session_id for change in look.changes if change.row is None})
            for value in look.values:
                if (observer := self._value_observers.get(value.namespace)) is not None:
                    observer(value.key, value.value)
            for server_id in look.ended:
                await self._take_over(server_id)
            await self._end_left_turns()
            for session_id, owner in look.back:
                entry = self._index.find(session_id)
                if entry is None or entry.state is None:
                    self._owners[session_id] = owner
                    self._lost.pop(session_id, None)
            await self.remotes.tidy()
        await self._remove_orphans()

    def _note_orphans(self, deleted: Set[str]) -> None:
        """Note what this server has made below sessions that were deleted while it was cut off: nobody else knew of it."""
        if deleted:
            ours = (entry.record for entry in self._index if entry.state is not None)
            self._orphans.update(record.id for record in ours if record.parent_id in deleted)

    async def _remove_orphans(self) -> None:
        for session_id in tuple(self._orphans):
            self._orphans.discard(session_id)  # a removal looks itself
            try:
                await self._remove(session_id)
            except (SessionNotFound, SessionElsewhere):  # it is gone, or its new owner has heard of the deletion too
                pass
            except (SessionBusy, StoreError):  # its turn ends first, or nothing can be stored: the next look tries again
                self._orphans.add(session_id)

    async def look_now(self) -> None:
        """Look, because another server has changed something for a client of this one. The next look repeats a failed one.

        The look goes on if the client is gone: no later one reads again what it has read.
        """
        look = asyncio.create_task(self.look(), name="look at other servers now")
        look.add_done_callback(retrieve_error)
        with suppress(StoreError):
            await asyncio.shield(look)

    async def give_up(self, lost: LostSession) -> None:
        """End our agent and turn in a session that another server has taken, and forget what is loaded. Nothing is stored.

        Clients here see what the other server has stored. If they have seen more than that, it is void: their streams end, and
        they read everything anew.
        """
        session_id, owner = lost.session_id, lost.owner
        entry = self._index.find(session_id)
        if entry is None or entry.state is None:
            if entry is None:
                self._undeleted.add(session_id)
            self._ownership.confirm_loss(session_id)
            return
        log.warning("other_servers.session_taken", session_id=session_id, owner=str(owner))
        state, actor = entry.state, entry.actor
        state.journal.is_closed, state.journal.lost_to = True, owner
        entry.state = entry.actor = None  # requests that come from now on go to the new owner
        if owner.pid:
            self._owners[session_id] = owner
        self._deps.feed.end(session_id, is_lost=True)
        state.mute(partial(self._deps.feed.publish, to_readers=False))
        self._ownership.confirm_loss(session_id)
        entry.busy = False
        if state.sequence > lost.stored:
            self._deps.end_streams(entry.record.directory)
        self.remotes.take_up(entry, lost.stored)
        with _hand_over(self._releases, [session_id]):
            if actor is not None and entry.subagent:
                actor.abort()  # of its parent, whose agent works in it
            elif actor is not None:
                await actor.close(delete=True)

    async def _wait_for_release(self, session_id: str) -> None:
        """Wait, for RELEASE_S at most, until a session that this server gives up at this moment can be claimed."""
        if (is_released := self._releases.get(session_id)) is not None:
            await wait_at_most(is_released.wait(), RELEASE_S)

    async def need_turn_here(self, session_id: str) -> None:
        """Raise PlacedElsewhere or ServerStopping if the next turn of a session should run on another server.

        A loaded session is given up then, so that the other server can claim it. A prompt of a running turn stays with it.
        """
        entry = self._index.get(session_id)
        if entry.state is None or entry.is_at_work:
            return
        try:
            has_agent = entry.actor is not None and entry.actor.process.is_alive
            await self._deps.placement.need_here(_need_of(entry), starts_agent=not has_agent, is_ours=True)
        except PlacedElsewhere:
            if not entry.is_at_work:
                await self.release(entry)
                raise

    async def release(self, entry: SessionEntry, error: ErrorData | None = None) -> None:
        """Give a session, with those of its subagents, to whoever claims it next. In: `error`, why its turn fails.

        What is loaded is forgotten at once: requests that come from now on are placed anew.
        """
        actor = entry.actor
        family = [entry] if actor is None else [other for other in self._index if other.actor is actor]
        states = [member.state for member in family if member.state is not None]
        for member in family:
            member.state = member.actor = None
        with _hand_over(self._releases, [state.id for state in states]):
            if actor is not None:
                await actor.close(error=error)
            for state in states:
                state.journal.is_closed = True
            for state in states:
                self.remotes.note_release(state.id, state.sequence)
                await self._release_stored(state.id)

    async def _release_stored(self, session_id: str) -> None:
        try:
            await self._ownership.release(session_id)
        except SessionElsewhere:
            pass  # it was taken from us meanwhile
        except StoreError as failure:  # the other servers get it when this server's lease ends
            log.warning("other_servers.not_released", session_id=session_id, error=str(failure))

    def _apply(self, change: SessionChange) -> None:
        entry = self._index.find(change.session_id)
        if entry is not None and entry.state is not None:
            return  # it became ours in the meantime
        if change.row is None:
            self._owners.pop(change.session_id, None)
            self.remotes.forget(change.session_id)
            for session_id, is_gone in self._deletions:
                if session_id == change.session_id:
                    is_gone.set()
            if entry is not None:
                self._index.remove(change.session_id)
                self._publish(SessionDeleted(entry.record), entry)
            return
        if change.owner.pid:
            self._owners[change.session_id] = change.owner
        elif not change.owner.id:  # its owner has given it up
            self._owners.pop(change.session_id, None)
        fresh = entry_from_row(change.row)
        if fresh.busy and not change.owner.pid:
            self._left_turns.setdefault(change.session_id, False)
        if entry is None:
            self._list(fresh, change.sequence)
            return
        was_busy, before = entry.busy, entry.record
        entry.update_from(fresh)
        if not self.remotes.note_row(entry, change.sequence):
            return
        if entry.record != before:
            self._publish(SessionChanged(entry.record), entry)
        if entry.busy != was_busy:
            self._publish(StatusChanged(BUSY if entry.busy else IDLE), entry)

    def _list(self, entry: SessionEntry, sequence: int) -> None:
        self._index.add(entry)
        if entry.record.id in self._undeleted:  # clients here were told that it is deleted: they read all anew
            self._deps.end_streams(entry.record.directory)
        if self.remotes.note_new(entry, sequence):
            self._publish(SessionCreated(entry.record), entry)

    async def _take_over(self, server_id: str) -> None:
        """Clean up after a dead server, and note the turns that it left running."""
        ours = [session_id for session_id, owner in self._owners.items() if owner.id == server_id]
        for session_id in ours:
            self._lost[session_id] = self._owners.pop(session_id)
        await self._deps.clean_up(server_id)
        orphans = [session_id for session_id in ours if (entry := self._index.find(session_id)) is not None and entry.busy]
        if orphans:
            log.warning("other_servers.took_over", server=server_id, sessions=len(orphans))
        for session_id in orphans:
            self._left_turns.setdefault(session_id, False)

    async def _end_left_turns(self) -> None:
        """End the turns that dead servers left running. The next look tries again where the store failed.

        What a dead server has written may show only after its end was noticed.
        """
        for session_id in self.remotes.with_turn():
            if self.owner(session_id) is None and session_id not in self._releases:
                self._left_turns.setdefault(session_id, False)
        for session_id, is_unclear in tuple(self._left_turns.items()):
            entry = self._index.find(session_id)
            is_nobodys = entry is not None and entry.state is None and self.owner(session_id) is None
            try:
                is_left = entry is not None and is_nobodys and (entry.busy or is_unclear)
                if not is_left or await self._end_left_turn(session_id):
                    del self._left_turns[session_id]
            except StoreError as error:
                log.warning("other_servers.turn_not_ended", session_id=session_id, error=str(error))

    async def _end_left_turn(self, session_id: str) -> bool:
        """Load a session of a dead server, which ends its turn, unless another one does that. False: it must be tried again."""
        if self._deps.placement.leaves_to_others(self._index.get(session_id).record.directory):
            return True
        try:
            await self._load(session_id)
        except SessionNotFound:  # it was deleted
            pass
        except SessionElsewhere as error:  # a third server was quicker, or NATS's leader still has the lease of the dead one
            lost = self._lost.get(session_id)
            if lost is not None and isinstance(error.owner, ServerRef) and error.owner.id == lost.id:
                self._owners.pop(session_id, None)
                return False
        return True

    def _publish(self, change: Change, entry: SessionEntry) -> None:
        self._deps.changes.publish([change], Session(entry.record, entry.agent), self._deps.clock.now_ms())


def _need_of(entry: SessionEntry, agent: str | None = None) -> Need:
    record = entry.current_record
    try:
        labels = labels_of(record.metadata) if record.metadata else ()
    except InvalidRequest:  # metadata of an earlier version
        labels = ()
    return Need(record.directory, agent, labels)


@contextmanager
def _hand_over(releases: dict[str, asyncio.Event], session_ids: Collection[str]) -> Generator[None]:
    """Let requests for these sessions wait until they are given up."""
    is_released = asyncio.Event()
    releases |= dict.fromkeys(session_ids, is_released)
    try:
        yield
    finally:
        is_released.set()
        for session_id in session_ids:
            if releases.get(session_id) is is_released:  # else it is given up once more meanwhile
                del releases[session_id]
