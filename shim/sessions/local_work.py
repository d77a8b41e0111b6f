"""Work of the server itself that is a turn of the session: a shell command of the person's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from universal.turn import OURS

LOCAL_WORK = f"{OURS}own"
"""The key by which local work holds the turn."""
STOP_S = 3.0
"""Seconds from `stop` until the work must be over: a command gets one second before it is killed."""


class LocalWork:
    """The work that runs in one session, if there is any."""

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None
        self._is_over = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """Whether some is running."""
        return self._stop is not None

    def begin(self, stop: Callable[[], None]) -> None:
        """Work begins. `stop` asks it to end."""
        self._stop = stop
        self._is_over.clear()

    def stop(self) -> None:
        """Ask the work to end, if there is some."""
        if self._stop is not None:
            self._stop()

    def end(self) -> None:
        """The work is over."""
        self._stop = None
        self._is_over.set()

    async def wait(self) -> None:
        """Wait until the work is over, at most STOP_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._is_over.wait()
