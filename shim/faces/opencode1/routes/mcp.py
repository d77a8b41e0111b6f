"""MCP servers: of the person's OpenCode configuration, of clients, and of agents. Formatters. Language servers: none.

Claude Code and Codex report the state of their MCP servers; other agents do not. Source: recording `endpoints`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import BaseModel

from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import operation
from shim.host.config._generated.config_models import McpLocalConfig, McpRemoteConfig
from shim.http.operation import Ctx
from shim.sessions import mcp_servers

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.host_types import MCPStatus


class NewServer(BaseModel):
    """`POST /mcp`."""

    name: str
    config: McpLocalConfig | McpRemoteConfig


@operation("mcp.status")
async def servers(ctx: Ctx) -> object:
    """Return the MCP servers by name.

    One that is on and that no agent has told of is left out, because OpenCode 1 has no word for it.
    """
    await ctx.services.config.fresh(ctx.directory)
    rows = await mcp_servers.servers_of(ctx.services.sessions, ctx.directory)
    return {server.name: status for server in rows if (status := _status(server)) is not None}


@operation("mcp.add")
async def add(ctx: Ctx, body: NewServer) -> object:
    """Add a server until this server stops. Agents get it at once where they can, else with the next prompt."""
    row = body.config.model_dump(exclude_none=True)
    await mcp_servers.add(ctx.services.sessions, ctx.directory, body.name, row)
    return await servers(ctx)


@operation("mcp.connect")
async def connect(ctx: Ctx, path: requests.ServerPath) -> object:
    """Switch a server of the set-up on."""
    return await _switch(ctx, path.name, on=True)


@operation("mcp.disconnect")
async def disconnect(ctx: Ctx, path: requests.ServerPath) -> object:
    """Switch a server of the set-up off."""
    return await _switch(ctx, path.name, on=False)


async def _switch(ctx: Ctx, name: str, *, on: bool) -> bool:
    await ctx.services.config.fresh(ctx.directory)
    await mcp_servers.switch(ctx.services.sessions, ctx.directory, name, on=on)
    return True


def _status(server: mcp_servers.McpServer) -> MCPStatus | None:
    match server.status:
        case "connected":
            return {"status": "connected"}
        case "disabled":
            return {"status": "disabled"}
        case "failed":
            return {"status": "failed", "error": server.error}
        case "needs_auth":
            return {"status": "needs_auth"}
        case "pending":
            return None


@operation("formatter.status")
async def formatter_status(ctx: Ctx) -> object:
    """Return the formatters that act on the files of this directory, as far as it is trusted."""
    await ctx.services.config.fresh(ctx.directory)
    if (formatters := ctx.services.sessions.deps.setups.formatters) is None:
        return []
    with_project = await mcp_servers.is_trusted(ctx.services.sessions, ctx.directory)
    rows = await asyncio.to_thread(formatters.rows, ctx.directory, with_project=with_project)
    return [{"name": row.name, "extensions": list(row.extensions), "enabled": bool(row.argv)} for row in rows]
