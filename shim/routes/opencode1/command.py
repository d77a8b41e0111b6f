"""Slash commands: the person's own and the agents'. Source: recording `endpoints`."""

from __future__ import annotations

import asyncio

from shim.http.operation import Ctx, operation
from shim.projection.opencode1 import catalog


@operation("command.list")
async def commands(ctx: Ctx) -> object:
    """What may stand behind a `/`."""
    config = await asyncio.to_thread(ctx.services.config.load, ctx.directory)
    return catalog.commands(await ctx.services.agents.available(), config.commands)
