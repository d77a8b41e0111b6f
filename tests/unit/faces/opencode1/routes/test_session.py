"""`GET /session` stops when its page is full, and answers as if it had sorted and filtered all."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from shim.faces.opencode1.routes.session import DEFAULT_LIMIT, ListQuery, list_
from shim.host.git.projects import Identity, belongs
from tests.support.listed_sessions import DIRECTORIES, context_of, some_records
from universal.session.values import SessionRecord

CHOICES: dict[str, tuple[Any, ...]] = {
    "directory": (None, *DIRECTORIES),
    "scope": (None, "project"),
    "path": (None, "", "a", "/a/b/", "p"),
    "roots": (None, "true", "false"),
    "start": (None, 3),
    "search": (None, "ONE", "words"),
    "limit": (None, 0, 1, 7, 10**30, -1),
}


def page_of(records: list[SessionRecord], query: ListQuery, directory: str, project_id: str) -> list[str]:
    """The ids of the page, of all sessions filtered and sorted."""
    worktree = Identity(project_id, "/" if project_id == "global" else "/p")
    matches = [record for record in records if belongs(worktree, record.project_id, record.directory)]
    if query.directory and query.scope != "project" and query.path is None:
        matches = [record for record in matches if record.directory == directory]
    if (prefix := (query.path or "").strip("/")) and query.scope != "project":
        paths = {"global": {"/p": "p", "/p/a": "p/a", "/q": "q"}, "prj": {"/p": "", "/p/a": "a", "/q": ""}}[project_id]
        stored = {record.id: record.path or "" for record in matches if record.project_id == project_id != "global"}
        matches = [r for r in matches if f"{stored.get(r.id, paths[r.directory])}/".startswith(prefix + "/")]
    if query.roots == "true":
        matches = [record for record in matches if record.parent_id is None]
    matches = [record for record in matches if record.updated_ms >= (query.start or 0)]
    matches = [record for record in matches if (query.search or "").lower() in record.title.lower()]
    matches.sort(key=lambda record: (-record.updated_ms, -record.created_ms, record.id))
    limit = DEFAULT_LIMIT if query.limit is None else int(query.limit)
    return [record.id for record in (matches[:limit] if limit >= 0 else matches)]


@pytest.mark.parametrize("project_id", ["prj", "global"])
async def test_a_page_is_the_begin_of_all_matches_in_order(project_id: str) -> None:
    random = Random(1)
    records = some_records(random, 250)
    lengths: set[int] = set()
    for _ in range(300):
        directory = random.choice(DIRECTORIES)
        fields = {name: random.choice(values) for name, values in CHOICES.items()}
        query = ListQuery(**{name: value for name, value in fields.items() if value is not None})
        page: Any = await list_(context_of(records, directory, project_id), query)
        assert [session["id"] for session in page] == page_of(records, query, directory, project_id), query
        lengths.add(len(page))
    assert lengths >= {0, 1, 7}
    assert max(lengths) > 30
