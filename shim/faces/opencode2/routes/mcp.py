"""Routes of MCP servers, which belong to agents, and of plugins: Python packages that add agents.

See `shim.sessions.mcp_servers` and `shim.agents.plugins`.
"""

from __future__ import annotations

from typing import Any

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.http.operation import Ctx
from shim.sessions.mcp_servers import servers_of

STATUSES = {"connected": "connected", "disabled": "disabled", "failed": "failed", "needs_auth": "needs_auth"}
"""Status in OpenCode 1 -> status in OpenCode 2. Every other status means that the agent needs a login."""
WITH_ERROR = frozenset({"failed", "needs_auth"})
UNKNOWN_ERROR = "The agent gave no reason."


@operation("mcp.list")
async def servers(ctx: Ctx) -> object:
    """MCP servers of the directory, in the state that their agents reported last."""
    reported = await servers_of(ctx.services.sessions, ctx.directory)
    return await locate_answer(ctx, [{"name": name, "status": _status(row)} for name, row in reported.items()])


def _status(row: dict[str, Any]) -> dict[str, Any]:
    status = STATUSES.get(row["status"], "needs_auth")
    return {"status": status, "error": row.get("error") or UNKNOWN_ERROR} if status in WITH_ERROR else {"status": status}


@operation("mcp.resource.catalog")
async def resources(ctx: Ctx) -> object:
    """An empty list: agents do not list the resources of their MCP servers."""
    return await locate_answer(ctx, {"resources": [], "templates": []})


@operation("plugin.list")
async def plugins(ctx: Ctx) -> object:
    """The Python packages that add agents. A package that failed has the reason."""
    packages = ctx.services.agents.packages
    active = [_plugin(name, package, {"status": "active"}) for name, package in packages.items()]
    failed = [_plugin(one.entry, one.package, {"status": "failed", "error": one.why}) for one in ctx.services.agents.broken]
    return await locate_answer(ctx, [*active, *failed])


def _plugin(name: str, package: str, state: dict[str, str]) -> dict[str, Any]:
    return {"id": name, "source": {"type": "package", "target": package}, "features": {"server": True}, "state": state}
