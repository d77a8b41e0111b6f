"""Routes of web search and references. Both lists are empty, because agents have these themselves."""

from __future__ import annotations

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.http.operation import Ctx


@operation("websearch.providers")
async def providers(ctx: Ctx) -> object:
    """An empty list: agents search the web themselves."""
    return await locate_answer(ctx, [])


@operation("reference.list")
async def references(ctx: Ctx) -> object:
    """An empty list: agents look things up themselves."""
    return await locate_answer(ctx, [])
