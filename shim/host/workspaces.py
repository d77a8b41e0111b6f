"""Workspaces of OpenCode's control plane. The only local kind is a named git worktree.

The store keeps them (namespace `workspace`). Sessions cannot move into or out of one (`warp`): an agent keeps its conversation
under the folder that it was started in. A session for a workspace is created in the workspace's `directory`.
Source: OpenCode's API document; a live 1.18.33 creates the worktree and then waits for an event that no plain server sends.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from shim.clock import Clock
from shim.errors import InvalidRequest, WorkspaceCreateError, WorkspaceNotFound, WorktreeError
from shim.host.changes import HostFeed, WorkspaceConnected, WorkspaceReady
from shim.host.projects import Projects
from shim.host.worktrees import Worktrees
from shim.ids import Ids
from shim.store.base import Store
from universal.jsonvalue import text

ROWS = "workspace"
ADAPTER = {"type": "worktree", "name": "Worktree", "description": "Create a git worktree"}


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

    async def list_of(self, directory: str) -> list[dict[str, Any]]:
        """List the workspaces of the directory's project, oldest first."""
        project = await self._projects.identity(directory)
        rows = [row for row in (await self._store.values(ROWS)).values() if row["projectID"] == project.id]
        return sorted(rows, key=lambda row: row["timeUsed"])

    async def statuses(self, directory: str) -> list[dict[str, str]]:
        """Return each workspace's status: connected if its folder exists."""
        rows = await self.list_of(directory)
        existing = await asyncio.to_thread(_existing_folders, [text(row["directory"]) for row in rows])
        return [
            {"workspaceID": row["id"], "status": "connected" if text(row["directory"]) in existing else "error"} for row in rows
        ]

    async def create(self, directory: str, kind: str, *, id_: str | None, branch: str | None, extra: Any) -> dict[str, Any]:
        """Create a workspace. Raises WorkspaceCreateError.

        `branch` is only a wish for the name; the worktree gets its own branch.
        """
        if kind != ADAPTER["type"]:
            raise WorkspaceCreateError(f"Unknown workspace adapter: {kind}. There is {ADAPTER['type']}.")
        workspace_id = id_ or self._ids.new("workspace")
        if workspace_id in await self._store.values(ROWS):
            raise WorkspaceCreateError(f"There is a workspace {workspace_id} already")
        project = await self._projects.identity(directory)
        try:
            worktree = await self._worktrees.create(directory, branch)
        except (WorktreeError, InvalidRequest) as error:
            raise WorkspaceCreateError(str(error)) from error
        row = {
            "id": workspace_id,
            "type": kind,
            "name": worktree.name,
            "branch": worktree.branch,
            "directory": worktree.directory,
            "extra": extra,
            "projectID": project.id,
            "timeUsed": self._clock.now_ms(),
        }
        self._store.set_value(ROWS, workspace_id, row)
        self._changes.publish(WorkspaceReady(worktree.name), directory, project.id)
        self._changes.publish(WorkspaceConnected(workspace_id), directory, project.id)
        return row

    async def get(self, id_: str) -> dict[str, Any]:
        """Return a workspace. Raises WorkspaceNotFound."""
        row = (await self._store.values(ROWS)).get(id_)
        if row is None:
            raise WorkspaceNotFound(id_)
        return row

    async def remove(self, id_: str) -> dict[str, Any]:
        """Remove a workspace and its worktree; return its row. Raises WorkspaceNotFound, WorktreeError."""
        row = await self.get(id_)
        place = text(row["directory"])
        projects = await self._projects.list_all()
        top = next((project["worktree"] for project in projects if project["id"] == row["projectID"]), place)
        await self._worktrees.remove(top, place)
        self._store.set_value(ROWS, id_, None)
        return row


def _existing_folders(directories: list[str]) -> set[str]:
    """The directories that exist. Blocking."""
    return {directory for directory in directories if Path(directory).is_dir()}
