"""The interface of a running agent. `shim.processes` creates agents from a codec's `LaunchSpec`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from universal.launch import Exit

OnLines = Callable[[list[bytes]], Awaitable[None] | None]
"""Gets lines of the agent. If it returns an awaitable, reading waits for it."""
OnExit = Callable[[Exit], None]
JudgeHost = Callable[[str, str], Awaitable[str]]
"""Decides about a host that no rule allows. In: its address; why it is refused, "" if a person must be asked.

Out: why it may not be reached; "" if it may."""


async def refuse_host(address: str, why: str) -> str:
    """Refuse: the process belongs to no session."""
    return why or "a person must be asked, and there is no session in which they could be"


class AgentHandle(Protocol):
    """One process (or the in-process mock). `on_lines` is called in order; `on_exit` exactly once, after it."""

    @property
    def pid(self) -> int | None:
        """Process id, or None for an agent inside of the server."""
        ...

    @property
    def alive(self) -> bool:
        """True while the agent accepts input."""
        ...

    @property
    def stderr(self) -> str:
        """The beginning and the end of what the agent wrote to stderr so far."""
        ...

    def write(self, data: bytes) -> None:
        """Queue a line (newline added). Raises AgentGone, AgentStuck."""
        ...

    def interrupt(self) -> None:
        """Send SIGINT, for agents without a message for an interrupt."""
        ...

    def kill(self) -> None: ...

    async def stop(self) -> None:
        """Stop the agent with the ladder of `shim.processes.agent_pipes`. Bounded."""
        ...
