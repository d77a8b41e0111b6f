"""Removes conversations of deleted sessions from the lists of agents' own programs, where a program can do that by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from shim.agents.directory import AgentDirectory
from shim.lib.errors import AgentError
from shim.lib.tasks import end_tasks, keep
from shim.processes.answers import MOST_LINES, CommandOutput, ask
from shim.sessions.session.native_sessions import NativeSession
from universal.agent_spec import Inquiry
from universal.lib.jsonline import objects, result_of

log = structlog.get_logger(__name__)

REMOVAL_S = 30.0
"""Seconds for a program to remove one."""


class Removals:
    """The removals of one server. They run beside all else; those that run when it ends are given up."""

    def __init__(self, agents: AgentDirectory) -> None:
        self._agents = agents
        self._tasks = set[asyncio.Task[None]]()

    def begin(self, conversations: Mapping[str, NativeSession]) -> None:
        """Remove the conversations of a session, by agent."""
        for name, native in conversations.items():
            if native.started:
                keep(asyncio.create_task(self._remove(name, native.id), name=f"remove {native.id}"), self._tasks)

    async def close(self) -> None:
        await end_tasks(*self._tasks)

    async def _remove(self, name: str, id_: str) -> None:
        agent = self._agents.get(name)
        store = agent.spec.abilities.conversations if agent is not None else None
        if agent is None or store is None or store.program is None or agent.located.path is None:
            return
        try:
            output = await ask_program(self._agents, agent.located.path, store.program().removal(id_), REMOVAL_S)
        except AgentError as error:
            log.warning("conversation.not_removed", agent=name, why=str(error))
        else:
            log.info("conversation.removed", agent=name, in_time=output.over)


async def ask_program(
    agents: AgentDirectory, program: str, asked: Inquiry, wait_s: float, most_lines: int = MOST_LINES
) -> CommandOutput:
    """Run an agent's own program for one answer. In: its path. Raises AgentError."""
    environ = {**agents.environment(), **asked.variables}

    def is_last(line: str) -> bool:
        return bool(asked.lines) and result_of(objects(line.encode()), 1) is not None

    argv = (program, *asked.args)
    return await ask(argv, environ, wait_s=wait_s, lines=asked.lines, enough=is_last, most_lines=most_lines)
