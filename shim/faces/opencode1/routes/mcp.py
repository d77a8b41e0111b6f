"""Reports MCP servers, language servers and formatters. Agents have their own; this server has none.

Claude Code and Codex report their MCP servers; other agents do not. Source: recording `endpoints`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx
from shim.sessions.mcp_servers import McpServer, servers_of

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.host_types import MCPStatus


@operation("mcp.status")
async def servers(ctx: Ctx) -> object:
    """Return the MCP servers by name, as this directory's agents last reported them."""
    return {server.name: _status(server) for server in await servers_of(ctx.services.sessions, ctx.directory)}


def _status(server: McpServer) -> MCPStatus:
    match server.status:
        case "connected":
            return {"status": "connected"}
        case "disabled":
            return {"status": "disabled"}
        case "failed":
            return {"status": "failed", "error": server.error}
        case "needs_auth":
            return {"status": "needs_auth"}


@operation("experimental.resource.list")
async def resources(ctx: Ctx) -> object:
    """Return no resources: agents do not report those of their MCP servers."""
    return {}


@operation("lsp.status")
async def language_servers(ctx: Ctx) -> object:
    """Return no language servers: this server runs none."""
    return []


@operation("formatter.status")
async def formatters(ctx: Ctx) -> object:
    """Return no formatters: this server runs none."""
    return []
