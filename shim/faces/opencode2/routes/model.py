"""Routes of providers and models: the installed coding agents and their models. Source: recording `endpoints` of v2-20260717."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from shim.agents import catalog
from shim.faces.opencode2 import catalog as opencode2_catalog
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import ProviderNotFound
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.http.operation import Ctx


class ProviderPath(BaseModel):
    """`{providerID}` of a path."""

    providerID: str


@operation("model.list")
async def models(ctx: Ctx) -> object:
    """The models of all installed agents, the default agent's first."""
    return await locate_answer(ctx, opencode2_catalog.models(await _providers(ctx)))


@operation("model.default")
async def default(ctx: Ctx) -> object:
    """The config's `model` if it exists, else the default agent's; null if no agent offers a model."""
    config = await ctx.services.config.fresh(ctx.directory)
    offers = await ctx.services.agents.available()
    chosen = opencode2_catalog.default(catalog.providers(offers), catalog.default_models(offers), config.model)
    return await locate_answer(ctx, chosen)


@operation("provider.list")
async def providers(ctx: Ctx) -> object:
    """The installed agents that offer a model."""
    keyed = ctx.services.agents.key_variables()
    return await locate_answer(ctx, [opencode2_catalog.provider(row, keyed=row["id"] in keyed) for row in await _providers(ctx)])


@operation("provider.get")
async def provider(ctx: Ctx, path: ProviderPath) -> object:
    """One provider."""
    for row in await _providers(ctx):
        if row["id"] == path.providerID:
            return await locate_answer(
                ctx, opencode2_catalog.provider(row, keyed=row["id"] in ctx.services.agents.key_variables())
            )
    raise ProviderNotFound(path.providerID)


async def _providers(ctx: Ctx) -> list[dict[str, Any]]:
    return catalog.providers(await ctx.services.agents.available())
