"""Lists the tools of agents. Source: `shim.faces.opencode1.tool_schemas`."""

from __future__ import annotations

from pydantic import BaseModel

from shim.faces.opencode1 import tool_schemas
from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx
from shim.lib.errors import InvalidRequest


class ToolQuery(BaseModel):
    """An agent and one of its models, which all have the same tools."""

    provider: str
    model: str


@operation("tool.ids")
async def ids(ctx: Ctx) -> object:
    """List the tools of all available agents."""
    return tool_schemas.ids(agent.spec.name for agent in await ctx.services.agents.available())


@operation("tool.list")
async def list_tools(ctx: Ctx, query: ToolQuery) -> object:
    """List the tools of one agent. Raises InvalidRequest for an unknown one."""
    agents = {agent.spec.name: agent for agent in await ctx.services.agents.available()}
    if query.provider not in agents:
        names = ", ".join(agents)
        raise InvalidRequest(f'Provider not found: "{query.provider}". Available: {names}.', "Query", ("provider",))
    return tool_schemas.list_items(query.provider, agents[query.provider].spec.title)
