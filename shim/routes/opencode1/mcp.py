"""MCP servers, language servers and formatters: agents bring their own, the server has none. Source: recording `endpoints`."""

from __future__ import annotations

from shim.http.operation import Ctx, operation


@operation("mcp.status")
async def servers(ctx: Ctx) -> object:
    """By name."""
    return {}


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
