"""Workspaces of OpenCode's control plane. The only local kind is a named git worktree.

The store keeps them (namespace `workspace`). Sessions cannot move into or out of one (`warp`): an agent keeps its conversation
under the folder that it was started in. A session for a workspace is created in the workspace's `directory`.
Source: OpenCode's API document; a live 1.18.33 creates the worktree and then waits for an event that no plain server sends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shim.host.changes import HostFeed, WorkspaceConnected, WorkspaceReady
from shim.host.git.projects import Projects
from shim.host.git.worktrees import Worktrees
from shim.lib.clock import Clock
from shim.lib.errors import InvalidRequest, WorkspaceCreateError, WorkspaceNotFound, WorktreeError
from shim.lib.ids import Ids
from shim.store.base import Store
from universal.lib.jsonvalue import obj, text, whole

ROWS = "workspace"
KIND = "worktree"


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace: a named git worktree. `extra` is a client's JSON, which is stored and shown unread."""

    id: str
    kind: str
    name: str
    branch: str
    directory: str
    extra: object
    project_id: str
    used_ms: int


@dataclass(frozen=True, slots=True)
class WorkspaceState:
    """Whether the folder of a workspace exists."""

    workspace_id: str
    is_connected: bool


class Workspaces:
    """The workspaces of all projects."""

    def __init__(
        self,
        store: Store,
        projects: Projects,
        worktrees: Worktrees,
        *,
        clock: Clock,
        ids: Ids,
        changes: HostFeed,
    ) -> None:
        self._store = store
        self._projects = projects
        self._worktrees = worktrees
        self._clock = clock
        self._ids = ids
        self._changes = changes

    async def list_of(self, directory: str) -> list[Workspace]:
        """List the workspaces of the directory's project, oldest first."""
        project = await self._projects.identity(directory)
        workspaces = map(_from_row, (await self._store.values(ROWS)).values())
        return sorted((row for row in workspaces if row.project_id == project.id), key=lambda row: row.used_ms)

    async def states(self, directory: str) -> list[WorkspaceState]:
        """Return the state of each workspace of the directory's project."""
        workspaces = await self.list_of(directory)
        existing = await asyncio.to_thread(_existing_folders, [workspace.directory for workspace in workspaces])
        return [WorkspaceState(workspace.id, workspace.directory in existing) for workspace in workspaces]

    async def create(self, directory: str, kind: str, *, id_: str | None, branch: str | None, extra: object) -> Workspace:
        """Create a workspace. Raises WorkspaceCreateError.

        `branch` is only a wish for the name; the worktree gets its own branch.
        """
        if kind != KIND:
            raise WorkspaceCreateError(f"Unknown workspace adapter: {kind}. There is {KIND}.")
        workspace_id = id_ or self._ids.new("workspace")
        if workspace_id in await self._store.values(ROWS):
            raise WorkspaceCreateError(f"There is a workspace {workspace_id} already")
        project = await self._projects.identity(directory)
        try:
            worktree = await self._worktrees.create(directory, branch)
        except (WorktreeError, InvalidRequest) as error:
            raise WorkspaceCreateError(str(error)) from error
        now = self._clock.now_ms()
        workspace = Workspace(workspace_id, kind, worktree.name, worktree.branch, worktree.directory, extra, project.id, now)
        self._store.set_value(ROWS, workspace_id, _to_row(workspace))
        self._changes.publish(WorkspaceReady(worktree.name), directory, project.id)
        self._changes.publish(WorkspaceConnected(workspace_id), directory, project.id)
        return workspace

    async def get(self, id_: str) -> Workspace:
        """Return a workspace. Raises WorkspaceNotFound."""
        row = (await self._store.values(ROWS)).get(id_)
        if row is None:
            raise WorkspaceNotFound(id_)
        return _from_row(row)

    async def remove(self, id_: str) -> Workspace:
        """Remove a workspace and its worktree; return it. Raises WorkspaceNotFound, WorktreeError."""
        workspace = await self.get(id_)
        project = await self._projects.get(workspace.project_id)
        await self._worktrees.remove(workspace.directory if project is None else project.worktree, workspace.directory)
        self._store.set_value(ROWS, id_, None)
        return workspace


def _from_row(row: Any) -> Workspace:
    fields = obj(row)
    id_, kind, name, branch = (text(fields.get(key)) for key in ("id", "type", "name", "branch"))
    directory, project_id = text(fields.get("directory")), text(fields.get("projectID"))
    return Workspace(id_, kind, name, branch, directory, fields.get("extra"), project_id, whole(fields.get("timeUsed")))


def _to_row(workspace: Workspace) -> dict[str, object]:
    return {
        "id": workspace.id,
        "type": workspace.kind,
        "name": workspace.name,
        "branch": workspace.branch,
        "directory": workspace.directory,
        "extra": workspace.extra,
        "projectID": workspace.project_id,
        "timeUsed": workspace.used_ms,
    }


def _existing_folders(directories: list[str]) -> set[str]:
    """The directories that exist. Blocking."""
    return {directory for directory in directories if Path(directory).is_dir()}
