"""Creates, lists, reads, changes, forks, exports, imports and deletes sessions.

Source: `docs/wire.md` section 6; recordings `session_ops`, `list_queries`.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, RootModel

from shim.faces.opencode1 import read
from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import extra, operation
from shim.faces.opencode1.transfer import import_
from shim.host.git.projects import GLOBAL, Identity, belongs
from shim.host.values import Project
from shim.http.forward import need_session_here
from shim.http.operation import Ctx, to_response
from shim.lib.errors import InvalidRequest, MessageNotFound, SessionBusy
from shim.sessions.session.open_signs import Read
from shim.sessions.transfer.fork import fork as fork_session
from universal.session.importer import session_model
from universal.session.record_json import RecordChanges
from universal.session.values import SessionRecord, UserInfo

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import GlobalSession, ProjectSummary


SHARE_BYTES = 12
"""Random bytes in a share's URL."""
DEFAULT_LIMIT = 100
"""Maximum sessions in one answer if the client sends no limit, as in native OpenCode."""


def _number(text: Any) -> float | None:
    """Parse a number. An invalid one (`abc`, `NaN`) counts as absent, as in native OpenCode."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


Number = Annotated[float | None, BeforeValidator(_number)]


def note_read(ctx: Ctx, session_id: str, read_part: Read) -> None:
    """Tell the sessions what a client has read: it may show that a person has opened a session."""
    headers = ctx.request.headers
    client = f"{ctx.request.remote} {headers.get('User-Agent', '')}"
    is_page = headers.get("Sec-Fetch-Site") == "same-origin"
    ctx.services.sessions.open_signs.note_read(session_id, read_part, client, is_page=is_page)


class SessionPath(BaseModel):
    """`{sessionID}` of a path."""

    sessionID: str


@operation("session.create")
async def create(ctx: Ctx, body: requests.SessionCreateBody | None) -> object:
    """Create a session. A missing parent is accepted, as in native OpenCode."""
    options = body or requests.SessionCreateBody()
    services = ctx.services
    agent = options.model.providerID if options.model is not None else None
    await need_session_here(ctx, ctx.directory, agent, options.metadata)
    project = await services.projects.identity(ctx.directory)
    record = services.sessions.create(
        ctx.directory,
        project,
        title=options.title,
        parent_id=options.parentID,
        permission=[r.model_dump() for r in options.permission or ()] or None,
        agent_name=agent,
        path=project.path_of(ctx.directory),
        mode=options.agent,
        model=session_model(options.model.model_dump()) if options.model is not None else None,
        metadata=options.metadata,
    )
    if options.parentID is None and (await services.config.fresh(ctx.directory)).shares_new_sessions:
        record = await services.sessions.patch(record.id, share={"url": share_url(ctx)})
    await services.store.flush(record.id)
    return read.session(record)


def share_url(ctx: Ctx) -> str:
    """A new URL under which this server shows a session."""
    request = ctx.request
    return f"{request.scheme}://{request.host}{ctx.services.settings.base_path}/share/{secrets.token_urlsafe(SHARE_BYTES)}"


class ListQuery(BaseModel):
    """`GET /session`. Times in epoch milliseconds; `limit=abc` is ignored, as in native OpenCode."""

    directory: str | None = None
    scope: str | None = None
    path: str | None = None
    roots: str | None = None
    start: Number = None
    search: str | None = None
    limit: Number = None


@operation("session.list")
async def list_(ctx: Ctx, query: ListQuery) -> object:
    """List the sessions of the directory's project that match the query, newest first by `time.updated`."""
    ctx.services.sessions.open_signs.note_visit(ctx.directory)
    if query.roots not in (None, "true", "false"):
        raise InvalidRequest(f'Expected "true" or "false", got "{query.roots}"', "Query", ("roots",))
    project = await ctx.services.projects.identity(ctx.directory)
    records = await ctx.list_sessions(query.search, mixed=False)
    # Nothing below reads all of them: a page ends the search.
    matches = (record for record in records if belongs(project, record.project_id, record.directory))
    if query.directory and query.scope != "project" and query.path is None:
        matches = (record for record in matches if record.directory == ctx.directory)
    if query.path is not None and query.scope != "project":
        prefix = query.path.strip("/")
        matches = (record for record in matches if not prefix or f"{_path_in(project, record)}/".startswith(prefix + "/"))
    if query.roots == "true":
        matches = (record for record in matches if record.parent_id is None)
    if query.start is not None:
        start = query.start
        matches = (record for record in matches if record.updated_ms >= start)
    if query.search:
        search = query.search.lower()
        matches = (record for record in matches if search in record.title.lower())
    limit = DEFAULT_LIMIT if query.limit is None else int(query.limit)
    page = islice(matches, min(limit, len(records))) if limit >= 0 else matches  # negative: no limit, as in native OpenCode
    return [read.session(_as_in(project, record)) for record in page]


def _as_in(project: Identity, record: SessionRecord) -> SessionRecord:
    """The record of a session of this project. One from before its first commit joins it with its next prompt."""
    if record.project_id == project.id:
        return record
    return replace(record, project_id=project.id, path=project.path_of(record.directory))


def _path_in(project: Identity, record: SessionRecord) -> str:
    """The session's path in the project. The one that it was made with is that of another project, or of none."""
    if project.id == GLOBAL or record.project_id != project.id:
        return project.path_of(record.directory)
    return record.path or ""


@operation("session.get")
async def get(ctx: Ctx, path: SessionPath) -> object:
    """Return a session, whatever the directory of the request."""
    record = ctx.services.sessions.index.record(path.sessionID)
    project = await ctx.services.projects.identity(record.directory) if record.project_id == GLOBAL else None
    return read.session(record if project is None else _as_in(project, record))


@operation("session.update")
async def update(ctx: Ctx, path: SessionPath, body: requests.SessionUpdateBody) -> object:
    """Change title, permission rules, metadata, archived. An empty body changes nothing and emits no event."""
    changes: RecordChanges = {}
    if body.title is not None:
        changes["title"] = body.title
    if body.metadata is not None:
        changes["metadata"] = body.metadata
    if body.permission is not None:
        changes["permission"] = [r.model_dump() for r in body.permission]
    if body.time is not None and "archived" in body.time.model_fields_set:
        changes["archived_ms"] = body.time.archived
    record = await ctx.services.sessions.patch(path.sessionID, **changes)
    await ctx.services.store.flush(path.sessionID)
    return read.session(record)


@operation("session.delete")
async def delete(ctx: Ctx, path: SessionPath) -> object:
    """End a session's turn, and delete the session with all its children."""
    await ctx.services.sessions.delete(path.sessionID)
    return True


@operation("session.children")
async def children(ctx: Ctx, path: SessionPath) -> object:
    """List the sessions with this parent (subagents). Forks have no parent."""
    ctx.services.sessions.index.record(path.sessionID)
    return list(map(read.session, ctx.services.sessions.index.children(path.sessionID)))


@operation("session.fork")
async def fork(ctx: Ctx, path: SessionPath, body: requests.ForkBody | None) -> object:
    """Create a session with the conversation up to a message. Its agent gets the conversation with its first prompt."""
    record = await fork_session(ctx.services.sessions, path.sessionID, body.messageID if body is not None else None)
    await ctx.services.store.flush(record.id)
    return read.session(record)


@operation("session.status")
async def status(ctx: Ctx) -> object:
    """Return the status of all sessions that are not idle, of all directories."""
    statuses = ctx.services.sessions.statuses()
    return {session_id: read.status(status) for session_id, status in statuses.items() if ctx.sees(session_id)}


@operation("session.todo")
async def todo(ctx: Ctx, path: SessionPath) -> object:
    """Return the session's todo list."""
    note_read(ctx, path.sessionID, "todos")
    return list(map(read.todo, (await ctx.services.sessions.session(path.sessionID)).todos))


@operation("session.diff")
async def diff(ctx: Ctx, path: SessionPath, query: requests.DiffQuery) -> object:
    """List the session's file changes."""
    note_read(ctx, path.sessionID, "diffs")
    session = await ctx.services.sessions.session(path.sessionID)
    diffs = session.diffs
    if query.messageID is not None:
        message = session.messages.peek(query.messageID)
        if message is None:
            raise MessageNotFound(path.sessionID, query.messageID)
        diffs = (message.info.diffs or ()) if isinstance(message.info, UserInfo) else ()
    return list(map(read.file_diff, diffs))


@operation("session.abort")
async def abort(ctx: Ctx, path: SessionPath) -> object:
    """Stop the turn, and answer when it ended. An idle session is no error."""
    await ctx.services.sessions.abort(path.sessionID)
    return True


async def need_idle(ctx: Ctx, session_id: str) -> None:
    """Raise SessionBusy while a turn runs."""
    if (await ctx.services.sessions.session(session_id)).is_busy:
        raise SessionBusy(session_id)


# --- exports and imports ---------------------------------------------------------------------------------


@extra("session.export", "GET", "/session/{sessionID}/export")
async def export_session(ctx: Ctx, path: SessionPath) -> object:
    """Return the document that `opencode import` reads."""
    return read.export(await ctx.services.sessions.session(path.sessionID))


class Document(RootModel[dict[str, Any]]):
    """A document of `opencode export` or `opencode-shim export`."""


@extra("session.import", "POST", "/session/import")
async def import_session(ctx: Ctx, body: Document) -> object:
    """Import a session into the request's directory, and return its `info`."""
    project = await ctx.services.projects.identity(ctx.directory)
    record = await import_(ctx.services.sessions, body.root, ctx.directory, project, project.path_of(ctx.directory))
    await ctx.services.store.flush(record.id)
    return read.session(record)


# --- sessions of all projects ----------------------------------------------------------------------------

Switch = Literal["true", "false"]


class Query(BaseModel):
    """The filters. `cursor`: the last answer's `x-next-cursor`; `start`: updated at or after, in epoch milliseconds."""

    directory: str | None = None
    roots: Switch = "false"
    archived: Switch = "false"
    search: str = ""
    start: Number = None
    cursor: Number = None
    limit: Number = None


@operation("experimental.session.list")
async def list_sessions(ctx: Ctx, query: Query) -> object:
    """List sessions with their projects, last updated first. `x-next-cursor` leads to the next page."""
    records = await ctx.list_sessions(query.search)
    limit = DEFAULT_LIMIT if query.limit is None else max(0, int(query.limit))
    wanted = (record for record in records if _is_wanted(record, query, ctx.directory))
    matches = list(islice(wanted, min(limit, len(records)) + 1))  # one more tells whether there is a next page
    projects = {project.id: project for project in await ctx.services.projects.list_all()}
    page: list[GlobalSession] = [
        {**read.session(record), "project": _summary(projects.get(record.project_id))} for record in matches[:limit]
    ]
    more = {"x-next-cursor": str(page[-1]["time"]["updated"])} if page and len(matches) > limit else {}
    return to_response(page, headers=more)


def _is_wanted(record: SessionRecord, query: Query, directory: str) -> bool:
    updated = record.updated_ms
    return (
        (query.directory is None or record.directory == directory)
        and (query.roots == "false" or record.parent_id is None)
        and (query.archived == "true" or not record.archived_ms)
        and query.search.casefold() in record.title.casefold()
        and (query.start is None or updated >= query.start)
        and (query.cursor is None or updated < query.cursor)
    )


def _summary(project: Project | None) -> ProjectSummary | None:
    if project is None:
        return None
    summary: ProjectSummary = {"id": project.id, "worktree": project.worktree}
    return summary if project.name is None else {**summary, "name": project.name}
