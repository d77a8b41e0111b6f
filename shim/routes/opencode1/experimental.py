"""What the TUI asks at its start about things that only OpenCode's own cloud has: the answers of a server without it.

Source: recording `endpoints`.
"""

from __future__ import annotations

from shim.http.operation import Ctx, operation


@operation("experimental.capabilities.get")
async def capabilities(ctx: Ctx) -> object:
    """Subagents cannot be sent to the background by a client."""
    return {"backgroundSubagents": False}


@operation("experimental.console.get")
async def console(ctx: Ctx) -> object:
    """No account."""
    return {"consoleManagedProviders": [], "switchableOrgCount": 0}


@operation("experimental.console.listOrgs")
async def organisations(ctx: Ctx) -> object:
    """No account."""
    return {"orgs": []}


@operation("experimental.workspace.list")
async def workspaces(ctx: Ctx) -> object:
    """None: they need OpenCode's control plane."""
    return []


@operation("experimental.workspace.status")
async def workspace_statuses(ctx: Ctx) -> object:
    """None."""
    return []


@operation("experimental.workspace.adapter.list")
async def workspace_adapters(ctx: Ctx) -> object:
    """None, since no workspace can be made."""
    return []


@operation("worktree.list")
async def worktrees(ctx: Ctx) -> object:
    """The project's other working trees."""
    return (await ctx.services.projects.current(ctx.directory))["sandboxes"]
