"""Maps the names of `/v1` to sessions, and creates sessions by name. OpenCode's clients see the same sessions.

A client of `/v1` chooses an id, but OpenCode's clients need `ses_...`. So a session of `/v1` has both ids, kept in the store
(namespace `universal`). A session of OpenCode's clients has its OpenCode id on both faces. This module also keeps the requested
`permissionMode`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from shim.agents.directory import Agent, AgentDirectory
from shim.agents.sandboxes import KEY as SANDBOX_KEY
from shim.host.files.roots import require
from shim.host.git.projects import Identity
from shim.lib.errors import AgentNotInstalled, AgentUnknown, InvalidRequest, ModeNotSupported, SessionExists, SessionNotFound
from shim.lib.ids import NAME_LIMIT, is_name
from shim.sessions import delegation
from shim.sessions.feed import Follower, T, wait_for_store
from shim.sessions.index.manager import SessionManager
from shim.sessions.permissions.unattended_policy import UNATTENDED_KEY, Caps, unattended_policy_of
from shim.sessions.placement import LABELS_KEY
from shim.store.base import Store
from shim.store.rows import EventRow, wire_of
from universal.agent_spec import modes_of
from universal.events import EventType, SessionStartedData, UniversalEvent
from universal.lib.jsonvalue import JsonObject, obj, text
from universal.permissions import Rule
from universal.session.values import ModelRef

NAMESPACE = "universal"

MODES: Mapping[str, str] = {"default": "", "plan": "plan", "acceptEdits": "accept-edits", "bypass": "bypass"}
"""`permissionMode` -> our mode; "" is the agent's default. `accept-edits` is accepted too."""
RULES: Mapping[str, Rule] = {"acceptEdits": Rule("edit", "*", "allow"), "bypass": Rule("*", "*", "allow")}
"""`permissionMode` -> the rule for agents without such a mode. It answers their requests before a person sees them."""


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to create. `by`: the session whose agent starts it, or ""."""

    agent: str
    mode: str | None = None
    permission_mode: str | None = None
    model: str | None = None
    variant: str | None = None
    version: str | None = None
    title: str | None = None
    unattended: str | None = None
    caps: Caps | None = None
    labels: str | None = None
    by: str = ""


class NamedSessions:
    """The names of sessions. Everything else belongs to the manager."""

    def __init__(self, manager: SessionManager, agents: AgentDirectory, store: Store) -> None:
        self.manager = manager
        self._agents = agents
        self._store = store
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._permission_modes: dict[str, str] = {}

    async def start(self) -> None:
        """Read the names. After the manager's start."""
        for name, value in (await self._store.values(NAMESPACE)).items():
            self.note(name, value)

    def note(self, name: str, value: Any) -> None:
        """Note a stored name, also one that another server of the cluster has stored."""
        if value is not None:
            self._learn(name, text(obj(value).get("session")), text(obj(value).get("permission_mode"), "default"))

    def _learn(self, name: str, session_id: str, permission_mode: str) -> None:
        self._ids[name], self._names[session_id], self._permission_modes[session_id] = session_id, name, permission_mode

    # --- names ---------------------------------------------------------------------------------------------

    async def id_of(self, name: str) -> str:
        """The session's id in the core. Raises SessionNotFound; OutsideRoots for one outside of the roots."""
        await self._look_elsewhere(name)
        session_id = self._ids.get(name, name)
        if not self._exists(session_id) or (session_id == name and name in self._names):
            raise SessionNotFound(name)
        await require(self.manager.index.record(session_id).directory, self.manager.deps.roots)
        return session_id

    async def _look_elsewhere(self, name: str) -> None:
        """Read the names again if another server may have created a session of this one."""
        if not self._exists(self._ids.get(name, name)) and self._store.ownership.is_shared():
            await self.manager.others.look_now()
            await self.start()

    def name_of(self, session_id: str) -> str:
        return self._names.get(session_id, session_id)

    def permission_mode(self, session_id: str) -> str:
        return self._permission_modes.get(session_id, "default")

    def _exists(self, session_id: str) -> bool:
        try:
            self.manager.index.record(session_id)
        except SessionNotFound:
            return False
        return True

    # --- creating --------------------------------------------------------------------------------------------

    async def create(self, name: str | None, request: NewSession, directory: str, project: Identity) -> str:
        """Create a session with this name, or (None) with its id alone. Returns the id in the core.

        Raises RequestError for a bad or used name or value.
        """
        if name is not None:
            await self._look_elsewhere(name)
            await self._need_free(name)
        unattended = unattended_policy_of(request.unattended, UNATTENDED_KEY)
        metadata: dict[str, Any] = {UNATTENDED_KEY: str(unattended)} if unattended is not None else {}
        metadata |= request.caps.to_json() if request.caps is not None else {}
        if request.labels is not None:
            metadata[LABELS_KEY] = request.labels
        agent = await self._agent(request)
        model = self._model(agent, request)
        mode, rules = self._mode(agent, request)
        await require(directory, self.manager.deps.roots)
        if name is not None:
            await self._need_free(name)  # agents may have been discovered meanwhile
        if request.by:
            level = delegation.check_start(self.manager, request.by, directory, agent, mode)
            metadata |= {SANDBOX_KEY: level} if level != "auto" else {}
        record = self.manager.create(
            directory,
            project,
            title=request.title,
            parent_id=request.by or None,
            is_delegated=bool(request.by),
            permission=rules,
            agent_name=agent.spec.name,
            mode=mode,
            model=model,
            metadata=metadata or None,
        )
        if name is not None:
            permission_mode = request.permission_mode or "default"
            self._learn(name, record.id, permission_mode)
            self._store.set_value(NAMESPACE, name, {"session": record.id, "permission_mode": permission_mode})
        await self._store.flush(record.id)
        await self._store.flush()  # the name
        return str(record.id)

    async def _need_free(self, name: str) -> None:
        """Raise SessionExists for a session that is stored, InvalidRequest, and StoreError. Waits for nothing if it is free."""
        if not is_name(name):
            message = f"A session id has 1 to {NAME_LIMIT} printable characters without '/' and '\\', and is not '.' or '..'."
            raise InvalidRequest(message, None)
        if self._exists(session_id := self._ids.get(name, name)):
            await self._store.flush(session_id)
            raise SessionExists(name)

    async def _agent(self, request: NewSession) -> Agent:
        registered = self._agents.get(request.agent)
        if registered is None:
            raise AgentUnknown(request.agent, (a.spec.name for a in self._agents.list_agents()))
        await self._agents.offer(request.agent)
        agent = self._agents.get(request.agent) or registered
        if not agent.usable:
            raise AgentNotInstalled(agent.spec.title, agent.located.why)
        version = agent.located.version
        if request.version not in (None, "", "latest", version):
            raise InvalidRequest(f"{agent.spec.title} is installed in version {version}, not {request.version}.", None)
        return agent

    def _model(self, agent: Agent, request: NewSession) -> ModelRef:
        catalogue = agent.catalogue
        default = catalogue.default_model or (catalogue.models[0].id if catalogue.models else "default")
        model_id = (request.model or default).removeprefix(f"{agent.spec.name}/")
        model = next((m for m in catalogue.models if m.id == model_id), None)
        if model is None and request.model:
            names = ", ".join(m.id for m in catalogue.models)
            raise InvalidRequest(f"{agent.spec.title} has no model {request.model!r}. It offers: {names}.", None)
        if request.variant and (model is None or request.variant not in model.variants):
            names = ", ".join(model.variants if model is not None else ()) or "none"
            raise InvalidRequest(f"Model {model_id!r} has no variant {request.variant!r}. It has: {names}.", None)
        return ModelRef(agent.spec.name, model_id, request.variant or None)

    def _mode(self, agent: Agent, request: NewSession) -> tuple[str, list[JsonObject] | None]:
        """Our mode, and rules if the agent has no such mode."""
        modes = [mode.id for mode in modes_of(agent.spec, agent.catalogue)]
        if request.mode and request.mode not in modes:
            have = ", ".join(modes)
            raise ModeNotSupported(f"{agent.spec.title} has no mode {request.mode!r}. It has: {have}.")
        permission_mode = request.permission_mode or "default"
        permission_mode = {"accept-edits": "acceptEdits"}.get(permission_mode, permission_mode)
        if permission_mode not in MODES:
            raise ModeNotSupported(f"No permissionMode {permission_mode!r}. There are: {', '.join(MODES)}.")
        if permission_mode == "default" or MODES[permission_mode] == request.mode:
            return request.mode or "build", None
        if MODES[permission_mode] in modes and request.mode in (None, "build"):
            return MODES[permission_mode], None
        if permission_mode not in RULES:
            raise ModeNotSupported(f"{agent.spec.title} has no {permission_mode} mode beside {request.mode!r}.")
        return request.mode or "build", [dict(RULES[permission_mode].to_json())]

    # --- reading -------------------------------------------------------------------------------------------

    def with_names(self, event: UniversalEvent) -> UniversalEvent:
        changes: dict[str, Any] = {}
        if event.session_id in self._names:
            changes["session_id"] = self._names[event.session_id]
        if isinstance(event.data, SessionStartedData):
            metadata = obj(event.data.metadata)
            parent = text(metadata.get("parent_session_id"))
            if parent in self._names:
                changes["data"] = SessionStartedData(metadata={**metadata, "parent_session_id": self._names[parent]})
        return event.model_copy(update=changes) if changes else event

    def wire_of(self, row: EventRow, *, include_raw: bool) -> bytes | None:
        """A stored event in the form of `/v1`, without parsing it. None if it must be parsed."""
        if row.type == EventType.SESSION_STARTED:  # it may hold the id of another session
            return None
        return wire_of(row, self._names.get(row.session_id, row.session_id), include_raw=include_raw)

    async def follower(self, session_id: str, after: int) -> Follower[UniversalEvent]:
        """The events of a session after a sequence. A sequence beyond the end means the end.

        Raises NotFound, and where another server may have stored more: SessionElsewhere, StoreError.
        """
        return await self._follower(session_id, after, self._store.events)

    async def row_follower(self, session_id: str, after: int) -> Follower[EventRow]:
        """The events of a session after a sequence. Those of the journal are stored texts, to be sent on."""
        return await self._follower(session_id, after, self._store.rows)

    async def _follower(self, session_id: str, after: int, journal: Callable[[str, int, int], Awaitable[list[T]]]) -> Follower[T]:
        state = await self.manager.readable_state(session_id)
        feed = self.manager.deps.feed
        store = wait_for_store(feed, self._store, session_id)
        if after > state.sequence and not await self._store.rows(session_id, after - 1, 1):
            after = state.sequence  # else another server has taken the session, and this one has not heard of it yet
        return Follower(feed, session_id, partial(journal, session_id), after, store)
