"""Creates, finds, changes and deletes sessions, and loads each from its journal when it is first needed.

It owns the rows of the store's session table and the grants of permissions. A turn that ran when the server died is ended at the
next start, as `agent_exited`, so that no client sees the session busy for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Unpack

import structlog

from shim.agents.sandboxes import check_level, inherit_level
from shim.host.config.opencode_config import OpenCodeConfig
from shim.host.files.roots import require
from shim.host.git.projects import Identity
from shim.lib.errors import (
    InvalidRequest,
    LimitReached,
    SessionBusy,
    SessionElsewhere,
    SessionNotFound,
    StoreError,
    StoreUnavailable,
)
from shim.lib.ids import slug
from shim.lib.tasks import doer, end_tasks, retrieve_error
from shim.sessions.agent_tokens import RULES
from shim.sessions.feed import ChangeFeed, SessionChanges
from shim.sessions.history import checkpoints
from shim.sessions.history.checkpoints import CheckpointWriter
from shim.sessions.history.journal_loader import load_journal, mend
from shim.sessions.index.session_entry import DELEGATED, SessionEntry
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.other_servers import OtherServers
from shim.sessions.permissions.grants import Grants
from shim.sessions.permissions.session_requests import SessionRequests
from shim.sessions.permissions.unattended_policy import check_caps, check_unattended
from shim.sessions.placement import labels_of
from shim.sessions.prompts.context import default_title
from shim.sessions.prompts.limit_wait import check_continue_at_reset
from shim.sessions.session import lost_turns
from shim.sessions.session.actor import SessionActor
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.exit_errors import termination_data
from shim.sessions.session.native_sessions import rename_conversation
from shim.sessions.session.open_signs import OpenSigns
from shim.sessions.session.session_state import SessionState
from shim.sessions.session.tape import ROWS
from shim.sessions.stored_sessions import MakeRemotes, stored_sessions
from shim.sessions.transfer.removals import Removals
from shim.store.ownership import LostSession
from shim.store.servers import ServerRef
from universal.codec import Fact
from universal.events import EventType, SessionStartedData
from universal.items import Json
from universal.lib.jsonvalue import obj, text
from universal.permissions import DEFAULT_RULES, Policy, Rule, rules_from_json, with_home
from universal.session.changes import SessionDeleted, TurnEnded
from universal.session.model import Session
from universal.session.record_json import RecordChanges, fork_json, record_json
from universal.session.values import Fields, ForkSource, ModelRef, SessionRecord, Status, without_owner

log = structlog.get_logger()

LOADS = 3
"""Tries to load a session that is given up at the same moment."""
BACKGROUND_S = 6 * 3600.0
"""Seconds without a word after which an agent is ended though it works in the background (a server, a watcher)."""
REAP_EVERY_S = 30.0
"""Seconds between checks for idle agent processes."""


class SessionManager:
    """The sessions of this server, of all directories. In: `remotes`, which reads those of other servers."""

    def __init__(self, deps: SessionDeps, remotes: MakeRemotes = stored_sessions) -> None:
        self.deps = deps
        self.index = SessionIndex(deps.store)
        self.grants = Grants(deps.clock, deps.ids)
        self.requests = SessionRequests(
            self.index, self.grants, deps, lambda id_: self.others.remotes.find(id_), lambda id_: self.others.owner(id_)
        )
        self.generating = 0
        """Number of running requests of `shim.sessions.prompts.generate`."""
        self._loading: dict[str, asyncio.Task[SessionEntry]] = {}
        self._checkpoints = CheckpointWriter(deps.store)
        self._reaper: asyncio.Task[None] | None = None
        self.open_signs = OpenSigns(self)
        self._removals = Removals(deps.agents)
        if deps.tapes is not None:
            deps.tapes.watch = lambda tape: lost_turns.watch(self._actor_of(self.index.get(tape.session_id)), tape)
        read = remotes(deps, self.index, self.detached_state, self.requests.note)
        self.others: OtherServers = OtherServers(deps, self.index, read, self._take_over, self.delete, self.requests)
        deps.changes.observe(partial(_end_below, self), (TurnEnded,))

    # --- start and stop --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the rows, and end turns that ran when the server died."""
        await self.index.load()
        await self.others.start()
        kept = {} if self.deps.tapes is None else await self.deps.store.values(ROWS)
        for entry in self.index:
            if (entry.busy or entry.record.id in kept) and self.others.owner(entry.record.id) is None:
                with suppress(SessionElsewhere, SessionNotFound):
                    await self._take_over(entry.record.id)
        if self.deps.tapes is not None:
            await self.deps.tapes.sweep(kept)
            await self.deps.tapes.read()
        self._reaper = asyncio.create_task(self._reap_idle(), name="reap idle agents")
        if self.deps.spares is not None:
            self.deps.spares.start()

    async def close(self) -> None:
        await asyncio.gather(self.others.close(), self._removals.close())
        await end_tasks(*self._loading.values(), self._reaper)
        spares = () if self.deps.spares is None else (self.deps.spares.close(),)
        left = [actor for actor in self.index.actors() if lost_turns.leave(actor, self.deps.tapes)]
        ended = [actor for actor in self.index.actors() if actor not in left]
        if busy := [actor.main.id for actor in ended if actor.main.machine.busy]:
            log.warning("turns.ended", sessions=busy, why="the server stops")
        starts = (actor.dispatcher.close() for actor in left)
        await asyncio.gather(*(actor.close() for actor in ended), *starts, *spares)
        if self.deps.tapes is not None:
            await self.deps.tapes.starts.close()
        await self._checkpoints.close()
        self.index.retry()

    async def _reap_idle(self) -> None:
        while True:
            await asyncio.sleep(REAP_EVERY_S)
            self.index.retry()
            self.reap(self.deps.clock.now_ms())

    def reap(self, now_ms: int) -> int:
        """End agents that have been idle for long. Returns their number."""
        limit, work_limit = now_ms - int(self.deps.settings.idle_reap_s * 1000), now_ms - int(BACKGROUND_S * 1000)
        idle = [actor for actor in self.index.actors() if actor.process.is_alive and actor.last_active_ms < limit]
        return sum(actor.reap(keeps_work=actor.last_active_ms >= work_limit) for actor in idle)

    # --- creating and finding ----------------------------------------------------------------------------------

    def _new_state(self, session_id: str, agent: str) -> SessionState:
        return SessionState(session_id, agent, self.deps, self._state_changed, self.deps.feed.publish)

    def create(
        self,
        directory: str,
        project: Identity,
        *,
        title: str | None = None,
        parent_id: str | None = None,
        permission: Sequence[Json] | None = None,
        agent_name: str | None = None,
        session_id: str | None = None,
        path: str = "",
        mode: str | None = None,
        model: ModelRef | None = None,
        metadata: Fields | None = None,
        fork: ForkSource | None = None,
        is_delegated: bool = False,
    ) -> SessionRecord:
        """Create an empty session and return its record. Publishes `session.created`.

        `session_id`: an id that a client chose; `is_delegated`: the agent of the parent has started it.
        The caller has checked the directory (`roots.require`), because that follows links on the disk.
        Raises LimitReached, BadRequest (`metadata.unattended`).
        """
        session_id = session_id or self.deps.ids.new("session")
        now = self.deps.clock.now_ms()
        if (parent := self.index.find(parent_id) if parent_id else None) is not None:
            metadata = inherit_level(metadata, parent.current_record)
        record = SessionRecord(
            session_id,
            slug(session_id),
            self.deps.session_version,
            project.id,
            directory,
            path,
            title or default_title(now, child=parent_id is not None),
            now,
            now,
            parent_id=parent_id,
            mode=mode,
            model=model,
            permission=tuple(permission) if permission else None,
            metadata=metadata,
        )
        return self.add(record, agent_name, fork=fork, is_delegated=is_delegated)

    def add(
        self, record: SessionRecord, agent_name: str | None = None, *, fork: ForkSource | None = None, is_delegated: bool = False
    ) -> SessionRecord:
        """Add an imported session with its record. Raises LimitReached, BadRequest."""
        check_metadata(record.metadata)
        above = self.index.find_record(record.parent_id) if record.parent_id else None
        owner = doer() or (above.owner if above is not None else "")
        record = replace(record, owner=owner, metadata=without_owner(record.metadata))
        if len(self.index) >= self.deps.settings.max_sessions:
            raise LimitReached("max_sessions", self.deps.settings.max_sessions, "There are too many sessions: delete some.")
        name = agent_name or self.deps.agents.default().spec.name
        facts = {**({"fork": fork_json(fork)} if fork is not None else {}), **({DELEGATED: True} if is_delegated else {})}
        entry = SessionEntry(record, name, {}, facts=facts)
        self.index.add(entry)
        self._open(entry, self._new_state(record.id, name))
        assert entry.state is not None
        metadata = {"record": record_json(record), "agent": name, **facts}
        entry.state.record(EventType.SESSION_STARTED, SessionStartedData(metadata=metadata))
        self.index.save(entry)
        return entry.state.session.record

    def copy_of(self, session_id: str, title: str, fork: ForkSource | None) -> SessionState:
        """Create an empty session with the directory, agent, model and rules of another. `fork` as for `create`."""
        record = self.index.record(session_id)
        made = self.create(
            record.directory,
            Identity(record.project_id, "/"),
            title=title,
            permission=record.permission,
            agent_name=self.index.agent_of(session_id),
            path=record.path or "",
            mode=record.mode,
            model=record.model,
            metadata=record.metadata,
            fork=fork,
        )
        state = self.index.get(made.id).state
        assert state is not None
        return state

    @staticmethod
    def _open(entry: SessionEntry, state: SessionState, actor: SessionActor | None = None) -> None:
        entry.state, entry.actor, state.facts = state, actor, entry.facts

    def _actor_of(self, entry: SessionEntry) -> SessionActor:
        """The actor of a loaded session. It is made when it is needed first: most sessions are only created, listed and read."""
        if entry.actor is None:
            assert entry.state is not None
            entry.actor = SessionActor(self.deps, entry.state, entry.record.directory, self, entry.native)
        return entry.actor

    def replace(self, session_id: str) -> SessionActor:
        """Replace the actor of a moved session. The new one gets the waiting prompts. Returns the old one, to be closed."""
        entry = self.index.get(session_id)
        old, state = self._actor_of(entry), entry.state
        assert state is not None
        entry.native = {}
        old.native = {}
        self._open(entry, state)
        self._actor_of(entry).prompt_queue.parked = old.prompt_queue.parked
        self._state_changed(state)
        return old

    def open_child(self, actor: SessionActor, key: str, fact: Fact) -> SessionState:
        """Create the session of a subagent, below the session of its tool call."""
        parent = self.index.get(actor.main.id)
        meta = obj(fact.data.metadata) if isinstance(fact.data, SessionStartedData) else {}
        subagent = text(meta.get("agent"), "general")
        session_id = self.deps.ids.new("session")
        now = self.deps.clock.now_ms()
        above = actor.main.session.record
        record = SessionRecord(
            session_id,
            slug(session_id),
            above.version,
            above.project_id,
            above.directory,
            above.path,
            f"{text(meta.get('title'), 'subagent')} (@{subagent} subagent)",
            now,
            now,
            parent_id=actor.main.id,
            mode=subagent,
            model=above.model,
            permission=(Rule("task", "*", "deny").to_json(),),
            owner=above.owner,
        )
        state = self._new_state(session_id, actor.main.session.agent)
        state.account = actor.main.account
        entry = SessionEntry(record, actor.main.session.agent, {}, subagent=True)
        self.index.add(entry)
        self._open(entry, state, actor)
        metadata = {**meta, "parent_session_id": actor.main.id, "record": record_json(record), "agent": parent.agent}
        state.record(EventType.SESSION_STARTED, SessionStartedData(metadata=metadata))
        self.index.save(entry)
        actor.main.status("child", call_id=text(meta.get("call_id"), key), session_id=session_id)
        return state

    def detached_state(self, session_id: str, agent: str) -> SessionState:
        """A state for reading another server's session. It publishes nothing, and its requests are not indexed."""
        return SessionState(session_id, agent, replace(self.deps, changes=ChangeFeed()))

    def unloaded_state(self, session_id: str) -> SessionState | None:
        """A temporary state for reading a session, or None for an unknown one."""
        entry = self.index.find(session_id)
        return None if entry is None else self.detached_state(session_id, entry.agent)

    async def _take_over(self, session_id: str) -> None:
        """End the turn that a dead server has left. In a cluster the session goes on where somebody prompts next."""
        entry = await self._load(session_id, goes_on_here=False)
        if self.deps.store.ownership.sessions_move and not entry.is_at_work:
            await self.others.release(entry)

    async def _load(self, session_id: str, *, goes_on_here: bool = True) -> SessionEntry:
        """Load a session, again if it was given up at the same moment: its turn was ended for a dead server."""
        for _ in range(LOADS):
            entry = self.index.get(session_id)
            if entry.state is not None and not entry.state.stored.is_damaged:
                return entry
            if entry.state is None and goes_on_here:
                await self.others.need_here(entry)
            task = self._loading.get(session_id)
            if task is None:
                work = self._read(session_id, entry) if entry.state is None else self._mend(entry, entry.state)
                task = self._loading[session_id] = asyncio.create_task(work, name=f"load {session_id}")
                task.add_done_callback(lambda _: self._loading.pop(session_id, None))
                task.add_done_callback(retrieve_error)
            entry = await asyncio.shield(task)
            if entry.state is not None:
                return entry
        raise StoreUnavailable(f"Session {session_id} is given to another server at this moment. Try again.")

    async def _read(self, session_id: str, entry: SessionEntry) -> SessionEntry:
        if entry.subagent and await lost_turns.is_taken_up(self.deps, entry.record.parent_id):
            await self._load(entry.record.parent_id or "")  # and its subagents with it
            if entry.state is not None:
                return entry
        await self.others.claim(entry)
        state = self._new_state(session_id, entry.agent)
        await load_journal(state, self.deps.store)
        self._open(entry, state)
        lost = self.others.take_lost_owner(session_id)

        async def load_child(child_id: str) -> tuple[SessionState, Callable[[SessionActor], None]]:
            child = self.index.get(child_id)
            await self.others.claim(child)
            child_state = self._new_state(child_id, child.agent)
            await load_journal(child_state, self.deps.store)
            return child_state, lambda actor: self._open(child, child_state, actor)

        if await lost_turns.take_up(self.deps, state, lambda: self._actor_of(entry), load_child):
            entry.lost_at_ms = self.deps.clock.now_ms()
            for taken in (state, *self._actor_of(entry).children.states.values()):
                self.requests.note(taken.session)
        elif lost_turns.end_turn(state, lost.name if lost is not None else ""):
            entry.lost_at_ms = self.deps.clock.now_ms()
        if entry.busy != state.machine.busy:
            self._state_changed(state)
        self.restore_pending_prompts(session_id)
        self._checkpoints.note(state)
        return entry

    async def _mend(self, entry: SessionEntry, state: SessionState) -> SessionEntry:
        """Rebuild pages of a loaded session that the store has lost."""
        log.warning("session.mended", session_id=state.id)
        await mend(state, self.detached_state(state.id, entry.agent), self.deps.store)
        self._checkpoints.note(state)
        return entry

    def restore_pending_prompts(self, session_id: str) -> None:
        """Park the waiting prompts of a journal that was read or copied."""
        entry = self.index.get(session_id)
        if entry.state is not None and not entry.subagent and (prompts := entry.state.pending_prompts.prompts):
            queue = self._actor_of(entry).prompt_queue
            queue.restore({id_: one for id_, one in prompts.items() if one.prompt.key not in queue.pending})

    async def session(self, session_id: str) -> Session:
        """The readable state of a session, also of another server's. Raises NotFound."""
        return (await self.readable_state(session_id)).session

    async def read_ahead(self, session: Session, read: Callable[[Session], Awaitable[None]]) -> None:
        """Read pages of a session's checkpoint (`shim.sessions.history.checkpoints`). Lost pages are rebuilt.

        Raises StoreError.
        """
        try:
            await read(session)
        except checkpoints.PageLost:
            await self.session(session.id)
            await read(session)

    def loaded_session(self, session_id: str) -> Session | None:
        """The readable state of a session, or None if it is not loaded."""
        entry = self.index.find(session_id)
        return entry.state.session if entry is not None and entry.state is not None else None

    async def readable_state(self, session_id: str) -> SessionState:
        """The state for reading a session. It may be another server's, so nothing may be recorded in it. Raises NotFound."""
        entry = self.index.find(session_id)
        if entry is not None and entry.state is None and self.others.must_only_read(session_id):
            return await self.others.state(entry)
        return await self.state(session_id)

    async def need_ours(self, session_id: str) -> None:
        """Raise SessionElsewhere if another living server has the session. One of a dead server is taken over."""
        if self.others.owner(session_id) is not None:
            await self._load(session_id)

    async def state(self, session_id: str) -> SessionState:
        """The session's writer. Raises NotFound, SessionElsewhere."""
        entry = await self._load(session_id)
        assert entry.state is not None
        return entry.state

    async def actor(self, session_id: str) -> SessionActor:
        """The actor of a session.

        Raises NotFound, SessionElsewhere, PlacedElsewhere, ServerStopping, Conflict (terminated), InvalidRequest (a subagent's).
        """
        await self.others.need_turn_here(session_id)
        entry = await self._load(session_id)
        if self.deps.roots:
            await require(entry.record.directory, self.deps.roots)
        if entry.subagent:
            raise InvalidRequest(
                "This session belongs to a subagent and is driven by its parent: send the prompt to the parent session."
            )
        actor = self._actor_of(entry)
        actor.main.require_open()
        return actor

    async def abort(self, session_id: str) -> None:
        """Abort a session's turn and what its agent has started; for a subagent, its parent's. Unknown ones are ignored.

        Returns when the end is stored.

        Raises SessionElsewhere, and StoreUnavailable if the turn has ended here and that is not stored, also at a repetition.
        """
        await self.need_ours(session_id)
        entry = self.index.find(session_id)
        if entry is None or (state := entry.state) is None:
            return
        if entry.actor is not None and state.machine.busy:
            entry.actor.abort()
            await state.idle()
        await _abort_below(self, session_id)
        try:
            await state.journal.flush()
        except StoreError as error:
            raise StoreUnavailable(f"No turn runs here any more, but this is not stored yet: {error}") from error

    def statuses(self) -> dict[str, Status]:
        """The status of each session that is not idle, also of other servers' sessions."""
        return {**self.others.statuses(), **{session.id: session.status for session in self.index.busy()}}

    # --- changing ---------------------------------------------------------------------------------------------

    async def patch(self, session_id: str, **changes: Unpack[RecordChanges]) -> SessionRecord:
        """Set fields of the record, and return the new record."""
        state = await self.state(session_id)
        check_metadata(changes.get("metadata"))
        if "metadata" in changes:
            changes["metadata"] = without_owner(changes["metadata"])
        if changes:
            state.change_record(**changes)
            if (title := changes.get("title")) and not (entry := self.index.get(session_id)).subagent:
                rename_conversation(self._actor_of(entry), title)
            self._state_changed(state)
        return state.session.record

    async def delete(self, session_id: str) -> None:
        """End and remove a session and all its child sessions, children first. Other servers of a cluster remove theirs.

        Returns when that is stored. Raises SessionElsewhere if the session itself belongs to another server, and StoreError.
        """
        self.index.record(session_id)
        await self.need_ours(session_id)
        if self.deps.store.ownership.is_shared():
            await self.others.look_now()
        family = self.index.with_all_below(session_id)
        for above in family:  # the subagents of a turn end with it
            if (entry := self.index.find(above)) is not None and not entry.subagent and entry.actor is not None:
                await entry.actor.close()
        for below in reversed(family):
            if below in self.index:
                try:
                    await self._delete(below)
                except SessionElsewhere as error:
                    if below == session_id:
                        raise
                    await self.others.delete(error)

    async def _delete(self, session_id: str) -> None:
        entry = await self._load(session_id)
        record = self.index.record(session_id)
        if entry.subagent and entry.state is not None and entry.state.machine.busy:
            raise SessionBusy(session_id)
        if not entry.subagent:
            await self._actor_of(entry).close(delete=True)
        self.index.remove(session_id)
        if entry.state is not None:
            entry.state.record(EventType.SESSION_ENDED, termination_data("The session was deleted."))
            entry.state.journal.is_closed = True
        session = entry.state.session if entry.state is not None else Session(record, "")
        self.deps.store.delete_session(session_id)
        self._removals.begin(entry.native)
        is_kept = False
        try:
            with self.others.watch_deletion(session_id) as is_gone:
                try:
                    await self.deps.store.flush(session_id)
                except SessionElsewhere as error:
                    if is_kept := not is_gone():
                        await self._keep(entry, error)
                        raise
        finally:  # after a failure of the store it is deleted as soon as that can be written
            if not is_kept:
                self.deps.feed.end(session_id)
                self.deps.changes.publish([SessionDeleted(record)], session, self.deps.clock.now_ms())

    async def _keep(self, entry: SessionEntry, error: SessionElsewhere) -> None:
        """Keep a session that could not be deleted, because another server has taken it meanwhile."""
        session_id, owner = error.session_id, error.owner
        self.index.add(entry)
        if isinstance(owner, ServerRef):
            await self.others.give_up(LostSession(session_id, owner, self.deps.store.last_sequence(session_id)))

    async def terminate(self, session_id: str) -> None:
        """End a session's agent and turn for good, and return when that is stored. It can still be read.

        Raises InvalidRequest for a subagent's, SessionElsewhere, StoreError.
        """
        entry = await self._load(session_id)
        assert entry.state is not None
        main = entry.state
        if entry.subagent:
            raise InvalidRequest("This session belongs to a subagent and ends with its parent: terminate the parent session.")
        actor = self._actor_of(entry)
        await actor.close(delete=True)
        await _abort_below(self, session_id)
        for state in (main, *actor.children):
            if state.ended is None or state.ended.terminated_by != "daemon":
                state.record(EventType.SESSION_ENDED, termination_data())
                self._state_changed(state)
        await main.journal.flush()

    async def dispose(self, directory: str | None) -> None:
        """`/instance/dispose`: end the turns and agents of a directory (None: of all). The sessions stay."""
        for entry in self.index:
            if entry.actor is None or entry.subagent or directory not in (None, entry.record.directory):
                continue
            if entry.actor.main.machine.busy:
                entry.actor.abort()
                await entry.actor.main.idle()
            entry.actor.reap()
        self.grants.clear(directory)
        if self.deps.spares is not None:
            self.deps.spares.drop(directory)

    # --- permissions and questions -------------------------------------------------------------------------------

    def policy(self, state: SessionState, mode: str = "") -> Policy:
        """The permission rules in force for a session, with `mode` as the mode in force."""
        record = state.session.record
        session = rules_from_json(list(record.permission)) if record.permission else ()
        parent, variables = self.index.find(record.parent_id) if record.parent_id else None, state.variables
        if parent is not None:
            session = (*self.index.rules(state.id), *_rules_of_subagent(self.deps.config_now(record.directory), record))
            variables = variables if parent.state is None else {**parent.state.variables, **variables}
        agent = self.deps.agents.get(state.session.agent)
        environment = {**self.deps.agents.environment(), **variables}
        own = with_home(agent.spec.rules.defaults_in(environment), self.deps.home) if agent is not None else ()
        defaults = (*DEFAULT_RULES, *own, *(RULES if self.deps.agent_tokens is not None else ()))
        above = _policy_above(self, self.index.find(state.id)) if parent is not None else None
        directory = record.directory
        rules = self.deps.config_rules(directory, mode, None)
        config = (state if parent is None or parent.state is None else parent.state).config_at_start
        is_unchanged = config is None or config is self.deps.config_now(directory)
        held = None if is_unchanged else self.deps.config_rules(directory, mode, config)
        grants, files = self.grants.rules(directory, state.session.agent), self.deps.agents.rule_files
        told = (state if parent is None or parent.state is None else parent.state).session.mcp.get(state.session.agent)
        servers = tuple(dict.fromkeys((*self.deps.setups.server_names(directory), *(told or ()))))
        return Policy(defaults, rules.all, session, grants, mode, rules.person, held, files, above, servers)

    # --- rows -------------------------------------------------------------------------------------------------------

    def _state_changed(self, state: SessionState) -> None:
        state.journal.release()
        entry = self.index.find(state.id)
        if entry is not None and (entry.state is not None or not state.journal.is_closed):  # else another server has it
            entry.record = state.session.record
            entry.busy = state.machine.busy
            entry.agent = state.session.agent
            entry.ended = state.ended is not None
            entry.facts = state.facts
            self.index.save(entry)
            self._checkpoints.note(state)

    def on_actor_changed(self, actor: SessionActor) -> None:
        self.deps.room.note_change()
        entry = self.index.find(actor.main.id)
        if entry is not None:
            entry.native = actor.native
            self._state_changed(actor.main)


def _end_below(manager: SessionManager, ended: SessionChanges) -> None:
    """Let an agent that dies in its turn, or whose turn is aborted, take along what it has started."""
    if any(isinstance(change, TurnEnded) and change.reason in ("aborted", "agent_exited") for change in ended.changes):
        for record in manager.index.children(ended.session.id):
            entry = manager.index.get(record.id)
            if entry.is_delegated and entry.actor is not None:
                asyncio.get_running_loop().call_soon(entry.actor.abort)


async def _abort_below(manager: SessionManager, session_id: str) -> None:
    """Abort the sessions that a session's agent has started. Those of other servers go on there."""
    for record in manager.index.children(session_id):
        if manager.index.get(record.id).is_delegated:
            with suppress(SessionElsewhere):
                await manager.abort(record.id)


def _policy_above(manager: SessionManager, entry: SessionEntry | None) -> Policy | None:
    """The policy of the session whose agent has started this one, as it is now."""
    parent = manager.index.find(entry.record.parent_id or "") if entry is not None and entry.is_delegated else None
    if parent is None:
        return None
    state = parent.state
    if state is None:
        state = manager.detached_state(parent.record.id, parent.agent)
        state.session.record = parent.record
    return manager.policy(state, parent.mode)


def check_metadata(metadata: object) -> None:
    """Raise InvalidRequest if a session's `metadata` has an invalid value of ours."""
    check_unattended(metadata)
    check_continue_at_reset(metadata)
    check_caps(metadata)
    check_level(metadata)
    labels_of(metadata)


def _rules_of_subagent(config: OpenCodeConfig | None, record: SessionRecord) -> tuple[Rule, ...]:
    """What the configuration denies or asks for a subagent of it, whatever the agent above it may do."""
    own = config.agents.get(record.mode or "") if config is not None else None
    return tuple(rule for rule in own.rules if rule.action != "allow") if own is not None and own.mode != "primary" else ()
