"""Routes of MCP servers, which belong to agents, and of plugins: Python packages that add agents.

See `shim.sessions.mcp_servers` and `shim.agents.plugins`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import RpcNotFound
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.http.operation import Ctx
from shim.sessions.mcp_servers import McpServer, servers_of

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types


UNKNOWN_ERROR = "The agent gave no reason."


@operation("mcp.list")
async def servers(ctx: Ctx) -> object:
    """MCP servers of the directory, in the state that their agents reported last."""
    await ctx.services.config.fresh(ctx.directory)
    reported = await servers_of(ctx.services.sessions, ctx.directory)
    rows: list[host_types.McpServer] = [{"name": server.name, "status": _status(server)} for server in reported]
    return await locate_answer(ctx, rows)


def _status(server: McpServer) -> host_types.McpStatus:
    match server.status:
        case "connected":
            return {"status": "connected"}
        case "pending":
            return {"status": "pending"}
        case "disabled":
            return {"status": "disabled"}
        case "failed":
            return {"status": "failed", "error": server.error or UNKNOWN_ERROR}
        case "needs_auth":
            return {"status": "needs_auth", "error": server.error or UNKNOWN_ERROR}


@operation("mcp.resource.catalog")
async def resources(ctx: Ctx) -> object:
    """An empty list: agents do not list the resources of their MCP servers."""
    return await locate_answer(ctx, {"resources": [], "templates": []})


@operation("plugin.list")
async def plugins(ctx: Ctx) -> object:
    """The Python packages that add agents. A package that failed has the reason."""
    packages = ctx.services.agents.packages
    active = [_plugin(name, package, {"status": "active"}) for name, package in packages.items()]
    failed = [
        _plugin(broken.entry, broken.package, {"status": "failed", "error": broken.why}) for broken in ctx.services.agents.broken
    ]
    return await locate_answer(ctx, [*active, *failed])


def _plugin(
    name: str, package: str, state: host_types.PluginInfoStateActive | host_types.PluginInfoStateFailed
) -> host_types.PluginInfo:
    return {"id": name, "source": {"type": "package", "target": package}, "features": {"server": True}, "state": state}


# --- calls of plug-ins -----------------------------------------------------------------------------------


@operation("rpc.call")
async def call(ctx: Ctx, path: requests.RpcPath, body: requests.RpcBody) -> object:
    """Answer 400 RpcError, as OpenCode does for an unknown plugin: no RPC is registered here."""
    message = (
        f'There is no RPC "{path.rpcID}" here: plugins of OpenCode register RPCs, and this server loads none of them. '
        "Plugins here are Python packages that bring agents (docs/adding-an-agent.md)."
    )
    raise RpcNotFound(message)
