"""Sessions: made, listed, read, changed, forked, deleted.

Source: `docs/wire.md` section 6; recordings `session_ops`, `list_queries`.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator

from shim.errors import InvalidRequest, MessageNotFound, SessionBusy
from shim.faces.opencode1 import read
from shim.faces.opencode1.endpoint import operation
from shim.host.roots import visible
from shim.http.operation import Ctx, need_id
from shim.sessions.transfer.fork import fork as fork_session
from universal.diffs import relative
from universal.session.importer import session_model
from universal.session.model import UserInfo

DEFAULT_LIMIT = 100
"""Sessions in one answer when the client names no limit, as native."""


def _number(text: Any) -> float | None:
    """A number that is none (`abc`, `NaN`) counts as not sent, as for native."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


Number = Annotated[float | None, BeforeValidator(_number)]
"""Of a query."""


class SessionPath(BaseModel):
    """`{sessionID}` of a path."""

    sessionID: str


class RuleBody(BaseModel):
    """A permission rule."""

    permission: str
    pattern: str
    action: str


class ModelBody(BaseModel):
    """A session's model."""

    id: str
    providerID: str
    variant: str | None = None


class CreateBody(BaseModel):
    """`POST /session`."""

    parentID: Annotated[str, need_id("ses")] | None = None
    title: str | None = None
    agent: str | None = None
    model: ModelBody | None = None
    metadata: dict[str, Any] | None = None
    permission: list[RuleBody] | None = None


@operation("session.create")
async def create(ctx: Ctx, body: CreateBody | None) -> object:
    """A new session. A parent that does not exist is accepted, as by native."""
    given = body or CreateBody()
    services = ctx.services
    project = await services.projects.identity(ctx.directory)
    record = services.sessions.create(
        ctx.directory,
        project,
        title=given.title,
        parent_id=given.parentID,
        permission=[r.model_dump() for r in given.permission or ()] or None,
        agent_name=given.model.providerID if given.model is not None else None,
        path=_path(ctx.directory, project.worktree),
        mode=given.agent,
        model=session_model(given.model.model_dump()) if given.model is not None else None,
        metadata=given.metadata,
    )
    await services.store.flush()
    return read.session(record)


def _path(directory: str, worktree: str) -> str:
    path = relative(directory, worktree) if worktree != "/" else ""
    return "" if path in (".", directory) else path


class ListQuery(BaseModel):
    """`GET /session`. Times in epoch ms; `limit=abc` is ignored, as by native."""

    directory: str | None = None
    scope: str | None = None
    path: str | None = None
    roots: str | None = None
    start: Number = None
    search: str | None = None
    limit: Number = None


@operation("session.list")
async def list_(ctx: Ctx, query: ListQuery) -> object:
    """Newest first by `time.updated`; of the directory's project, narrowed by what the query names."""
    if query.roots not in (None, "true", "false"):
        raise InvalidRequest(f'Expected "true" or "false", got "{query.roots}"', "Query", ("roots",))
    project = await ctx.services.projects.identity(ctx.directory)
    records = visible(ctx.services.sessions.records(), ctx.services.settings.roots)
    found = [one for one in records if one.project_id == project.id]
    if project.id == "global" or (query.directory and query.scope != "project" and query.path is None):
        found = [one for one in found if one.directory == ctx.directory]
    if query.path is not None and query.scope != "project":
        prefix = query.path.strip("/")
        found = [one for one in found if not prefix or f"{one.path or ''}/".startswith(prefix + "/")]
    if query.roots == "true":
        found = [one for one in found if one.parent_id is None]
    if query.start is not None:
        start = query.start
        found = [one for one in found if one.updated_ms >= start]
    if query.search:
        found = [one for one in found if query.search.lower() in one.title.lower()]
    found.sort(key=lambda one: (one.updated_ms, one.created_ms), reverse=True)
    limit = DEFAULT_LIMIT if query.limit is None else int(query.limit)
    page = found[:limit] if limit >= 0 else found  # a negative one is none, as for native
    return list(map(read.session, page))


@operation("session.get")
async def get(ctx: Ctx, path: SessionPath) -> object:
    """One session, whatever the directory of the request."""
    return read.session(ctx.services.sessions.record(path.sessionID))


class TimeBody(BaseModel):
    """`time` of a patch; `archived` null takes it back."""

    archived: float | None = None


class PatchBody(BaseModel):
    """`PATCH /session/{id}`."""

    title: str | None = None
    metadata: dict[str, Any] | None = None
    permission: list[RuleBody] | None = None
    time: TimeBody | None = None


@operation("session.update")
async def update(ctx: Ctx, path: SessionPath, body: PatchBody) -> object:
    """Change title, permission rules, metadata, archived; an empty body changes nothing and sends nothing."""
    changes: dict[str, Any] = {}
    if body.title is not None:
        changes["title"] = body.title
    if body.metadata is not None:
        changes["metadata"] = body.metadata
    if body.permission is not None:
        changes["permission"] = [r.model_dump() for r in body.permission]
    if body.time is not None and "archived" in body.time.model_fields_set:
        changes["archived"] = body.time.archived
    record = await ctx.services.sessions.patch(path.sessionID, **changes)
    await ctx.services.store.flush()
    return read.session(record)


@operation("session.delete")
async def delete(ctx: Ctx, path: SessionPath) -> object:
    """Ends what runs, removes the session and all below it."""
    await ctx.services.sessions.delete(path.sessionID)
    await ctx.services.store.flush()
    return True


@operation("session.children")
async def children(ctx: Ctx, path: SessionPath) -> object:
    """Sessions with this one as parent (subagents); forks are not."""
    ctx.services.sessions.record(path.sessionID)
    return list(map(read.session, ctx.services.sessions.children(path.sessionID)))


class ForkBody(BaseModel):
    """`messageID` is exclusive: the fork has what is before it."""

    messageID: str | None = None


@operation("session.fork")
async def fork(ctx: Ctx, path: SessionPath, body: ForkBody | None) -> object:
    """A new session with the conversation up to a message; its agent gets that conversation with its first prompt."""
    record = await fork_session(ctx.services.sessions, path.sessionID, body.messageID if body is not None else None)
    await ctx.services.store.flush()
    return read.session(record)


@operation("session.status")
async def status(ctx: Ctx) -> object:
    """Sessions that are not idle, of all directories."""
    return {session_id: read.status(status) for session_id, status in ctx.services.sessions.statuses().items()}


@operation("session.todo")
async def todo(ctx: Ctx, path: SessionPath) -> object:
    """The session's todo list."""
    return list(map(read.todo, (await ctx.services.sessions.session(path.sessionID)).todos))


class DiffQuery(BaseModel):
    """`messageID` of a user message: only the changes of its turn."""

    messageID: str | None = None


@operation("session.diff")
async def diff(ctx: Ctx, path: SessionPath, query: DiffQuery) -> object:
    """What the session's agents changed in files."""
    session = await ctx.services.sessions.session(path.sessionID)
    diffs = session.diffs
    if query.messageID is not None:
        message = session.messages.peek(query.messageID)
        if message is None:
            raise MessageNotFound(path.sessionID, query.messageID)
        diffs = (message.info.diffs or ()) if isinstance(message.info, UserInfo) else ()
    return [diff.to_json() for diff in diffs]


@operation("session.abort")
async def abort(ctx: Ctx, path: SessionPath) -> object:
    """Stops the turn; the answer comes when it has ended. Nothing to stop is fine too."""
    await ctx.services.sessions.abort(path.sessionID)
    return True


async def need_idle(ctx: Ctx, session_id: str) -> None:
    """Raises SessionBusy while a turn runs."""
    if (await ctx.services.sessions.session(session_id)).is_busy:
        raise SessionBusy(session_id)
