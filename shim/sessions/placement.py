"""Decides which server of a cluster takes a session: one that has its directory and its agent, and room.

A server announces its roots, its agents and its room with its lease. One with `roots` says that they are the same on all servers
that name them, such as a shared volume. One without is asked only for what cannot be done here: it refuses if it has no such
directory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from shim.agents.directory import AgentDirectory
from shim.errors import NoServer, PlacedElsewhere
from shim.store.ownership import Ownership
from shim.store.peers import Node, Offer


class Placement:
    """The place of sessions, from the view of this server.

    In: `runs_agents`, false for a front; `max_agents`, and `running`, which counts the agents at work; `roots` of this server.
    """

    def __init__(
        self,
        ownership: Ownership,
        agents: AgentDirectory,
        *,
        runs_agents: bool,
        max_agents: int,
        running: Callable[[], int],
        roots: Sequence[str],
    ) -> None:
        self._ownership = ownership
        self._agents = agents
        self._max_agents = max_agents
        self._running = running
        self._roots = tuple(roots)
        self.runs_agents = runs_agents

    def offer(self) -> Offer:
        """What this server can take at present."""
        if not self.runs_agents:
            return Offer()
        names = tuple(agent.spec.name for agent in self._agents.list_agents() if agent.usable)
        return Offer(names, self._roots, self._max_agents - self._running())

    def candidates(self, directory: str, agent: str | None = None) -> list[Node]:
        """Other servers that may have this directory and this agent (None: any), those with its root and with most room first."""
        peers = self._ownership.peers
        nodes = () if peers is None else peers.nodes()
        fitting = [node for node in nodes if node.offer.may_take(directory, agent)]
        return sorted(fitting, key=lambda node: (node.offer.has_root_of(directory), node.offer.room), reverse=True)

    async def need_new_here(self, directory: str, agent: str | None, *, is_final: bool) -> None:
        """Raise PlacedElsewhere if another server should take a new session, NoServer if none can.

        In: `is_final`, another server has chosen this one, which does not ask a third.
        """
        if self._ownership.peers is None:
            return
        await self.need_here(directory, agent)
        offer = self.offer()
        if not is_final and offer.has_root_of(directory):
            better = [node for node in self.candidates(directory, agent) if node.offer.has_root_of(directory)]
            if better and better[0].offer.room > offer.room:
                raise PlacedElsewhere([node.ref for node in better], "Another server has more room")

    async def need_here(self, directory: str, agent: str | None) -> None:
        """Raise PlacedElsewhere if this server cannot run an agent for a session, and another may; NoServer for a front."""
        if self._ownership.peers is None:
            return
        obstacle = await self._obstacle(directory, agent)
        if not obstacle:
            return
        candidates = self.candidates(directory, agent)
        if candidates:
            raise PlacedElsewhere([node.ref for node in candidates], obstacle)
        if not self.runs_agents:
            raise NoServer(directory, agent, obstacle)

    def leaves_to_others(self, directory: str) -> bool:
        """Whether a session of a dead server is another's to take over."""
        if self.runs_agents and self.offer().has_root_of(directory):
            return False
        return any(not self.runs_agents or node.offer.has_root_of(directory) for node in self.candidates(directory))

    async def _obstacle(self, directory: str, agent: str | None) -> str:
        """Why this server cannot run the agent in the directory; empty if it can."""
        if not self.runs_agents:
            return "This server runs no agents (--no-agents)"
        if not await asyncio.to_thread(os.path.isdir, directory):
            return f"This server has no directory {directory}"
        if agent is not None and agent not in self.offer().agents:
            return f"This server has no agent {agent}"
        if self.offer().room <= 0:
            return f"This server runs {self._max_agents} agents already (max_agents)"
        return ""
