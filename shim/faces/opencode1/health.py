"""Health routes. They are the only routes that exist before the first request (`shim.http.application`)."""

from __future__ import annotations

from shim.faces.opencode1._generated.operations import OPENCODE_VERSION
from shim.faces.opencode1.endpoint import extra, operation
from shim.http.operation import Ctx


@operation("global.health")
async def health(ctx: Ctx) -> object:
    """Report that the server runs. The version is OpenCode's, because clients compare it with their own."""
    return {"healthy": True, "version": OPENCODE_VERSION}


@extra("server.health", "GET", "/health")
async def plain_health(ctx: Ctx) -> object:
    """Report that the server runs, for the AI SDK's provider, which would otherwise start its own `opencode`."""
    return {"healthy": True}
