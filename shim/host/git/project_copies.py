"""Creates and removes copies of a project: detached git worktrees in a folder that the client names.

It removes only copies that it created, which the store lists (namespace `project_copy`).
Source: a live OpenCode 1.18.33 (`/experimental/project/{id}/copy`: names, errors, `forceRequired`).
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from pathlib import Path

from shim.host.changes import HostFeed, ProjectDirectoriesChanged
from shim.host.git.git_command import git, message_of
from shim.host.git.projects import Identity, Projects, missing_folders
from shim.host.git.worktrees import plain
from shim.lib.disk import is_folder
from shim.lib.errors import ProjectCopyError
from shim.lib.ids import slug
from shim.store.base import Store

COPIES = "project_copy"
STRATEGY = "git_worktree"
NAMES_LIMIT = 1000
WORDS = 4
"""Number of words of a context that form a generated name."""


def generate_name(context: str | None) -> str:
    """Make a name for a copy from the first words of its purpose, else from two random words. Native OpenCode asks a model."""
    words = re.findall(r"[A-Za-z0-9]+", context or "")[:WORDS]
    return plain("-".join(words)) or slug(secrets.token_hex(8))


class ProjectCopies:
    """Creates, removes and refreshes the copies of all projects."""

    def __init__(self, store: Store, projects: Projects, changes: HostFeed) -> None:
        self._store = store
        self._projects = projects
        self._changes = changes

    async def create(self, project_id: str, directory: str, strategy: str, parent: str, name: str | None) -> str:
        """Create a copy; return its folder. Raises ProjectCopyError."""
        project = await self._project(project_id, directory)
        if strategy != STRATEGY:
            raise ProjectCopyError(f"Project copy strategy unavailable: {strategy}. There is {STRATEGY}.")
        place = await asyncio.to_thread(_free, parent, plain(name or "") or generate_name(None))
        result = await git(project.worktree, "worktree", "add", "--detach", str(place), "HEAD")
        if not result.ok:
            raise ProjectCopyError(message_of(result))
        self._store.set_value(COPIES, str(place), project.id)
        await self._publish_change(project, directory, str(place))
        return str(place)

    async def remove(self, project_id: str, directory: str, target: str, *, force: bool) -> None:
        """Remove a copy. Raises ProjectCopyError, with `force_required` if the copy has changes."""
        project = await self._project(project_id, directory)
        copies = await self._store.values(COPIES)
        place = str(Path(target))
        if copies.get(place) != project.id:
            raise ProjectCopyError(
                f"Project copy directory unavailable: {target}. Only copies that were made here can be removed."
            )
        result = await git(project.worktree, "worktree", "remove", *(("--force",) if force else ()), place)
        if not result.ok and await asyncio.to_thread(os.path.lexists, place):
            message = message_of(result)
            raise ProjectCopyError(message, force_required="--force" in message)
        await git(project.worktree, "worktree", "prune")
        self._store.set_value(COPIES, place, None)
        self._projects.forget(place)
        await self._publish_change(project, directory)

    async def refresh(self, project_id: str, directory: str) -> None:
        """Register worktrees that other programs created. Raises ProjectCopyError."""
        project = await self._project(project_id, directory)
        listed = await git(project.worktree, "worktree", "list", "--porcelain", "-z")
        places = [line.removeprefix("worktree ") for line in listed.text.split("\0") if line.startswith("worktree ")]
        before = await self._projects.directories(project.id)
        missing = await asyncio.to_thread(missing_folders, places)
        await self._projects_of([place for place in places if place not in missing])
        if await self._projects.directories(project.id) != before:
            self._publish(project, directory)

    # --- inside

    async def _project(self, project_id: str, directory: str) -> Identity:
        project = await self._projects.identity(directory)
        if project.id != project_id or project.vcs is None:
            raise ProjectCopyError(f"The project of {directory} is {project.id}, not {project_id}; copies are for git projects")
        return project

    async def _projects_of(self, places: list[str]) -> None:
        for place in places:
            self._projects.forget(place)
            await self._projects.identity(place)

    async def _publish_change(self, project: Identity, directory: str, *more: str) -> None:
        await self._projects_of([directory, *more])
        self._publish(project, directory)

    def _publish(self, project: Identity, directory: str) -> None:
        self._changes.publish(ProjectDirectoriesChanged(project.id), directory, project.id)


def _free(parent: str, name_wish: str) -> Path:
    if not Path(parent).is_absolute() or not is_folder(parent):
        raise ProjectCopyError(f"Project copy directory unavailable: {parent}")
    for name in (name_wish, *(f"{name_wish}-{number}" for number in range(2, NAMES_LIMIT))):
        if not Path(parent, name).exists():
            return Path(parent, name)
    raise ProjectCopyError(f"There are {NAMES_LIMIT} copies named {name_wish} in {parent}")
