"""Joins a server to a cluster: puts the parts of this folder where a server alone has others (`shim.main.backend.Alone`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web

from shim.agents.directory import AgentDirectory
from shim.agents.spares.agent_room import AgentRoom
from shim.cluster.nats.store import JetStreamStore
from shim.cluster.peers import NodeStatus, Overview, Peers
from shim.cluster.placement import ClusterPlacement
from shim.cluster.relay import Relay
from shim.cluster.remote_changes import RemoteChanges
from shim.cluster.remote_sessions import RemoteSessions
from shim.cluster.replays import Replays
from shim.cluster.streams import ClusterStreams
from shim.faces.v1.models import ClusterInfo, Duty, NodeAgent, NodeInfo, NodeListResponse
from shim.faces.v1.nodes import Nodes
from shim.host.changes import HostChanged, HostFeed
from shim.http.services import Services
from shim.lib.errors import InvalidRequest, NodeNotFound
from shim.lib.settings import Settings
from shim.sessions.index.drain import Drain
from shim.sessions.index.manager import SessionManager
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.stored_sessions import NewState
from shim.store.base import Store
from universal.session.model import Session


class ClusterMember:
    """The `Member` of a server in a cluster.

    In: `store`, open; `in_use`, its directories with terminals or shell commands; `host`, its changes; `emit`, `has_reader` and
    `watch` as for `RemoteChanges`.
    """

    def __init__(
        self,
        app: web.Application,
        settings: Settings,
        store: Store,
        agents: AgentDirectory,
        room: AgentRoom,
        *,
        in_use: Callable[[], Sequence[str]],
        host: HostFeed,
        emit: Callable[[HostChanged], None],
        has_reader: Callable[[str], bool],
        watch: Callable[[str], Awaitable[None]],
    ) -> None:
        assert isinstance(store, JetStreamStore)  # the only one whose sessions move
        self._store, self._host = store, host
        self._peers = store.peers
        self.placement = ClusterPlacement(
            store.server_id,
            store.peers,
            agents,
            runs_agents=not settings.no_agents,
            room=room,
            roots=tuple(map(str, settings.roots)),
            in_use=in_use,
            labels=settings.labels,
        )
        self._changes = RemoteChanges(host, emit, has_reader, watch)
        self._relay = Relay(app, store.peers, self.placement, self._changes.note_host)
        self._remotes: RemoteSessions | None = None

    def make_remotes(
        self, deps: SessionDeps, index: SessionIndex, new_state: NewState, on_read: Callable[[Session], None]
    ) -> RemoteSessions:
        """Make what reads the sessions of other servers."""
        self._remotes = RemoteSessions(deps, index, new_state, on_read, self._peers, self._relay.delete_session)
        return self._remotes

    def is_wanted(self, directory: str) -> bool:
        """Whether another server wants to know of files and branches of a directory."""
        return self._changes.is_wanted(directory)

    def nodes(self, services: Services, drain: Drain) -> Nodes:
        """What `/v1` tells of the cluster."""
        assert self._remotes is not None
        return ClusterNodes(
            self._store.server_id, self._peers, services.sessions, self._remotes, self._relay, self.placement, drain
        )

    async def join(self, services: Services) -> None:
        """Let clients go on at any server of the cluster, and do commands of other servers. After the start of the sessions."""
        assert self._remotes is not None
        assert self._remotes.places is not None
        sessions, places = services.sessions, self._remotes.places
        self._host.observe(self.placement.note_change)
        self._peers.announce_offer(self.placement.offer)
        await self._changes.start(self._peers, self._store.server_id)
        services.hub.use_positions(places)
        self._remotes.is_read = lambda: services.hub.stats().readers > 0 or sessions.deps.feed.listeners > 0
        look = sessions.others.look_now
        services.streams = ClusterStreams(
            Replays(self._store, sessions.index, self._remotes, look, places, self._peers, sessions.detached_state)
        )
        await self._relay.start()
        services.relay = self._relay

    async def leave(self) -> None:
        """Do nothing more for others. May be called before `join`."""
        await self._relay.close()
        await self._changes.close()


# --- reports ---------------------------------------------------------------------------------------------


class ClusterNodes(Nodes):
    """The `Nodes` of a server in a cluster. In: `remotes`, the sessions of the other servers; `relay`, which asks them."""

    def __init__(
        self,
        server_id: str,
        peers: Peers,
        sessions: SessionManager,
        remotes: RemoteSessions,
        relay: Relay,
        placement: ClusterPlacement,
        drain: Drain,
    ) -> None:
        self._server_id = server_id
        self._peers = peers
        self._sessions = sessions
        self._remotes = remotes
        self._relay = relay
        self._placement = placement
        self._drain = drain

    async def change(self, request: web.Request, node: str, duty: Duty) -> web.StreamResponse | None:
        """Set what a server of the cluster is to take: this one (None), or another one, whose answer is returned.

        In: `node`, an id or a name. Raises NodeNotFound, InvalidRequest for a name of several servers, ServerLost, StoreError.
        """
        refs = [status.node.ref for status in self._peers.overview().nodes]
        found = [ref for ref in refs if ref.id == node] or [ref for ref in refs if ref.name == node]
        if not found:
            raise NodeNotFound(node, [ref.label for ref in refs])
        if len(found) > 1:
            ids = ", ".join(ref.id for ref in found)
            raise InvalidRequest(f"{len(found)} servers have the name {node}. Name one by its id: {ids}", path=("node",))
        if found[0].id != self._server_id:
            return await self._relay.forward(request, found[0])
        self._placement.set_duty(duty)
        self._drain.empty(is_wanted=duty == "drained")
        return None

    def overview(self) -> NodeListResponse:
        """All servers that live, this one first, and how this one is connected with them."""
        overview, lags = self._peers.overview(), self.lags()
        cluster = ClusterInfo(
            servers=overview.address,
            prefix=overview.prefix,
            connected=overview.is_connected,
            waitingWrites=overview.waiting,
            reconnects=overview.reconnects,
        )
        return NodeListResponse(cluster=cluster, nodes=[_info(status, lags) for status in overview.nodes])

    def node_of(self, session_id: str) -> str | None:
        """Id of the server that has a session, this one included; None for nobody's."""
        if (owner := self._sessions.others.owner(session_id)) is not None:
            return owner.id
        entry = self._sessions.index.find(session_id)
        return self._server_id if entry is not None and entry.state is not None else None

    def lags(self) -> dict[str, int]:
        """Id of another server -> events that this one is behind in the worst of its sessions that somebody watches here."""
        lags: dict[str, int] = {}
        for session_id, events in self._remotes.lags().items():
            if (owner := self._sessions.others.owner(session_id)) is not None:
                lags[owner.id] = max(events, lags.get(owner.id, 0))
        return lags

    def families(self) -> Iterable[Any]:
        """The families of metrics of the cluster."""
        return _families(self._peers.overview(), max(self.lags().values(), default=0))


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
        cordoned=offer.is_cordoned,
        room=offer.room,
        sessions=status.sessions,
        leaseAgeMs=round(status.lease_age_s * 1000),
        lagEvents=0 if status.is_here else lags.get(ref.id, 0),
    )


def _families(overview: Overview, lag: int) -> Iterable[Any]:
    """In: `lag`, events that this server is behind in the worst session of another one that somebody watches here."""
    # Imported here, because only `GET /metrics` needs it, and it takes long.
    from shim.faces.v1 import prometheus

    for name, description, value in (
        ("nodes", "Servers that live, this one included.", len(overview.nodes)),
        ("connected", "Whether NATS can be reached (1) or not (0).", int(overview.is_connected)),
        ("full", "Whether NATS has no room, so that prompts are refused (1), or has (0).", int(overview.is_full)),
        ("stored_bytes", "On the disk of NATS, of all streams of its account.", overview.used_bytes),
        ("stored_limit_bytes", "What they may take, by the account or cluster_max_bytes; 0: not known.", overview.limit_bytes),
        ("largest_session_bytes", "Of the journal of the largest session.", overview.largest_bytes),
        ("sessions_owned", "Sessions that this server has.", overview.here.sessions),
        ("room", "Agents that this server can still start.", overview.here.node.offer.room),
        ("lease_age_seconds", "Since the last renewal of this server's lease.", overview.here.lease_age_s),
        ("writes_waiting", "Rows that NATS has not acknowledged.", overview.waiting),
        ("spool_bytes", "Bytes on disk of the events among them.", overview.spooled_bytes),
        ("read_lag_events", "Events that are stored and not yet published here, in the worst watched session.", lag),
    ):
        yield prometheus.gauge(f"cluster_{name}", description, value)
    yield prometheus.counter("cluster_renewals", "Renewals of this server's lease.", "result", overview.renewals)
    yield prometheus.counter("cluster_requests", "Requests that other servers were asked to do.", "result", overview.asked)
    for name, description, value in (
        ("appends_refused", "Appends to journals that NATS has refused.", overview.refused_appends),
        ("reconnects", "Connections to NATS after a lost one.", overview.reconnects),
    ):
        yield prometheus.total(f"cluster_{name}", description, value)
    for name, description, histogram in (
        ("append_seconds", "Time until an append was acknowledged.", overview.append_s),
        ("answer_seconds", "Time until another server began to answer.", overview.answer_s),
    ):
        yield prometheus.histogram(f"cluster_{name}", description, histogram)
