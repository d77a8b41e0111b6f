"""Who writes next, when many want to at once: so many in each turn of the loop, in the order in which they came.

A piece of text wakes all readers in the same turn. With 1,000 of them the writes take 30 ms and more, and a request that
comes meanwhile would wait for all of them, several times; so it waits for AT_ONCE of them.
And who has gone: a connection that is closed is found out by the next write, which on a quiet stream is a heartbeat; until then
it would keep its place and what is watched for it. So it is looked for every LOOK_S.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

AT_ONCE = 64
"""2 ms of writes."""
LOOK_S = 1.0
"""How long a stream may be open whose client has gone."""


class Turnstile:
    """One for all streams of a server. Used from one event loop. With few readers nobody waits."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = self._left = at_once
        self._queue: deque[asyncio.Future[None]] = deque()
        self._turning = False
        self._open: dict[int, tuple[Callable[[], bool], Callable[[], None]]] = {}
        self._opened = 0
        self._looking: asyncio.TimerHandle | None = None

    @property
    def streams(self) -> int:
        """How many are open now."""
        return len(self._open)

    @contextmanager
    def stream(self, gone: Callable[[], bool], close: Callable[[], None]) -> Generator[None, None, None]:
        """One stream, as long as it is open. `close` is called once `gone` says that its client has gone."""
        self._opened = mine = self._opened + 1
        self._open[mine] = (gone, close)
        if self._looking is None:
            self._look_soon()
        try:
            yield
        finally:
            del self._open[mine]
            if not self._open and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    def _look_soon(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        for gone, close in tuple(self._open.values()):
            if gone():
                close()
        self._look_soon()

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
