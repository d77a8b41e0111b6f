"""Who writes next, when many want to at once: so many in each turn of the loop, in the order in which they came.

A piece of text wakes all readers in the same turn. With 1,000 of them the writes take 30 ms and more, and a request that
comes meanwhile would wait for all of them, several times; so it waits for AT_ONCE of them. For the same reason the writes of a
stream are the further apart, the more streams there are.
"""

from __future__ import annotations

import asyncio
from collections import deque

AT_ONCE = 64
"""2 ms of writes."""
GATHER_S = 0.004
"""Writes of a stream are so far apart when there are many, but for what is urgent: one write for many frames costs a tenth."""
GATHER_EACH_S = 0.0005
"""So far for each stream, when there are few."""


class Turnstile:
    """One for all streams of a server. Used from one event loop. With few readers nobody waits."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = self._left = at_once
        self._queue: deque[asyncio.Future[None]] = deque()
        self._turning = False
        self.streams = 0
        """How many are open now; counted by them."""

    @property
    def gather_s(self) -> float:
        """How far apart the writes of a stream are to be."""
        return min(GATHER_S, GATHER_EACH_S * self.streams)

    async def enter(self) -> None:
        """Returns when it is the caller's turn: at once, or in one of the next turns of the loop."""
        self._turn_soon()
        if self._left > 0 and not self._queue:
            self._left -= 1
            return
        mine = asyncio.get_running_loop().create_future()
        self._queue.append(mine)
        await mine

    def _turn_soon(self) -> None:
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        self._left = self._at_once
        while self._queue and self._left > 0:
            mine = self._queue.popleft()
            if not mine.done():  # it may have been cancelled
                mine.set_result(None)
                self._left -= 1
        if self._queue:
            self._turn_soon()
