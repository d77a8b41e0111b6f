"""All sessions: made, found, listed, changed, deleted; loaded from the journal when first needed.

Owner of the rows of the store's session table and of the permissions that people granted. A session that was busy when
the server died is closed at the next start, as `agent_exited`, so that no client sees it busy for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from shim.collector import collector
from shim.errors import (
    InvalidRequest,
    LimitReached,
    SessionBusy,
    SessionElsewhere,
)
from shim.host.roots import require, require_blocking
from shim.ids import slug
from shim.sessions import checkpoints
from shim.sessions.actor import SessionActor
from shim.sessions.dependencies import ProjectLike, SessionDeps
from shim.sessions.exit_errors import termination_data
from shim.sessions.feed import ChangeFeed
from shim.sessions.journal_loader import load_journal, mend
from shim.sessions.other_servers import OtherServers
from shim.sessions.permissions.grants import Grants
from shim.sessions.permissions.open_requests import OpenRequests
from shim.sessions.permissions.requests import check_unattended
from shim.sessions.permissions.session_requests import SessionRequests
from shim.sessions.prompts.context import default_title
from shim.sessions.session_entry import SessionEntry
from shim.sessions.session_index import SessionIndex
from shim.sessions.session_state import SessionState
from universal.codec import Fact
from universal.events import EventType, SessionStartedData
from universal.items import Json
from universal.jsonvalue import obj, text
from universal.permissions import DEFAULT_RULES, Policy, Rule, rules_from_json, with_home
from universal.session.changes import SessionDeleted
from universal.session.model import Fields, ModelRef, Session, SessionRecord, Status
from universal.session.record_json import record_json

log = structlog.get_logger()

CHECKPOINTS_S = 5.0
"""Longest that a server that stops waits for checkpoints that are being written."""
REAP_EVERY_S = 30.0
"""How often idle agent processes are looked for."""


@dataclass(frozen=True, slots=True)
class _Project:
    id: str
    worktree: str = "/"


class SessionManager:
    """The sessions of this server, of all directories."""

    def __init__(self, deps: SessionDeps) -> None:
        self.deps = deps
        self.index = SessionIndex(deps.store)
        self.grants = Grants(deps.clock, deps.ids)
        self._open_requests = OpenRequests()
        self.requests = SessionRequests(self.index, self._open_requests, self.grants, deps)
        self.generating = 0
        """Answers of `shim.sessions.prompts.generate` that are being made."""
        self._loading: dict[str, asyncio.Task[SessionEntry]] = {}
        self._saving: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._reaper: asyncio.Task[None] | None = None
        self.others = OtherServers(self, deps.clean_up)

    # --- life of the server --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the rows; close what was busy when the server died."""
        await self.index.load()
        await self.others.start()
        for entry in self.index:
            if entry.busy and self.others.owner(entry.record.id) is None:
                with suppress(SessionElsewhere):
                    await self._load(entry.record.id)
        self._reaper = asyncio.create_task(self._reap_idle(), name="reap idle agents")

    async def close(self) -> None:
        """End all turns and all agents."""
        await self.others.close()
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.wait([self._reaper])
        await asyncio.gather(*(actor.close() for actor in self.index.actors()))
        self._is_closed = True
        if self._saving:
            await asyncio.wait(self._saving, timeout=CHECKPOINTS_S)
        self.index.retry()

    async def _reap_idle(self) -> None:
        while True:
            await asyncio.sleep(REAP_EVERY_S)
            self.index.retry()
            self.reap(self.deps.clock.now_ms())

    def reap(self, now_ms: int) -> int:
        """End agents that have been idle for long; how many."""
        limit = now_ms - int(self.deps.idle_reap_s * 1000)
        idle = [actor for actor in self.index.actors() if actor.alive and actor.last_active_ms < limit]
        for actor in idle:
            actor.reap()
        return len(idle)

    # --- making and finding ----------------------------------------------------------------------------------

    def _new_state(self, session_id: str, agent: str) -> SessionState:
        return SessionState(
            session_id,
            agent,
            store=self.deps.store,
            changes=self.deps.changes,
            clock=self.deps.clock,
            ids=self.deps.ids,
            on_change=self._state_changed,
            feed=self.deps.feed.publish,
            requests=self._open_requests,
        )

    def create(
        self,
        directory: str,
        project: ProjectLike,
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
        extra: Fields | None = None,
        fork: Fields | None = None,
    ) -> SessionRecord:
        """A new, empty session; its record. Publishes `session.created`.

        `session_id`: a client's own id; `extra`: fields of OpenCode's JSON that the record keeps beside its own;
        `fork`: what it is one of, as OpenCode 2 says it: `{sessionID, boundary: {type, messageID}}`.
        Raises LimitReached, BadRequest (`metadata.unattended`).
        """
        check_unattended(metadata)
        session_id = session_id or self.deps.ids.new("session")
        now = self.deps.clock.now_ms()
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
            extra=extra or {},
        )
        return self.add(record, agent_name, fork=fork)

    def add(self, record: SessionRecord, agent_name: str | None = None, *, fork: Fields | None = None) -> SessionRecord:
        """The same with a record that exists already: an imported session. Raises LimitReached, BadRequest."""
        require_blocking(record.directory, self.deps.roots)  # the request has followed its links in a thread just before
        check_unattended(record.metadata)
        if len(self.index) >= self.deps.max_sessions:
            raise LimitReached("max_sessions", self.deps.max_sessions, "There are too many sessions: delete some.")
        name = agent_name or self.deps.agents.default().spec.name
        entry = SessionEntry(record, name, {}, facts={"fork": fork} if fork else {})
        self.index.add(entry)
        self._open(entry, self._new_state(record.id, name))
        assert entry.state is not None
        metadata = {"record": record_json(record), "agent": name, **({"fork": fork} if fork else {})}
        entry.state.record(EventType.SESSION_STARTED, SessionStartedData(metadata=metadata))
        self.index.save(entry)
        return entry.state.session.record

    def copy_of(self, session_id: str, title: str, fork: Fields | None) -> SessionState:
        """A new, empty session beside an existing one: same directory, agent, model and rules. `fork` as for `create`."""
        record = self.index.record(session_id)
        made = self.create(
            record.directory,
            _Project(record.project_id),
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

    def _open(self, entry: SessionEntry, state: SessionState, actor: SessionActor | None = None) -> None:
        entry.state, state.facts = state, entry.facts
        entry.actor = actor or SessionActor(
            self.deps,
            state,
            directory=entry.record.directory,
            open_child=self._open_child,
            policy=self.policy,
            on_change=self._actor_changed,
            native=entry.native,
        )

    def replace(self, session_id: str) -> SessionActor:
        """The session is in another directory now: a new one is at work in it, with what waits. The old one, to be closed."""
        entry = self.index.get(session_id)
        old, state = entry.actor, entry.state
        assert old is not None and state is not None
        entry.native = {}
        old.native = {}
        self._open(entry, state)
        assert entry.actor is not None
        entry.actor.prompt_queue.parked = old.prompt_queue.parked
        self._state_changed(state)
        return old

    def _open_child(self, actor: SessionActor, key: str, fact: Fact) -> SessionState:
        """A subagent begins: a session of its own below the one whose tool call made it."""
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
        )
        state = self._new_state(session_id, actor.main.session.agent)
        entry = SessionEntry(record, actor.main.session.agent, {}, subagent=True)
        self.index.add(entry)
        self._open(entry, state, actor)
        metadata = {**meta, "parent_session_id": actor.main.id, "record": record_json(record), "agent": parent.agent}
        state.record(EventType.SESSION_STARTED, SessionStartedData(metadata=metadata))
        self.index.save(entry)
        actor.main.status("child", call_id=text(meta.get("call_id"), key), session_id=session_id)
        return state

    def detached_state(self, session_id: str, agent: str) -> SessionState:
        """A state to read another server's session into: it publishes nothing, and nobody waits for its requests."""
        deps = self.deps
        return SessionState(
            session_id, agent, store=deps.store, changes=ChangeFeed(), clock=deps.clock, ids=deps.ids, on_change=lambda _: None
        )

    def unloaded_state(self, session_id: str) -> SessionState | None:
        """A state to read a session into for a moment; None if there is no such session."""
        entry = self.index.find(session_id)
        return None if entry is None else self.detached_state(session_id, entry.agent)

    async def _load(self, session_id: str) -> SessionEntry:
        entry = self.index.get(session_id)
        if entry.state is not None and not entry.state.stored.is_damaged:
            return entry
        task = self._loading.get(session_id)
        if task is None:
            work = self._read(session_id, entry) if entry.state is None else self._mend(entry, entry.state)
            task = self._loading[session_id] = asyncio.create_task(work, name=f"load {session_id}")
            task.add_done_callback(lambda _: self._loading.pop(session_id, None))
        return await asyncio.shield(task)

    async def _read(self, session_id: str, entry: SessionEntry) -> SessionEntry:
        await self.others.claim(entry)
        state = self._new_state(session_id, entry.agent)
        await load_journal(state, self.deps.store)
        self._open(entry, state)
        state.recover()
        if entry.busy != state.machine.busy:
            self._state_changed(state)
        self.restore_pending_prompts(session_id)
        self._save_checkpoint_soon(state)
        return entry

    async def _mend(self, entry: SessionEntry, state: SessionState) -> SessionEntry:
        """Make pages of a loaded session anew that the store has lost."""
        log.warning("session.mended", session_id=state.id)
        await mend(state, self.detached_state(state.id, entry.agent), self.deps.store)
        self._save_checkpoint_soon(state)
        return entry

    def restore_pending_prompts(self, session_id: str) -> None:
        """Park the prompts that wait in a journal that was read, or copied."""
        entry = self.index.get(session_id)
        if entry.actor is not None and entry.state is not None and not entry.subagent:
            entry.actor.prompt_queue.restore(entry.state.pending_prompts.prompts)

    async def session(self, session_id: str) -> Session:
        """What can be read of a session, also of another server's. Raises NotFound."""
        return (await self.readable_state(session_id)).session

    async def read_ahead(self, session: Session, read: Callable[[Session], Awaitable[None]]) -> None:
        """Read pages of a session's checkpoint, by `shim.sessions.checkpoints`. Pages that are lost are made anew.

        Raises StoreError.
        """
        try:
            await read(session)
        except checkpoints.PageLost:
            await self.session(session.id)
            await read(session)

    def loaded_session(self, session_id: str) -> Session | None:
        """What can be read of a session, if it is loaded."""
        entry = self.index.find(session_id)
        return entry.state.session if entry is not None and entry.state is not None else None

    async def readable_state(self, session_id: str) -> SessionState:
        """A state to read the session from; nothing may be recorded in it, since it may be another server's. Raises NotFound."""
        entry = self.index.find(session_id)
        if entry is not None and entry.state is None and self.others.must_only_read(session_id):
            return await self.others.state(entry)
        return await self.state(session_id)

    async def state(self, session_id: str) -> SessionState:
        """The session's writer. Raises NotFound, SessionElsewhere."""
        entry = await self._load(session_id)
        assert entry.state is not None
        return entry.state

    async def actor(self, session_id: str) -> SessionActor:
        """The session at work. Raises NotFound, SessionElsewhere, Conflict (terminated), InvalidRequest (a subagent's)."""
        entry = await self._load(session_id)
        assert entry.actor is not None
        await require(entry.record.directory, self.deps.roots)
        if entry.subagent:
            raise InvalidRequest(
                "This session belongs to a subagent and is driven by its parent: send the prompt to the parent session."
            )
        entry.actor.main.require_open()
        return entry.actor

    async def abort(self, session_id: str) -> None:
        """Abort a session's turn; a subagent's by aborting its parent's. Unknown sessions are nothing to abort.

        Raises SessionElsewhere.
        """
        if (owner := self.others.owner(session_id)) is not None:
            raise SessionElsewhere(session_id, owner)
        entry = self.index.find(session_id)
        if entry is not None and entry.actor is not None and entry.state is not None and entry.state.machine.busy:
            entry.actor.abort()
            await entry.state.idle()

    def statuses(self) -> dict[str, Status]:
        """Status of each session that is not idle, those of other servers too."""
        return {**self.others.statuses(), **{session.id: session.status for session in self.index.busy()}}

    # --- changing ---------------------------------------------------------------------------------------------

    async def patch(self, session_id: str, **changes: Any) -> SessionRecord:
        """Set fields of the record, as `importer.patched` names them; the new record."""
        state = await self.state(session_id)
        check_unattended(changes.get("metadata"))
        if changes:
            state.status("session", **changes)
            self._state_changed(state)
        return state.session.record

    async def delete(self, session_id: str) -> None:
        """End it and remove it and all below it, children first."""
        self.index.record(session_id)
        for below in reversed(self.index.with_all_below(session_id)):
            if below in self.index:
                await self._delete(below)

    async def _delete(self, session_id: str) -> None:
        entry = await self._load(session_id)
        record = self.index.record(session_id)
        if entry.subagent and entry.state is not None and entry.state.machine.busy:
            raise SessionBusy(session_id)
        if entry.actor is not None and not entry.subagent:
            await entry.actor.close(delete=True)
        self.index.remove(session_id)
        if entry.state is not None:
            entry.state.record(EventType.SESSION_ENDED, termination_data("The session was deleted."))
            entry.state.journal.is_closed = True
        collector.note_released(self.deps.store.last_sequence(session_id))
        self.deps.store.delete_session(session_id)
        self.deps.feed.end(session_id)
        session = entry.state.session if entry.state is not None else Session(record, "")
        self.deps.changes.publish([SessionDeleted(record)], session, self.deps.clock.now_ms())

    async def terminate(self, session_id: str) -> None:
        """End its agent and its turn for good; it can be read. Again is fine. Raises InvalidRequest for a subagent's."""
        entry = await self._load(session_id)
        assert entry.actor is not None and entry.state is not None
        if entry.subagent:
            raise InvalidRequest("This session belongs to a subagent and ends with its parent: terminate the parent session.")
        await entry.actor.close(delete=True)
        for state in (entry.state, *entry.actor.children):
            if state.ended is None or state.ended.terminated_by != "daemon":
                state.record(EventType.SESSION_ENDED, termination_data())
                self._state_changed(state)

    async def dispose(self, directory: str | None) -> None:
        """`/instance/dispose`: turns of this directory (None: of all) end, agents stop; the sessions stay."""
        for entry in self.index:
            if entry.actor is None or entry.subagent or directory not in (None, entry.record.directory):
                continue
            if entry.actor.main.machine.busy:
                entry.actor.abort()
                await entry.actor.main.idle()
            entry.actor.reap()
        self.grants.clear(directory)

    # --- permissions and questions -------------------------------------------------------------------------------

    def policy(self, state: SessionState, mode: str = "") -> Policy:
        """The permission rules in force for a session, with `mode` as the mode in force."""
        record = state.session.record
        session = rules_from_json(list(record.permission or ()))
        parent, variables = self.index.find(record.parent_id or ""), state.variables
        if parent is not None and parent.state is not None:
            if self.index.get(state.id).subagent:  # what clients are shown of a subagent's own rules is native's, for its cards
                session = ()
            session = (*rules_from_json(list(parent.state.session.record.permission or ())), *session)
            variables = {**parent.state.variables, **variables}
        agent = self.deps.agents.get(state.session.agent)
        environment = {**self.deps.agents.environment(), **variables}
        own = with_home(agent.spec.rules_in(environment), self.deps.home) if agent is not None else ()
        defaults = (*DEFAULT_RULES, *own)
        directory = record.directory
        return Policy(defaults, self.deps.config_rules(directory), session, self.grants.rules(directory), mode)

    # --- rows -------------------------------------------------------------------------------------------------------

    def _state_changed(self, state: SessionState) -> None:
        state.journal.release()
        entry = self.index.find(state.id)
        if entry is not None:
            entry.record = state.session.record
            entry.busy = state.machine.busy
            entry.agent = state.session.agent
            entry.ended = state.ended is not None
            entry.facts = state.facts
            self.index.save(entry)
            self._save_checkpoint_soon(state)

    def _save_checkpoint_soon(self, state: SessionState) -> None:
        """Save a checkpoint when clients know what happens now."""
        if state.stored.is_due(state.sequence) and not state.journal.is_closed and not self._is_closed:
            saving = asyncio.create_task(checkpoints.save_in_steps(state, self.deps.store), name=f"checkpoint {state.id}")
            self._saving.add(saving)
            saving.add_done_callback(self._saving.discard)

    def _actor_changed(self, actor: SessionActor) -> None:
        entry = self.index.find(actor.main.id)
        if entry is not None:
            entry.native = actor.native
            self._state_changed(actor.main)
