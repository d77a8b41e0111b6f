"""What HTTP asks of the other servers of a cluster (`shim.cluster.relay`), and what a server alone does instead."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler


class Relay(Protocol):
    """Lets the server answer that has the session or the directory of a request."""

    def serve(self, request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
        """Answer a request: with this server's handler, or with what another server answers."""
        ...

    async def close_sockets(self) -> None:
        """Close the WebSockets of clients that other servers serve, for the shutdown of this one."""
        ...


class NoRelay:
    """The `Relay` of a server alone, which answers all requests itself."""

    def serve(self, request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
        """Answer with this server's handler."""
        return handler(request)

    async def close_sockets(self) -> None:
        """Does nothing: this server serves all its clients."""
