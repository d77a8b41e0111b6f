"""What the TUI asks at its start about things that only OpenCode's own cloud has: the answers of a server without it.

Source: recording `endpoints`.
"""

from __future__ import annotations

from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx


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


@operation("experimental.session.background")
async def background(ctx: Ctx) -> object:
    """Whether a subagent was sent to the background: none is, an agent decides by itself what it runs there."""
    return False
