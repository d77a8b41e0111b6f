"""What `/v1` and the metrics tell of a cluster, and what they tell of a server alone. `shim.cluster.member` knows a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shim.lib.errors import NodeNotFound

if TYPE_CHECKING:
    from aiohttp import web

    from shim.faces.v1.models import Duty, NodeListResponse


class Nodes:
    """The servers of the cluster. As it is, of a server alone."""

    def overview(self) -> NodeListResponse:
        """All that live, this one first, and how this one is connected with them."""
        from shim.faces.v1.models import NodeListResponse  # late: the backend is started without it

        return NodeListResponse(cluster=None, nodes=[])

    async def change(self, request: web.Request, node: str, duty: Duty) -> web.StreamResponse | None:
        """Set what a server of the cluster is to take. Returns another server's answer, None if it was this one."""
        raise NodeNotFound(node, [])

    def node_of(self, session_id: str) -> str | None:
        """Id of the server that has a session, this one included; None for nobody's."""
        return None

    def families(self) -> Iterable[Any]:
        """The families of metrics of prometheus_client."""
        return ()
