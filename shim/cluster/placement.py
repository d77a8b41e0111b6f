"""Decides which server of a cluster takes a session: one that has its directory and its agent, and room.

A server announces its roots, its agents and its room with its lease. One with `roots` says that they are the same on all servers
that name them, such as a shared volume. One without is asked only for what cannot be done here: it refuses if it has no such
directory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from hashlib import blake2b

from shim.agents.directory import AgentDirectory
from shim.agents.spares.agent_room import AgentRoom
from shim.cluster.peers import Node, Offer, Peers
from shim.faces.v1.models import Duty
from shim.host.changes import HostChanged, ShellCreated, TerminalCreated
from shim.lib.errors import NoRoom, NoServer, PlacedElsewhere, ServerStopping
from shim.sessions.placement import Need, Placement, label_obstacle
from shim.store.servers import ServerRef

IN_USE = 128
"""Maximum directories with terminals that a server names to the others."""
CORDONED = "This server takes no sessions (`opencode-shim cluster uncordon` changes that)"


class ClusterPlacement(Placement):
    """The `Placement` of a server of a cluster.

    In: `server_id` of this server; `peers`, the others; `runs_agents`, false for a front; `room` for agents; `roots` and `labels`
    of this server; `in_use`, its directories with terminals or shell commands.
    """

    def __init__(
        self,
        server_id: str,
        peers: Peers,
        agents: AgentDirectory,
        *,
        runs_agents: bool,
        room: AgentRoom,
        roots: Sequence[str],
        in_use: Callable[[], Sequence[str]] = tuple,
        labels: Sequence[str] = (),
    ) -> None:
        super().__init__(labels)
        self._server_id = server_id
        self._peers = peers
        self._agents = agents
        self._room = room
        self._roots = tuple(roots)
        self._in_use = in_use
        self.runs_agents = runs_agents
        self.duty: Duty = "open"

    @property
    def may_take_sessions(self) -> bool:
        """False for a front, for a server that is about to stop, and where a person wants none."""
        return self.runs_agents and not self.is_draining and self.duty == "open"

    def set_duty(self, duty: Duty) -> None:
        """Take sessions or not, as a person wants it, and tell the other servers."""
        self.duty = duty
        self._announce()

    def stop_taking(self) -> None:
        """Take no sessions from now on, and tell the other servers."""
        self.is_draining = True
        self._announce()

    def note_change(self, changed: HostChanged) -> None:
        """Tell the other servers at once that a directory is in use."""
        if isinstance(changed.change, TerminalCreated | ShellCreated):
            self._announce()

    def _announce(self) -> None:
        self._peers.announce_offer(self.offer)

    def has_successors(self) -> bool:
        """Whether there is another server that takes sessions."""
        return any(node.offer.takes_sessions for node in self._peers.nodes())

    def offer(self) -> Offer:
        """What this server can take at present."""
        if self.is_draining or not self.runs_agents:
            return Offer(is_draining=self.is_draining)
        agents = {agent.spec.name: agent.located.version or "" for agent in self._agents.list_agents() if agent.usable}
        in_use = tuple(self._in_use())[:IN_USE]
        is_drained, is_cordoned = self.duty == "drained", self.duty != "open"
        return Offer(agents, self._roots, self._room.free, self._labels, is_drained, in_use, is_cordoned)

    def candidates(self, need: Need) -> list[Node]:
        """Other servers that may have what a session needs, those with the root of its directory and with most room first."""
        fitting = [node for node in self._peers.nodes() if node.offer.may_take(need)]
        return sorted(fitting, key=lambda node: (node.offer.has_root_of(need.directory), node.offer.room), reverse=True)

    def hosts(self, directory: str) -> list[ServerRef]:
        """Other servers that may have this directory, in the order of `_rank`."""
        fitting = [node for node in self._peers.nodes() if node.offer.may_have(directory)]
        return [node.ref for node in sorted(fitting, key=lambda node: _rank(node.ref.id, node.offer, directory))]

    def hosts_before_this(self, directory: str) -> list[ServerRef]:
        """The servers of `hosts` that stand before this one, which has the directory."""
        offers = {node.ref.id: node.offer for node in self._peers.nodes()}
        own = _rank(self._server_id, self.offer(), directory)
        return [host for host in self.hosts(directory) if _rank(host.id, offers[host.id], directory) < own]

    async def need_new_here(self, need: Need, *, is_final: bool) -> None:
        """Raise PlacedElsewhere if another server should take a new session, NoServer if none can.

        In: `is_final`, another server has chosen this one, which does not ask a third.
        """
        await self.need_here(need)
        offer = self.offer()
        if offer.room <= 0 and (candidates := self.candidates(need)):
            raise PlacedElsewhere([node.ref for node in candidates], self._full())
        if not is_final and offer.has_root_of(need.directory):
            better = self._sharers(need)
            if better and better[0].offer.room > offer.room:
                raise PlacedElsewhere([node.ref for node in better], "Another server has more room")

    async def need_here(self, need: Need, *, starts_agent: bool = True, is_ours: bool = False) -> None:
        """Raise PlacedElsewhere if another server should run the agent of a session.

        If this server cannot, and no other may: NoServer for a front, a missing label or a cordon, ServerStopping before a stop.
        If it has no room, the session goes to a server that surely has its directory; else it waits for room here.
        In: `starts_agent`, false for a session whose agent runs; `is_ours`, true for one that this server has.
        """
        is_unwanted = self.duty == "drained" or (self.duty == "cordoned" and not is_ours)
        obstacle = await self._obstacle(need, CORDONED if is_unwanted else "")
        if obstacle and (candidates := self.candidates(need)):
            raise PlacedElsewhere([node.ref for node in candidates], obstacle)
        if self.is_draining:
            raise ServerStopping
        if obstacle and (is_unwanted or not self.runs_agents or label_obstacle(need, self._labels)):
            if full := [node.ref.label for node in self._peers.nodes() if node.offer.may_take(need, needs_room=False)]:
                raise NoRoom(full, obstacle)
            raise NoServer(need.directory, need.agent, obstacle, need.labels)
        if starts_agent and self.offer().room <= 0 and (sharers := self._sharers(need)):
            raise PlacedElsewhere([node.ref for node in sharers], self._full())

    def _sharers(self, need: Need) -> list[Node]:
        """Other servers with room that surely have the directory, because it lies in one of their roots."""
        return [node for node in self.candidates(need) if node.offer.has_root_of(need.directory)]

    def _full(self) -> str:
        return f"This server runs {self._room.limit} agents already (max_agents)"

    def leaves_to_others(self, directory: str) -> bool:
        """Whether a session of a dead server is another's to take over."""
        if self.may_take_sessions and self.offer().has_root_of(directory):
            return False
        return any(not self.may_take_sessions or node.offer.has_root_of(directory) for node in self.candidates(Need(directory)))

    async def _obstacle(self, need: Need, unwanted: str) -> str:
        """Why this server cannot run the agent in the directory; empty if it can. In: `unwanted`, why a person does not."""
        if not self.runs_agents:
            return "This server runs no agents (--no-agents)"
        if self.is_draining:
            return "This server is about to stop"
        if unwanted:
            return unwanted
        if not await asyncio.to_thread(os.path.isdir, need.directory):
            return f"This server has no directory {need.directory}"
        if need.agent is not None and need.agent not in self.offer().agents:
            return f"This server has no agent {need.agent}"
        return label_obstacle(need, self._labels)


def _rank(server_id: str, offer: Offer, directory: str) -> tuple[bool, bool, bytes]:
    """The place of a server among those that may have a directory. All servers agree on it, whoever comes or goes.

    One with terminals in the directory stands before all others, and those with a root of it before those that may have anything.
    The others are mixed by a hash, so that the directories are spread over all servers, and a new server changes the order of no
    two others.
    """
    mixed = blake2b(f"{server_id} {directory}".encode(errors="surrogateescape")).digest()
    return directory not in offer.in_use, not offer.has_root_of(directory), mixed
