"""Limits how many agents this server runs at once (`max_agents`).

A session takes a place before its agent starts, and has it until the agent has ended. If all places are taken, the agent of a
session without a turn ends, the one that was used least recently; its next prompt resumes the conversation. If all have turns,
the session waits, in the order in which the sessions came. Its status says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from shim.lib.errors import AgentStartFailed
from shim.lib.tasks import wait_at_most

log = structlog.get_logger()

WAIT_S = 300.0
"""Maximum seconds that a session waits for room. Then its turn fails."""
CHECK_S = 1.0
"""Maximum seconds until a session that waits looks again whether there is room."""


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """An agent's process. `end` ends one that has no turn."""

    session_id: str
    is_at_work: bool
    last_active_ms: int
    end: Callable[[], object]


class AgentRoom:
    """The places for agents.

    In: `limit` of agents, None for any number; `agents` lists those that run.
    """

    def __init__(self, limit: int | None, agents: Callable[[], Sequence[RunningAgent]]) -> None:
        self.limit = limit
        self._agents = agents
        self._starting: set[str] = set()
        self._waiting = 0
        self._order = asyncio.Lock()
        self._change = asyncio.Event()

    @property
    def free(self) -> int:
        """How many more agents can have a turn; 0 if sessions wait. Without a limit, 0 too."""
        at_work = {agent.session_id for agent in self._agents() if agent.is_at_work} | self._starting
        return max(0, (self.limit or 0) - len(at_work) - self._waiting)

    def note_change(self) -> None:
        """An agent or a turn has ended. Whoever waits looks whether there is room."""
        self._change.set()

    async def enter(self, session_id: str, *, is_wanted: Callable[[], bool], on_wait: Callable[[str], None]) -> bool:
        """Take a place for an agent, until `leave`, which follows when it runs. False if it is not wanted any more.

        In: `on_wait` is called with a sentence for a person if the session must wait. Raises AgentStartFailed after WAIT_S.
        """
        if not self._order.locked() and self._take(session_id):
            return True
        log.info("agent_room.full", session_id=session_id, limit=self.limit)
        on_wait(
            f"Waits for room: this server runs {self.limit} agents at once (max_agents), and all of them have a turn. This one"
            " begins when another one has ended."
        )
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_S), self._order:
                while is_wanted():
                    if self._take(session_id):
                        return True
                    self._change.clear()
                    await wait_at_most(self._change.wait(), CHECK_S)
        except TimeoutError:
            raise AgentStartFailed(
                f"There was no room for this turn: this server runs {self.limit} agents at once (max_agents), and all of them had"
                f" a turn for {WAIT_S:g} seconds. Send the prompt again later, raise max_agents, or start another server."
            ) from None
        finally:
            self._waiting -= 1
        return False

    def leave(self, session_id: str) -> None:
        """The agent runs, and counts by itself, or it has not started. May be called again."""
        self._starting.discard(session_id)
        self._change.set()

    def _take(self, session_id: str) -> bool:
        """Take a place if there is one, or if agents without a turn can make room."""
        if self.limit is not None:
            others = [agent for agent in self._agents() if agent.session_id != session_id]
            missing = len(others) + len(self._starting - {session_id}) + 1 - self.limit
            idle = sorted((agent for agent in others if not agent.is_at_work), key=lambda agent: agent.last_active_ms)
            if missing > len(idle):
                return False
            for agent in idle[: max(0, missing)]:
                log.info("agent_room.ended_idle", session_id=agent.session_id)
                agent.end()
        self._starting.add(session_id)
        return True
