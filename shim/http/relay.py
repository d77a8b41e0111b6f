"""What HTTP asks of the other servers of a cluster (`shim.cluster.relay`), and what a server alone does instead."""

from __future__ import annotations

from collections.abc import Awaitable

from aiohttp import web
from aiohttp.typedefs import Handler


class Relay:
    """Lets the server answer that has the session or the directory of a request. As it is, a server alone answers itself."""

    def serve(self, request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
        """Answer a request: with this server's handler, or with what another server answers."""
        return handler(request)

    async def close_sockets(self) -> None:
        """Close the WebSockets of clients that other servers serve, for the shutdown of this one."""
