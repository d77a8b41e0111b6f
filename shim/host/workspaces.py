"""Workspaces of OpenCode's control plane, of the one kind that it has on a machine: a worktree under a name of its own.

Kept in the store (namespace `workspace`). Sessions are not moved into or out of one (`warp`): an agent keeps its conversation
under the folder that it was started in. A session for a workspace is made in the workspace's `directory`.
Source: OpenCode's document; a live 1.18.33 makes the worktree and then waits for an event that no plain server sends.
"""

from __future__ import annotations

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
    """Rows by id, of all projects."""

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
        """Those of the directory's project, the oldest first."""
        project = await self._projects.identity(directory)
        rows = [row for row in (await self._store.values(ROWS)).values() if row["projectID"] == project.id]
        return sorted(rows, key=lambda row: row["timeUsed"])

    async def statuses(self, directory: str) -> list[dict[str, str]]:
        """Whether their folders are there."""
        return [
            {"workspaceID": row["id"], "status": "connected" if _is_there(row) else "error"}
            for row in await self.list_of(directory)
        ]

    async def create(self, directory: str, kind: str, *, id_: str | None, branch: str | None, extra: Any) -> dict[str, Any]:
        """Raises WorkspaceCreateError. `branch` is a wish for the name; the worktree's branch is its own."""
        if kind != ADAPTER["type"]:
            raise WorkspaceCreateError(f"Unknown workspace adapter: {kind}. There is {ADAPTER['type']}.")
        wanted = id_ or self._ids.new("workspace")
        if wanted in await self._store.values(ROWS):
            raise WorkspaceCreateError(f"There is a workspace {wanted} already")
        project = await self._projects.identity(directory)
        try:
            made = await self._worktrees.create(directory, branch)
        except (WorktreeError, InvalidRequest) as error:
            raise WorkspaceCreateError(str(error)) from error
        row = {
            "id": wanted,
            "type": kind,
            "name": made.name,
            "branch": made.branch,
            "directory": made.directory,
            "extra": extra,
            "projectID": project.id,
            "timeUsed": self._clock.now_ms(),
        }
        self._store.set_value(ROWS, wanted, row)
        self._changes.publish(WorkspaceReady(made.name), directory, project.id)
        self._changes.publish(WorkspaceConnected(wanted), directory, project.id)
        return row

    async def get(self, id_: str) -> dict[str, Any]:
        """Raises WorkspaceNotFound."""
        row = (await self._store.values(ROWS)).get(id_)
        if row is None:
            raise WorkspaceNotFound(id_)
        return row

    async def remove(self, id_: str) -> dict[str, Any]:
        """With its worktree; what it was. Raises WorkspaceNotFound, WorktreeError."""
        row = await self.get(id_)
        place = text(row["directory"])
        top = next((one["worktree"] for one in await self._projects.list_all() if one["id"] == row["projectID"]), place)
        await self._worktrees.remove(top, place)
        self._store.set_value(ROWS, id_, None)
        return row


def _is_there(row: dict[str, Any]) -> bool:
    return Path(text(row["directory"])).is_dir()
