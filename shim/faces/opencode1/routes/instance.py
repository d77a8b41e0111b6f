"""The instance of a directory: what runs for it. Source: recording `dispose`."""

from __future__ import annotations

from shim.faces.opencode1.endpoint import operation
from shim.http.instance import end_instance
from shim.http.operation import Ctx


@operation("instance.dispose")
async def dispose(ctx: Ctx) -> object:
    """End the directory's turns, agents and terminals, tell clients to read everything again, end its `/event` streams."""
    await end_instance(ctx, ctx.directory)
    return True
