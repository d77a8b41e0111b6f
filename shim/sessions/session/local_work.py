"""The server's own work in a turn of a session: a person's shell command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from universal.turn import OURS

LOCAL_WORK = f"{OURS}own"
"""The key with which local work holds the turn open."""
STOP_S = 3.0
"""Seconds from `stop` until the work must be over: a command gets one second before it is killed."""


class LocalWork:
    """The running local work of one session, if there is any."""

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None
        self._is_over = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """Whether work is running."""
        return self._stop is not None

    def begin(self, stop: Callable[[], None]) -> None:
        """Begin work. `stop` asks it to end."""
        self._stop = stop
        self._is_over.clear()

    def stop(self) -> None:
        """Ask the running work to end."""
        if self._stop is not None:
            self._stop()

    def end(self) -> None:
        """Note the end of the work."""
        self._stop = None
        self._is_over.set()

    async def wait(self) -> None:
        """Wait until the work is over, at most STOP_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._is_over.wait()
