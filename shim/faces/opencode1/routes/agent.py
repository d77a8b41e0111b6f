"""Agents in OpenCode's sense: the modes that a user chooses beside the prompt. Source: recording `endpoints`."""

from __future__ import annotations

from shim.agents import catalog
from shim.faces.opencode1 import offers
from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx
from shim.http.services import list_offers


@operation("app.agents")
async def modes(ctx: Ctx) -> object:
    """List the modes of all installed agents, `default_agent` first. It is never empty, as clients then send nothing."""
    config, agents = await list_offers(ctx.services, ctx.directory)
    listed = catalog.modes(agents, config.default_agent, config.disabled_agents)
    return [offers.agent(mode) for mode in listed]


@operation("app.skills")
async def skills(ctx: Ctx) -> object:
    """Return no skills: agents load their skills themselves, and offer them as commands."""
    return []
