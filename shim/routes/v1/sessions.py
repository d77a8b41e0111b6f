"""Sessions: made, listed, terminated. They are those of OpenCode's clients too. Source: the universal API's document."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Literal, cast

from pydantic import BaseModel

from shim.errors import InvalidRequest
from shim.host.roots import require, within
from shim.http.operation import NO_CONTENT, Ctx
from shim.opencode.build import Wire
from shim.routes.v1.endpoint import universal, v1
from shim.sessions.universal import Wanted
from shim.v1.models import CreateSessionRequest, CreateSessionResponse, SessionInfo, SessionListResponse
from universal.jsonvalue import obj, text


class SessionPath(BaseModel):
    """`{session_id}`: the id that its maker chose, or OpenCode's."""

    session_id: str


REFUSED = {
    "mcp": "MCP servers belong to the agent: configure them there (`claude mcp add` and the like), and leave `mcp` out.",
    "skills": "Skills belong to the agent: install them where it looks for them, and leave `skills` out.",
}
"""Fields of the document that are not served, and what to do instead."""


@v1("list_sessions", "GET", "/v1/sessions", tag="sessions", answer=SessionListResponse)
async def list_sessions(ctx: Ctx) -> object:
    """All sessions, the last changed first."""
    infos = sorted(ctx.services.sessions.infos(), key=lambda i: (i["time"]["updated"], i["time"]["created"]), reverse=True)
    roots = ctx.services.settings.roots
    return SessionListResponse(sessions=[session_info(ctx, info) for info in infos if within(info["directory"], roots)])


@v1(
    "create_session",
    "POST",
    "/v1/sessions/{session_id}",
    tag="sessions",
    answer=CreateSessionResponse,
    errors=(400, 409),
)
async def create_session(ctx: Ctx, path: SessionPath, body: CreateSessionRequest) -> object:
    """A new session under an id that the client chooses. Its agent starts with the first message."""
    face = universal(ctx)
    for name, why in REFUSED.items():
        if getattr(body, name):
            raise InvalidRequest(why, None)
    directory = await asyncio.to_thread(_directory, ctx.directory, body.directory or ".")
    require(directory, ctx.services.settings.roots)
    wanted = Wanted(
        agent=body.agent,
        mode=body.agentMode,
        permission_mode=body.permissionMode,
        model=body.model,
        variant=body.variant,
        version=body.agentVersion,
        title=body.title,
        unattended=body.unattended,
    )
    project = await ctx.services.projects.identity(directory)
    session_id = await face.sessions.create(path.session_id, wanted, directory, project)
    return CreateSessionResponse(healthy=True, openCodeSessionId=session_id)


@v1("terminate_session", "POST", "/v1/sessions/{session_id}/terminate", tag="sessions", form="none", errors=(400, 404))
async def terminate_session(ctx: Ctx, path: SessionPath) -> object:
    """Stops its agent for good; `session.ended` says `terminated_by: daemon`. The session can still be read. Again is fine."""
    await ctx.services.sessions.terminate(universal(ctx).sessions.id_of(path.session_id))
    await ctx.services.store.flush()
    return NO_CONTENT


def _directory(base: str, named: str) -> str:
    """Absolute, without `..`. Raises InvalidRequest. Blocking."""
    directory = os.path.normpath(Path(base, Path(named).expanduser()))
    if "\0" in directory or not Path(directory).is_dir():
        raise InvalidRequest(f"There is no directory {directory!r}.", None)
    return directory


def session_info(ctx: Ctx, info: Wire) -> SessionInfo:
    """A session as `/v1` shows it."""
    face, sessions = universal(ctx), ctx.services.sessions
    session_id = str(info["id"])
    model = obj(info.get("model"))
    parent = text(info.get("parentID"))
    status = text(obj(sessions.statuses().get(session_id)).get("type"), "idle")
    return SessionInfo(
        sessionId=face.sessions.name_of(session_id),
        agent=sessions.agent_of(session_id),
        agentMode=text(info.get("agent"), "build"),
        permissionMode=face.sessions.permission_mode(session_id),
        ended=sessions.is_ended(session_id),
        eventCount=ctx.services.store.last_sequence(session_id),
        createdAt=info["time"]["created"],
        updatedAt=info["time"]["updated"],
        directory=info["directory"],
        model=text(model.get("id")) or None,
        variant=text(model.get("variant")) or None,
        title=text(info.get("title")) or None,
        nativeSessionId=sessions.native_id(session_id),
        openCodeSessionId=session_id,
        parentSessionId=face.sessions.name_of(parent) if parent else None,
        status=cast(Literal["idle", "busy", "retry"], status),
        unattended=str(sessions.unattended(session_id)),
        waitingSince=sessions.waiting_since_ms(session_id),
    )
