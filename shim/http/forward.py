"""The middleware that lets another server of a cluster answer a request. `shim.cluster.relay` does the work.

It stands apart so that a server without a cluster does not import the relay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Handler

if TYPE_CHECKING:
    from shim.cluster.relay import Relay

RELAY: web.AppKey[list[Relay]] = web.AppKey("relay", list)
"""The relay of a server in a cluster; empty for one that is alone."""


@web.middleware
async def forward(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let the server answer that has the session or the directory of a request."""
    relay = next(iter(request.app[RELAY]), None)
    return await handler(request) if relay is None else await relay.serve(request, handler)


async def close_sockets(app: web.Application) -> None:
    """Close the WebSockets of clients that other servers serve, for the shutdown of this one."""
    for relay in app[RELAY]:
        await relay.close_sockets()
