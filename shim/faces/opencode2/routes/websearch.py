"""What agents have by themselves, so that this server has none of it to list. Source: API notes of 2.0.21."""

from __future__ import annotations

from shim.faces.opencode2.endpoint import operation2
from shim.faces.opencode2.routes.located import located
from shim.http.operation import Ctx


@operation2("websearch.providers")
async def providers(ctx: Ctx) -> object:
    """None: agents search by themselves."""
    return await located(ctx, [])


@operation2("reference.list")
async def references(ctx: Ctx) -> object:
    """None: agents look things up by themselves."""
    return await located(ctx, [])
