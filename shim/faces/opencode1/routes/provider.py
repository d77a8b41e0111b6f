"""Lists the installed agents as providers, with their models. Source: recording `endpoints`.

The TUI and the web UI do not start without these answers. They request them several times a page, so they are small.
"""

from __future__ import annotations

from shim.agents import catalog
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.offers import providers
from shim.http.operation import Ctx
from shim.http.services import list_offers


@operation("provider.list")
async def list_providers(ctx: Ctx) -> object:
    """List only installed agents, because a client cannot connect a missing one."""
    _, agents = await list_offers(ctx.services, ctx.directory)
    rows = providers(agents)
    return {"all": rows, "default": catalog.default_models(agents), "connected": [row["id"] for row in rows]}


@operation("config.providers")
async def configured_providers(ctx: Ctx) -> object:
    """List the same in the form that the TUI reads at its start."""
    _, agents = await list_offers(ctx.services, ctx.directory)
    return {"providers": providers(agents), "default": catalog.default_models(agents)}
