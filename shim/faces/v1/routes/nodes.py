"""Lists the servers of a cluster: what each can run, how many sessions it has, and how old its lease is."""

from __future__ import annotations

from shim.faces.v1.models import NodeListResponse
from shim.faces.v1.routes.endpoint import universal, v1
from shim.http.operation import Ctx


@v1("list_nodes", "GET", "/v1/x-nodes", tag="nodes", answer=NodeListResponse, ours=True)
async def list_nodes(ctx: Ctx) -> object:
    """The servers of the cluster that live, this one first. A server without a cluster answers an empty list."""
    return universal(ctx).nodes.overview()
