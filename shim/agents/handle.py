"""A running agent, as a session sees it; made by `shim.runtime` from a codec's `LaunchSpec`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from universal.codec import Exit

OnLines = Callable[[list[bytes]], Awaitable[None] | None]
"""If it returns an awaitable, no more is read before that is done."""
OnExit = Callable[[Exit], None]


class AgentHandle(Protocol):
    """One process (or the in-process mock). `on_lines` is called in order; `on_exit` exactly once, after it."""

    @property
    def pid(self) -> int | None:
        """Process id, None for an agent in our own process."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it can still be written to."""
        ...

    def write(self, data: bytes) -> None:
        """Queue a line (newline added). Raises AgentGone, AgentStuck."""
        ...

    def interrupt(self) -> None:
        """SIGINT, for agents that have no message for it."""
        ...

    def kill(self) -> None:
        """End it at once, with all its children."""
        ...

    async def stop(self) -> None:
        """End it politely: the ladder of `shim.runtime.process`. Bounded."""
        ...
