"""Tools, as agents' calls of them are shown. Source: `shim.faces.opencode1.tool_schemas`."""

from __future__ import annotations

from pydantic import BaseModel

from shim.errors import InvalidRequest
from shim.faces.opencode1 import tool_schemas
from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx


class ToolQuery(BaseModel):
    """An agent, and one of its models (which have the same tools)."""

    provider: str
    model: str


@operation("tool.ids")
async def ids(ctx: Ctx) -> object:
    """Of all agents that can be used here."""
    return tool_schemas.ids(agent.spec.name for agent in await ctx.services.agents.available())


@operation("tool.list")
async def list_tools(ctx: Ctx, query: ToolQuery) -> object:
    """Of one agent. Raises InvalidRequest for an unknown one."""
    found = {agent.spec.name: agent for agent in await ctx.services.agents.available()}
    if query.provider not in found:
        names = ", ".join(found)
        raise InvalidRequest(f'Provider not found: "{query.provider}". Available: {names}.', "Query", ("provider",))
    return tool_schemas.list_items(query.provider, found[query.provider].spec.title)
