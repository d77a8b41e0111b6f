"""Slash commands of the server, the user and the agents. Source: recording `endpoints`."""

from __future__ import annotations

from shim.agents import offered_commands
from shim.faces.opencode1 import offers
from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx
from shim.http.services import list_offers
from shim.sessions.prompts.agent_commands import with_commands
from shim.sessions.prompts.built_in_commands import templates


@operation("command.list")
async def commands(ctx: Ctx) -> object:
    """List all slash commands."""
    config, agents = await list_offers(ctx.services, ctx.directory)
    local = templates(ctx.directory, config.commands)
    agents = await with_commands(ctx.services.sessions, agents, ctx.directory)
    return [offers.command(command) for command in offered_commands.commands(agents, local, config.model)]
