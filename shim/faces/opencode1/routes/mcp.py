"""MCP servers, language servers and formatters: agents bring their own, the server has none. Source: recording `endpoints`.

Of their MCP servers Claude Code and Codex tell; of the others nothing is known here.
"""

from __future__ import annotations

from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx
from shim.sessions.mcp_servers import servers_of


@operation("mcp.status")
async def servers(ctx: Ctx) -> object:
    """By name, as the agents of this directory told them last."""
    return await servers_of(ctx.services.sessions, ctx.directory)


@operation("experimental.resource.list")
async def resources(ctx: Ctx) -> object:
    """What MCP servers offer for reading, by key."""
    return {}


@operation("lsp.status")
async def language_servers(ctx: Ctx) -> object:
    """Those that run."""
    return []


@operation("formatter.status")
async def formatters(ctx: Ctx) -> object:
    """Those that are known."""
    return []
