"""Work of ours that is a turn of the session instead of the agent's: a shell command of the person's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from universal.turn import OURS

LOCAL_WORK = f"{OURS}own"
"""The key by which it holds the turn."""
STOP_S = 3.0
"""After `stop`, until it is over: a command gets one second before it is killed."""


@dataclass(frozen=True, slots=True)
class LocalWork:
    """`stop` asks it to end; `over` is set when it has."""

    stop: Callable[[], None]
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        """Until it is over, at most STOP_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self.over.wait()
