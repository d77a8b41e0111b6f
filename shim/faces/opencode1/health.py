"""Whether the server runs. The only routes that are there before the first request has come (`shim.http.later`)."""

from __future__ import annotations

from shim.faces.opencode1.endpoint import extra, operation
from shim.faces.opencode1.operations import OPENCODE_VERSION
from shim.http.operation import Ctx


@operation("global.health")
async def health(ctx: Ctx) -> object:
    """That we are alive. The version is OpenCode's, since clients compare it with what they can speak to."""
    return {"healthy": True, "version": OPENCODE_VERSION}


@extra("server.health", "GET", "/health")
async def plain_health(ctx: Ctx) -> object:
    """The AI SDK's provider asks here whether a server runs, and starts an `opencode` of its own if not."""
    return {"healthy": True}
