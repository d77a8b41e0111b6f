"""Projects as they are stored."""

from __future__ import annotations

from typing import Any

from shim.host.git.projects import Projects
from shim.host.values import Project, ProjectIcon
from shim.lib.clock import ManualClock
from shim.store.memory import MemoryStore

STORED: dict[str, Any] = {
    "id": "abc",
    "worktree": "/r",
    "vcs": "git",
    "time": {"created": 1, "updated": 2},
    "sandboxes": ["/s"],
    "name": "mine",
    "icon": {"color": "red"},
    "commands": {"start": "make"},
}
"""A project as servers before this one stored it."""


async def test_a_project_that_an_earlier_version_stored_is_read() -> None:
    store = MemoryStore()
    await store.open()
    store.set_value("project", "abc", STORED)
    store.set_value("project", "broken", {"id": "broken"})
    icon = ProjectIcon(color="red")
    assert await Projects(store, ManualClock()).list_all() == [Project("abc", "/r", 1, 2, "git", ("/s",), "mine", icon, "make")]


async def test_a_project_is_stored_as_earlier_versions_read_it() -> None:
    store = MemoryStore()
    await store.open()
    store.set_value("project", "abc", STORED)
    await Projects(store, ManualClock(start_ms=9)).update("abc", lambda project: project)
    assert (await store.values("project"))["abc"] == STORED | {"time": {"created": 1, "updated": 9}}


async def test_a_project_of_another_server_is_listed() -> None:
    store = MemoryStore()
    await store.open()
    projects = Projects(store, ManualClock())
    projects.note_row("abc", STORED)  # nobody has read them yet: the store tells all
    assert await projects.list_all() == []
    projects.note_row("abc", STORED)
    projects.note_row("broken", {"id": "broken"})
    assert [project.name for project in await projects.list_all()] == ["mine"]
