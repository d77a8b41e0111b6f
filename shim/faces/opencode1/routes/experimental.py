"""Answers the TUI's questions about OpenCode's cloud as a server without an account does.

Source: recording `endpoints`.
"""

from __future__ import annotations

from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx


@operation("experimental.capabilities.get")
async def capabilities(ctx: Ctx) -> object:
    """Report that a client cannot send subagents to the background."""
    return {"backgroundSubagents": False}


@operation("experimental.console.get")
async def console(ctx: Ctx) -> object:
    """Report that there is no account."""
    return {"consoleManagedProviders": [], "switchableOrgCount": 0}


@operation("experimental.console.listOrgs")
async def organisations(ctx: Ctx) -> object:
    """Report no organisations, as there is no account."""
    return {"orgs": []}


@operation("experimental.session.background")
async def background(ctx: Ctx) -> object:
    """Report that no subagent was sent to the background, because each agent decides that itself."""
    return False
