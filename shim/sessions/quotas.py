"""What a named person may use: agents at work at once, prompts that wait, and USD a day (of UTC).

A turn counts for the person whose prompt its agent was given last, and what agents start counts for the person for whom they
work. `shim.sessions.index.accounts` counts.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

ACCOUNT = "account"
"""Key of the fact for whom a session's running or last turn counts, and what the session had cost before it (USD)."""


class Quota(Protocol):
    """The most that a person may use; 0: any."""

    @property
    def max_running(self) -> int: ...

    @property
    def max_queued(self) -> int: ...

    @property
    def max_cost_day(self) -> float: ...


class Usage(NamedTuple):
    """What a person uses. `running`: sessions in which an agent works for them, or will."""

    running: frozenset[str]
    queued: int
    cost_day: float


class Quotas(Protocol):
    """The quotas of all people."""

    async def start(self) -> None:
        """Read what was spent."""
        ...

    async def check(self, session_id: str) -> None:
        """Refuse a prompt early, as `admit` does."""
        ...

    def admit(self, session_id: str) -> str:
        """The person for whom a prompt counts; "" for nobody. Raises LimitReached at their quota."""
        ...

    def usage(self, name: str) -> Usage:
        """What a person uses now, and has spent today."""
        ...
