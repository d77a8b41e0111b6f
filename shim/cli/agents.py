"""The agents as the command shows them."""

from __future__ import annotations

from aiohttp import web

from shim.cli.screen import AgentRow
from shim.settings import Settings


async def of(app: web.Application) -> list[AgentRow]:
    return []


async def look(settings: Settings) -> list[AgentRow]:
    return []
