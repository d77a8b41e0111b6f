"""Sessions for tests of the routes that list them: many were changed at the same time, and differ in what can be filtered."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from shim.host.git.projects import Identity
from shim.sessions.index.session_entry import SessionEntry
from shim.sessions.index.session_index import SessionIndex
from shim.store.memory import MemoryStore
from universal.session.values import SessionRecord

DIRECTORIES = ("/p", "/p/a", "/q")


def some_records(random: Random, count: int) -> list[SessionRecord]:
    """Records with different ids."""
    return [
        SessionRecord(
            f"ses_{random.randrange(10**9)}_{number}",
            project_id=random.choice(("prj", "global")),
            directory=random.choice(DIRECTORIES),
            path=random.choice((None, "a", "a/b", "ab")),
            title=random.choice(("One", "Two words", "one more")),
            created_ms=random.randrange(3),
            updated_ms=random.randrange(8),
            archived_ms=random.choice((None, None, 5)),
            parent_id=random.choice((None, None, "ses_0")),
        )
        for number in range(count)
    ]


def context_of(records: Sequence[SessionRecord], directory: str, project_id: str) -> Any:
    """The context of a request for a directory, at a server with these sessions."""
    index = SessionIndex(MemoryStore())
    for record in records:
        index.add(SessionEntry(record, "mock", {}))

    async def get(id_: str) -> Identity:
        return Identity(id_, "/" if id_ == "global" else "/p")

    async def identity(_: str) -> Identity:
        return await get(project_id)

    async def real(named: str) -> str:
        return named

    async def list_sessions(_: str | None, *, mixed: bool = True) -> Sequence[SessionRecord]:
        return index.newest_first()

    sessions = SimpleNamespace(index=index, open_signs=SimpleNamespace(note_visit=lambda _: None), loaded_session=lambda _: None)
    settings = SimpleNamespace(roots=())
    projects, links = SimpleNamespace(identity=identity, get=get), SimpleNamespace(real=real)
    services = SimpleNamespace(sessions=sessions, settings=settings, projects=projects, links=links)
    return SimpleNamespace(services=services, directory=directory, roots=(), list_sessions=list_sessions)
