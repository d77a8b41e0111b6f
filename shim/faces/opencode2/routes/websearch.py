"""What agents have by themselves, so that this server has none of it to list. Source: API notes of 2.0.21."""

from __future__ import annotations

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.http.operation import Ctx


@operation("websearch.providers")
async def providers(ctx: Ctx) -> object:
    """None: agents search by themselves."""
    return await locate_answer(ctx, [])


@operation("reference.list")
async def references(ctx: Ctx) -> object:
    """None: agents look things up by themselves."""
    return await locate_answer(ctx, [])
