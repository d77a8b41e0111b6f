"""Creates, lists and terminates sessions, which OpenCode's clients share. Source: the universal API's document."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from shim.faces.v1.models import (
    CreateSessionRequest,
    CreateSessionResponse,
    SessionInfo,
    SessionListResponse,
    SessionServers,
)
from shim.faces.v1.routes.endpoint import universal, v1
from shim.host.config._generated.config_models import McpLocalConfig, McpRemoteConfig
from shim.host.files.roots import require
from shim.http.forward import need_session_here
from shim.http.operation import Ctx
from shim.lib.errors import InvalidRequest, RoleTooLow
from shim.sessions import mcp_servers
from shim.sessions.index.named_sessions import NewSession
from shim.sessions.permissions.unattended_policy import caps_of
from shim.sessions.placement import LABELS_KEY
from shim.sessions.session.lost_turns import outlives
from shim.sessions.transfer.conversations import OWN_SESSION
from universal.lib.jsonvalue import arr, obj, text
from universal.session.values import SessionRecord


class SessionPath(BaseModel):
    """`{session_id}`: the id that its creator chose, or OpenCode's."""

    session_id: str


REFUSED_FIELDS = {
    "skills": "Skills belong to the agent: install them where it looks for them, and leave `skills` out.",
}
"""Fields of the document that this server refuses, and what to do instead."""
OPENCODE_KEYS = {"env": "environment", "timeoutMs": "timeout"}
"""Key of an MCP server in the document -> in OpenCode's configuration."""


class ListQuery(BaseModel):
    """Our additions. `search`: words of the title; then also sessions that were begun in the agents' own programs.

    `owner`: the name of the person who has begun them, or `me`, who asks.
    """

    search: str = ""
    owner: str | None = None


@v1("GET", "/v1/sessions", tag="sessions", answer=SessionListResponse)
async def list_sessions(ctx: Ctx, query: ListQuery) -> object:
    """All sessions, the last changed first."""
    search, owner = query.search.casefold(), ctx.person.name if query.owner == "me" else query.owner
    listed = [record for record in await ctx.list_sessions(search) if search in record.title.casefold()]
    return SessionListResponse(sessions=[session_info(ctx, record) for record in listed if owner in (None, record.owner)])


@v1("POST", "/v1/sessions/{session_id}", tag="sessions", answer=CreateSessionResponse, errors=(400, 409))
async def create_session(ctx: Ctx, path: SessionPath, body: CreateSessionRequest) -> object:
    """Create a session under an id that the client chooses. Its agent starts with the first message."""
    face = universal(ctx)
    for name, why in REFUSED_FIELDS.items():
        if getattr(body, name):
            raise InvalidRequest(why, None)
    servers = _servers(ctx, body.mcp or {})
    if servers:
        mcp_servers.require_takers(ctx.services.agents.get(body.agent), servers)
    metadata = {LABELS_KEY: body.serverLabels}
    await need_session_here(ctx, _absolute(ctx.directory, body.directory or "."), body.agent, metadata)
    directory = await asyncio.to_thread(_directory, ctx.directory, body.directory or ".")
    await require(directory, ctx.roots)
    new_session = NewSession(
        agent=body.agent,
        mode=body.agentMode,
        permission_mode=body.permissionMode,
        model=body.model,
        variant=body.variant,
        version=body.agentVersion,
        title=body.title,
        unattended=body.unattended,
        caps=caps_of(body.model_dump(), ("maxCost", "maxTurnSeconds")),
        labels=body.serverLabels,
    )
    project = await ctx.services.projects.identity(directory)
    session_id = await face.sessions.create(path.session_id, new_session, directory, project)
    if servers:
        await mcp_servers.give(ctx.services.sessions, session_id, servers)
    return CreateSessionResponse(healthy=True, openCodeSessionId=session_id)


@v1("POST", "/v1/x-sessions/{session_id}/mcp", tag="sessions", form="none", errors=(400, 404))
async def set_session_mcp(ctx: Ctx, path: SessionPath, body: SessionServers) -> None:
    """Give a session MCP servers of its own, in place of those before: at once where its agent can, else by the next one."""
    session_id = await universal(ctx).sessions.id_of(path.session_id)
    await mcp_servers.give(ctx.services.sessions, session_id, _servers(ctx, body.mcp))


def _servers(ctx: Ctx, rows: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """MCP servers of a request, in OpenCode's form. Raises InvalidRequest, and RoleTooLow: they run programs."""
    if rows and not ctx.person.may("admin"):
        raise RoleTooLow(ctx.person.name, ctx.person.role, "admin")
    servers: dict[str, Mapping[str, Any]] = {}
    for name, value in rows.items():
        row = {OPENCODE_KEYS.get(key, key): entry for key, entry in obj(value).items() if entry is not None}
        if isinstance(row.get("command"), str) or "args" in row:
            command = row.get("command")
            row["command"] = [*([command] if isinstance(command, str) else arr(command)), *arr(row.pop("args", []))]
        model = McpRemoteConfig if row.get("type") == "remote" else McpLocalConfig
        unknown = [key for key in row if key not in model.model_fields or key == "oauth"]
        try:
            servers[name] = model.model_validate(row, strict=True).model_dump(exclude_none=True)
        except ValidationError as error:
            unknown += [str(fault["loc"][0]) for fault in error.errors()]
        if unknown:
            raise InvalidRequest(f"The MCP server {name} cannot have this `{unknown[0]}`.", path=("mcp", name, unknown[0]))
    return servers


@v1("POST", "/v1/sessions/{session_id}/terminate", tag="sessions", form="none", errors=(400, 404))
async def terminate_session(ctx: Ctx, path: SessionPath) -> None:
    """Stop a session's agent for good: `session.ended` has `terminated_by: daemon`. The session can still be read."""
    session_id = await universal(ctx).sessions.id_of(path.session_id)
    await ctx.services.sessions.terminate(session_id)


def _absolute(base: str, named: str) -> str:
    """The absolute path of a directory without `..`, which need not exist."""
    return os.path.normpath(Path(base, Path(named).expanduser()))


def _directory(base: str, named: str) -> str:
    """Resolve a directory to an absolute path without `..`. Raises InvalidRequest. Blocking."""
    directory = _absolute(base, named)
    if "\0" in directory or not Path(directory).is_dir():
        raise InvalidRequest(f"There is no directory {directory!r}.", None)
    return directory


def _resume_command(ctx: Ctx, agent_name: str, id_: str | None) -> str | None:
    """The command that goes on with a conversation in the agent's own program, if one is known."""
    agent = ctx.services.agents.get(agent_name)
    store = agent.spec.abilities.conversations if agent is not None else None
    return store.command.format(id=id_) or None if store is not None and id_ else None


def _stored_info(ctx: Ctx, record: SessionRecord) -> SessionInfo:
    """A conversation of an agent's own program, as a session that is opened when it is asked for."""
    own = obj((record.metadata or {}).get(OWN_SESSION))
    agent, id_ = text(own.get("agent")), text(own.get("id"))
    return SessionInfo(
        sessionId=record.id,
        agent=agent,
        agentMode="build",
        permissionMode="default",
        ended=False,
        eventCount=0,
        createdAt=record.created_ms,
        updatedAt=record.updated_ms,
        directory=record.directory,
        title=record.title,
        nativeSessionId=id_,
        resumeCommand=_resume_command(ctx, agent, id_),
        openCodeSessionId=record.id,
        status="idle",
    )


def session_info(ctx: Ctx, record: SessionRecord) -> SessionInfo:
    """Convert a session's record to the form of `/v1`."""
    face, sessions = universal(ctx), ctx.services.sessions
    session_id, model, parent = record.id, record.model, record.parent_id
    if session_id not in sessions.index:
        return _stored_info(ctx, record)
    status = sessions.statuses().get(session_id)
    entry = sessions.index.find(session_id)
    actor = None if entry is None else entry.actor
    return SessionInfo(
        sessionId=face.sessions.name_of(session_id),
        agent=sessions.index.agent_of(session_id),
        agentMode=record.mode or "build",
        permissionMode=face.sessions.permission_mode(session_id),
        ended=sessions.index.is_ended(session_id),
        eventCount=ctx.services.store.last_sequence(session_id),
        storedBytes=ctx.services.store.ownership.size_of(session_id),
        createdAt=record.created_ms,
        updatedAt=record.updated_ms,
        directory=record.directory,
        model=model.model_id or None if model is not None else None,
        variant=model.variant or None if model is not None else None,
        title=record.title or None,
        nativeSessionId=sessions.index.native_id(session_id),
        resumeCommand=_resume_command(ctx, sessions.index.agent_of(session_id), sessions.index.native_id(session_id)),
        openCodeSessionId=session_id,
        parentSessionId=face.sessions.name_of(parent) if parent else None,
        status=status.type if status is not None else "idle",
        unattended=str(sessions.requests.unattended_policy(session_id)),
        waitingSince=sessions.requests.waiting_since_ms(session_id),
        node=face.nodes.node_of(session_id),
        outlives=outlives(actor) if actor is not None and actor.main.machine.busy else None,
        owner=record.owner or None,
    )
