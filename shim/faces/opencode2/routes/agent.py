"""Routes of agents (in OpenCode's sense), commands and skills. Source: recording `endpoints` of v2-20260717."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import BaseModel

from shim.agents import catalog, offered_commands
from shim.faces.opencode2 import host, offers
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import AgentModeNotFound
from shim.faces.opencode2.names import rules
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.host.config import skills
from shim.http.operation import Ctx
from shim.http.services import list_offers
from shim.sessions.prompts.agent_commands import with_commands
from shim.sessions.prompts.built_in_commands import templates
from universal.permissions import rules_from_config

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types


class AgentPath(BaseModel):
    """`{agentID}` of a path."""

    agentID: str


@operation("agent.list")
async def listing(ctx: Ctx) -> object:
    """The modes of all installed agents, the config's `default_agent` first. Never empty, because clients send nothing then."""
    return await locate_answer(ctx, await _agents(ctx))


@operation("agent.get")
async def get(ctx: Ctx, path: AgentPath) -> object:
    """One mode."""
    for row in await _agents(ctx):
        if row["id"] == path.agentID:
            return await locate_answer(ctx, row)
    raise AgentModeNotFound(path.agentID)


async def _agents(ctx: Ctx) -> list[host_types.AgentInfo]:
    config, agents = await list_offers(ctx.services, ctx.directory)
    modes = catalog.modes(agents, config.default_agent, config.disabled_agents)
    permissions = rules([rule.to_json() for rule in rules_from_config(config.permission)])
    return [offers.agent(mode, permissions) for mode in modes]


@operation("command.list")
async def commands(ctx: Ctx) -> object:
    """The slash commands of the directory."""
    config, agents = await list_offers(ctx.services, ctx.directory)
    local = templates(ctx.directory, config.commands)
    agents = await with_commands(ctx.services.sessions, agents, ctx.directory)
    rows = offered_commands.commands(agents, local, config.model)
    return await locate_answer(ctx, [offers.command(command) for command in rows])


@operation("skill.list")
async def skill_listing(ctx: Ctx) -> object:
    """The skills in the project and in the person's home, where agents look for them."""
    listing = await asyncio.to_thread(skills.find, ctx.directory, ctx.services.config.home)
    return await locate_answer(ctx, [host.skill(skill) for skill in listing])
