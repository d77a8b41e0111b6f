"""Workspaces. Source: `shim.host.git.workspaces`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel

from shim.faces.opencode1 import host
from shim.faces.opencode1.endpoint import operation
from shim.host.git.workspaces import KIND
from shim.http.instance import end_instance
from shim.http.operation import NO_CONTENT, Ctx, need_id

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.host_types import WorkspaceAdapter, WorkspaceEventConnectionStatus

WorkspaceID = Annotated[str, need_id("wrk")]


class WorkspacePath(BaseModel):
    """`{id}` of a path."""

    id: WorkspaceID


class Create(BaseModel):
    """A kind of workspace, and a wish for its name."""

    type: str
    id: WorkspaceID | None = None
    branch: str | None = None
    extra: Any = None


@operation("experimental.workspace.adapter.list")
async def adapters(ctx: Ctx) -> object:
    """List the kinds of workspaces."""
    worktree: WorkspaceAdapter = {"type": KIND, "name": "Worktree", "description": "Create a git worktree"}
    return [worktree]


@operation("experimental.workspace.list")
async def list_workspaces(ctx: Ctx) -> object:
    """List the project's workspaces."""
    return [host.workspace(workspace) for workspace in await ctx.services.workspaces.list_of(ctx.directory)]


@operation("experimental.workspace.status")
async def statuses(ctx: Ctx) -> object:
    """Return whether each workspace's folder exists."""
    rows: list[WorkspaceEventConnectionStatus] = [
        {"workspaceID": state.workspace_id, "status": "connected" if state.is_connected else "error"}
        for state in await ctx.services.workspaces.states(ctx.directory)
    ]
    return rows


@operation("experimental.workspace.create")
async def create(ctx: Ctx, body: Create) -> object:
    """Create a workspace."""
    workspaces = ctx.services.workspaces
    return host.workspace(await workspaces.create(ctx.directory, body.type, id_=body.id, branch=body.branch, extra=body.extra))


@operation("experimental.workspace.remove")
async def remove(ctx: Ctx, path: WorkspacePath) -> object:
    """End everything that runs in a workspace, and remove it."""
    workspace = await ctx.services.workspaces.get(path.id)
    await end_instance(ctx, workspace.directory)
    return host.workspace(await ctx.services.workspaces.remove(path.id))


@operation("experimental.workspace.syncList")
async def sync(ctx: Ctx) -> object:
    """Do nothing: each request reads the workspaces from the store, so nothing can be outdated."""
    return NO_CONTENT
