"""Decides when a hub delivers frames to readers, and which stream writes next."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic

APART_S = 0.0005
"""Seconds between bursts that are delivered together. With a longer time, a busy loop would turn before readers wake up."""
WRITES_AT_ONCE = 64
"""Maximum streams that write in one turn of the loop: 2 ms of writes."""
CHECK_S = 1.0
"""Seconds between checks for clients that have gone. A stream stays open so long after its client has gone."""


class Bursts:
    """Decides when the hub delivers: at once, at the end of a burst (`with bursts:`), or together with the next bursts.

    Used from one event loop. In: `soon` calls a function in the loop's next turn; `now` returns seconds.
    """

    def __init__(
        self, *, soon: Callable[[Callable[[], None]], object] | None = None, now: Callable[[], float] = monotonic
    ) -> None:
        self._soon = soon or _soon
        self._now = now
        self._deliveries: list[Callable[[], None]] = []
        self._depth = 0
        self._waits = self._is_urgent = self._is_scheduled = False
        self._delivered_at = -math.inf

    def register(self, deliver: Callable[[], None]) -> None:
        """Add a hub's function that delivers its waiting frames."""
        self._deliveries.append(deliver)

    def notify(self, *, urgent: bool) -> None:
        """Note that a hub has frames for its readers. Outside of a burst they are delivered at once."""
        self._waits = True
        self._is_urgent = self._is_urgent or urgent
        if not self._depth:
            self.deliver()

    def __enter__(self) -> None:
        """Begin a burst: all frames of the block are delivered together, at its end. The block must not await.

        A burst that ends less than APART_S after another one is delivered with the next ones, after a turn of the loop, unless it
        has an urgent frame. Bursts may be nested: the outermost one counts.
        """
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth or not self._waits:
            return
        now = self._now()
        if self._is_urgent or now - self._delivered_at >= APART_S:
            self._delivered_at = now
            self.deliver()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._soon(self.deliver)

    def deliver(self) -> None:
        """Deliver all waiting frames now."""
        self._waits = self._is_urgent = self._is_scheduled = False
        for deliver in self._deliveries:
            deliver()


def _soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)


class WriteQueue:
    """A fair queue that limits how many streams write in one loop iteration. It also closes streams whose client has gone.

    A piece of text wakes all readers in the same turn. With 1,000 readers the writes take 30 ms or more, and a request would wait
    for all of them. With this queue it waits for WRITES_AT_ONCE of them.
    The server notices a closed connection at the next write, which on a quiet stream is a heartbeat. Until then the stream would
    keep its place and the watchers of its directory. So all streams are checked every CHECK_S.
    The server has one queue for all streams, used from one event loop. With few readers, no stream waits.
    """

    def __init__(self, at_once: int = WRITES_AT_ONCE) -> None:
        self._at_once = self._remaining = at_once
        self._queue: deque[asyncio.Future[None]] = deque()
        self._is_turning = False
        self._open: dict[int, tuple[Callable[[], bool], Callable[[], None]]] = {}
        self._opened = 0
        self._check_timer: asyncio.TimerHandle | None = None

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._open)

    @contextmanager
    def stream(self, is_gone: Callable[[], bool], close: Callable[[], None]) -> Generator[None, None, None]:
        """Register a stream for as long as it is open. `close` is called when `is_gone` becomes true."""
        self._opened = number = self._opened + 1
        self._open[number] = (is_gone, close)
        if self._check_timer is None:
            self._check_later()
        try:
            yield
        finally:
            del self._open[number]
            if not self._open and self._check_timer is not None:
                self._check_timer.cancel()
                self._check_timer = None

    def _check_later(self) -> None:
        self._check_timer = asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def _check(self) -> None:
        for is_gone, close in tuple(self._open.values()):
            if is_gone():
                close()
        self._check_later()

    async def enter(self) -> None:
        """Wait until a registered stream may write: at once, or in one of the next turns of the loop."""
        if len(self._open) <= self._at_once:
            return
        self._turn_soon()
        if self._remaining > 0 and not self._queue:
            self._remaining -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        await turn

    def _turn_soon(self) -> None:
        if not self._is_turning:
            self._is_turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turning = False
        self._remaining = self._at_once
        while self._queue and self._remaining > 0:
            turn = self._queue.popleft()
            if not turn.done():  # it may have been cancelled
                turn.set_result(None)
                self._remaining -= 1
        if self._queue:
            self._turn_soon()
