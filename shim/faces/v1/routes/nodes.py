"""Lists the servers of a cluster: what each can run, how many sessions it has, and how old its lease is."""

from __future__ import annotations

from collections.abc import Mapping

from shim.faces.v1.models import ClusterInfo, NodeAgent, NodeInfo, NodeListResponse
from shim.faces.v1.routes.endpoint import v1
from shim.http.operation import Ctx
from shim.store.peers import NodeStatus


@v1("list_nodes", "GET", "/v1/x-nodes", tag="nodes", answer=NodeListResponse, ours=True)
async def list_nodes(ctx: Ctx) -> object:
    """The servers of the cluster that live, this one first. A server without a cluster answers an empty list."""
    services = ctx.services
    peers = services.store.ownership.peers
    if peers is None:
        return NodeListResponse(cluster=None, nodes=[])
    overview, lags = peers.overview(), services.sessions.others.lags()
    cluster = ClusterInfo(
        servers=overview.address,
        prefix=overview.prefix,
        connected=overview.is_connected,
        waitingWrites=overview.waiting,
        reconnects=overview.reconnects,
    )
    return NodeListResponse(cluster=cluster, nodes=[_info(status, lags) for status in overview.nodes])


def _info(status: NodeStatus, lags: Mapping[str, int]) -> NodeInfo:
    ref, offer = status.node.ref, status.node.offer
    return NodeInfo(
        id=ref.id,
        name=ref.label,
        here=status.is_here,
        pid=ref.pid,
        host=ref.host,
        url=ref.url or None,
        agents=[NodeAgent(id=name, version=version or None) for name, version in offer.agents.items()],
        roots=list(offer.roots),
        labels=list(offer.labels),
        draining=offer.is_draining,
        room=offer.room,
        sessions=status.sessions,
        leaseAgeMs=round(status.lease_age_s * 1000),
        lagEvents=0 if status.is_here else lags.get(ref.id, 0),
    )
