"""Joins a server to a cluster: puts the parts of this folder where a server alone has others (`shim.main.backend.Alone`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from shim.agents.directory import AgentDirectory
from shim.agents.spares.agent_room import AgentRoom
from shim.cluster.nats.store import JetStreamStore
from shim.cluster.placement import ClusterPlacement
from shim.cluster.relay import Relay
from shim.cluster.remote_changes import RemoteChanges
from shim.cluster.remote_sessions import RemoteSessions
from shim.cluster.replays import Replays
from shim.cluster.report import ClusterNodes
from shim.cluster.streams import ClusterStreams
from shim.faces.v1.nodes import Nodes
from shim.host.changes import HostChanged, HostFeed
from shim.http.services import Services
from shim.lib.settings import Settings
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

    def nodes(self, services: Services) -> Nodes:
        """What `/v1` tells of the cluster."""
        assert self._remotes is not None
        return ClusterNodes(self._store.server_id, self._peers, services.sessions, self._remotes)

    async def join(self, services: Services) -> None:
        """Let clients go on at any server of the cluster, and do commands of other servers. After the start of the sessions."""
        assert self._remotes is not None
        assert self._remotes.places is not None
        sessions, places = services.sessions, self._remotes.places
        self._host.observe(self.placement.note_change)
        self._peers.announce_offer(self.placement.offer)
        await self._changes.start(self._peers, self._store.server_id)
        services.hub.use_positions(places)
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
