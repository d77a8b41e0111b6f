"""Providers and models: the installed coding agents and what they run on. Source: recording `endpoints`.

The TUI and the web UI do not start without these answers; they are asked several times a page, so they are small.
"""

from __future__ import annotations

from shim.agents import catalog
from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx


@operation("provider.list")
async def providers(ctx: Ctx) -> object:
    """Installed agents only: one that is missing cannot be connected from a client."""
    offers = await ctx.services.agents.available()
    found = catalog.providers(offers)
    return {"all": found, "default": catalog.default_models(offers), "connected": [provider["id"] for provider in found]}


@operation("config.providers")
async def configured_providers(ctx: Ctx) -> object:
    """The same in the form that the TUI starts with."""
    offers = await ctx.services.agents.available()
    return {"providers": catalog.providers(offers), "default": catalog.default_models(offers)}
