"""An agent's process that was started before there is a session for it, and waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import structlog

from shim.agents.directory import Agent, AgentDirectory
from shim.agents.start_state import StartState
from shim.lib.errors import AgentError
from shim.processes.handle import AgentHandle, OnExit, OnLines
from universal.codec import Codec, Exit, Fact, LaunchOptions, Output, SpareCodec, WriteLine
from universal.events import EventType, ItemData
from universal.items import ItemKind

log = structlog.get_logger()

HELD_FACTS = 100
"""Maximum facts that a spare keeps for its session. An agent that says more without a prompt is ended."""
NOTES = frozenset({ItemKind.STATUS, ItemKind.SYSTEM})
"""Kinds of items that an agent may report when it starts. All others mean that it works."""


class SpareKey(NamedTuple):
    """What a spare waits for: a new session of an agent in a directory, or one that continues `conversation`."""

    agent: str
    directory: str
    conversation: str = ""


class Spare:
    """One started process with its codec: first nobody's, then a session's.

    Until `take`, it carries out the handshake alone, and keeps the facts for its session. A process that asks, works or fails
    without a prompt is of no use: `on_loss` is called with the reason, once, also if the process ends.
    """

    def __init__(
        self,
        agent: Agent,
        options: LaunchOptions,
        codec: Codec,
        state: StartState,
        tree: str,
        *,
        started_ms: int,
        on_loss: Callable[[Spare, str], None],
    ) -> None:
        self.agent = agent
        self.options = options
        self.codec = codec
        self.state = state
        self.tree = tree
        self.started_ms = started_ms
        self._is_prepared = False
        self._on_loss = on_loss
        self._facts: list[Fact] = []
        self._handle: AgentHandle | None = None
        self._is_lost = False
        self._lines: OnLines | None = None
        self._exit: OnExit | None = None

    @property
    def key(self) -> SpareKey:
        """What it waits for."""
        return SpareKey(self.agent.spec.name, self.options.directory, self.options.native_session_id or "")

    @property
    def is_usable(self) -> bool:
        """Whether a session can take it."""
        return not self._is_lost and self._handle is not None and self._handle.alive

    @property
    def is_new(self) -> bool:
        """Whether it runs and is still to be prepared."""
        return self.is_usable and not self._is_prepared

    async def start(self, agents: AgentDirectory) -> None:
        """Start the process and its handshake. Raises AgentError."""
        self._handle = await agents.spawn(self.agent, self.options, self.codec, self._on_lines, self._on_exit)
        self._carry_out(self.codec.start())

    def prepare(self) -> None:
        """Let the agent load what its first prompt needs, once."""
        self._is_prepared = True
        if isinstance(self.codec, SpareCodec):
            self._carry_out(self.codec.prepare())

    def take(self, on_lines: OnLines, on_exit: OnExit) -> tuple[AgentHandle, Sequence[Output]]:
        """Give the process to a session: its handle, and the facts so far. Lines and exit go to the session from now on."""
        assert self._handle is not None
        self._lines, self._exit = on_lines, on_exit
        facts, self._facts = self._facts, []
        return self._handle, facts

    async def stop(self) -> None:
        """End the process. `on_loss` is not called."""
        self._is_lost = True
        if self._handle is not None:
            await self._handle.stop()

    def kill(self) -> None:
        """Kill the process."""
        if self._handle is not None:
            self._handle.kill()

    def _on_lines(self, lines: list[bytes]) -> Awaitable[None] | None:
        if self._lines is not None:
            return self._lines(lines)
        for line in lines:
            if not self._is_lost:
                self._carry_out(self.codec.receive(line))
        return None

    def _on_exit(self, exit_: Exit) -> None:
        if self._exit is not None:
            self._exit(exit_)
        else:
            self._lose(f"it ended with {exit_.signal or exit_.code}")

    def _carry_out(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if isinstance(output, WriteLine):
                try:
                    assert self._handle is not None
                    self._handle.write(output.data)
                except AgentError as error:
                    self._lose(str(error))
            elif isinstance(output, Fact) and _is_note(output) and len(self._facts) < HELD_FACTS:
                self._facts.append(output)
            else:
                self._lose(f"it did something without a prompt: {type(output).__name__}")

    def _lose(self, why: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            log.warning("agent.spare_lost", agent=self.agent.spec.name, directory=self.options.directory, why=why)
            self._on_loss(self, why)


def _is_note(fact: Fact) -> bool:
    """Whether a fact may come from an agent that waits."""
    is_note = isinstance(fact.data, ItemData) and fact.data.item.kind in NOTES and fact.type is EventType.ITEM_COMPLETED
    return fact.child is None and (is_note or fact.type is EventType.UNPARSED)
