"""Routes of providers and models: the installed coding agents and their models. Source: recording `endpoints` of v2-20260717."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from shim.agents.catalog import with_models
from shim.faces.opencode2 import offers
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import ProviderNotFound
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.http.operation import Ctx
from shim.http.services import list_offers

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types


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
async def providers(ctx: Ctx) -> object:
    """The installed agents that offer a model."""
    return await locate_answer(ctx, await _providers(ctx))


@operation("provider.get")
async def provider(ctx: Ctx, path: ProviderPath) -> object:
    """One provider."""
    for row in await _providers(ctx):
        if row["id"] == path.providerID:
            return await locate_answer(ctx, row)
    raise ProviderNotFound(path.providerID)


async def _providers(ctx: Ctx) -> list[host_types.ProviderInfo]:
    keyed = ctx.services.agents.key_variables()
    _, agents = await list_offers(ctx.services, ctx.directory)
    return [offers.provider(agent, keyed=agent.spec.name in keyed) for agent in with_models(agents)]
