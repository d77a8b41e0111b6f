"""Routes of agents (modes), commands, skills, models and references. Source: recording `endpoints` of v2-20260717."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import BaseModel

from shim.agents import catalog, offered_commands
from shim.agents.catalog import with_models
from shim.faces.opencode2 import host, offers
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import AgentModeNotFound, ProviderNotFound
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


# --- providers and models --------------------------------------------------------------------------------


class ProviderPath(BaseModel):
    """`{providerID}` of a path."""

    providerID: str


@operation("model.list")
async def models(ctx: Ctx) -> object:
    """The models of all installed agents, the default agent's first."""
    _, agents = await list_offers(ctx.services, ctx.directory)
    return await locate_answer(ctx, offers.models(agents))


@operation("model.default")
async def default(ctx: Ctx) -> object:
    """The config's `model` if it exists, else the default agent's; null if no agent offers a model."""
    config, agents = await list_offers(ctx.services, ctx.directory)
    return await locate_answer(ctx, offers.default_model(agents, config.model))


@operation("provider.list")
async def list_providers(ctx: Ctx) -> object:
    """The installed agents that offer a model."""
    return await locate_answer(ctx, await _provider_infos(ctx))


@operation("provider.get")
async def get_provider(ctx: Ctx, path: ProviderPath) -> object:
    """One provider."""
    for row in await _provider_infos(ctx):
        if row["id"] == path.providerID:
            return await locate_answer(ctx, row)
    raise ProviderNotFound(path.providerID)


async def _provider_infos(ctx: Ctx) -> list[host_types.ProviderInfo]:
    keyed = ctx.services.agents.key_variables()
    _, agents = await list_offers(ctx.services, ctx.directory)
    return [offers.provider(agent, keyed=agent.spec.name in keyed) for agent in with_models(agents)]


# --- web search and references ---------------------------------------------------------------------------


@operation("websearch.providers")
async def search_providers(ctx: Ctx) -> object:
    """An empty list: agents search the web themselves."""
    return await locate_answer(ctx, [])


@operation("reference.list")
async def references(ctx: Ctx) -> object:
    """An empty list: agents look things up themselves."""
    return await locate_answer(ctx, [])
