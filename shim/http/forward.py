"""Lets another server of a cluster answer a request or take a new session. `shim.cluster.relay` does the work."""

from __future__ import annotations

from collections.abc import Awaitable

from aiohttp import web
from aiohttp.typedefs import Handler

from shim.http.access import RELAYED
from shim.http.operation import SERVICES, Ctx


@web.middleware
def forward(request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
    """Let the server answer that has the session or the directory of a request."""
    return request.app[SERVICES].relay.serve(request, handler)


async def close_sockets(app: web.Application) -> None:
    """Close the WebSockets of clients that other servers serve, for the shutdown of this one."""
    await app[SERVICES].relay.close_sockets()


async def need_session_here(ctx: Ctx, directory: str, agent: str | None, metadata: object = None) -> None:
    """Raise PlacedElsewhere if another server of the cluster should take a new session, NoServer if none can."""
    await ctx.services.sessions.others.need_new_here(directory, agent, metadata, is_final=RELAYED in ctx.request)
