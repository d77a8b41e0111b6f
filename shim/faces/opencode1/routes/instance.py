"""Disposes the instance of a directory, which is everything that runs for it. Source: recording `dispose`."""

from __future__ import annotations

from shim.faces.opencode1.endpoint import operation
from shim.http.instance import end_instance
from shim.http.operation import Ctx


@operation("instance.dispose")
async def dispose(ctx: Ctx) -> object:
    """End the directory's turns, agents, terminals and `/event` streams, and tell clients to read everything again."""
    await end_instance(ctx, ctx.directory)
    return True
