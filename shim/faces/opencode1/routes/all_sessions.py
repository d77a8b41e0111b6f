"""Lists the sessions of all projects together. Source: a live OpenCode 1.18.33."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from shim.faces.opencode1 import read
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.routes.session import DEFAULT_LIMIT, Number
from shim.host.files.roots import visible_sessions
from shim.host.values import Project
from shim.http.operation import Ctx, to_response
from universal.session.model import SessionRecord

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import GlobalSession, ProjectSummary

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
    records = await visible_sessions(ctx.services.sessions.index.newest_first(), ctx.services.settings.roots)
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
