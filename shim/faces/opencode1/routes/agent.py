"""Agents in OpenCode's sense: the ways of working that a person chooses beside the prompt. Source: recording `endpoints`."""

from __future__ import annotations

from shim.agents import catalog
from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx


@operation("app.agents")
async def agents(ctx: Ctx) -> object:
    """The modes of all installed agents, the config's `default_agent` first. Never empty: clients send nothing then."""
    config = await ctx.services.config.fresh(ctx.directory)
    return catalog.modes(await ctx.services.agents.available(), config.default_agent)


@operation("app.skills")
async def skills(ctx: Ctx) -> object:
    """None of the server's own: agents load theirs by themselves, and offer them as commands."""
    return []
