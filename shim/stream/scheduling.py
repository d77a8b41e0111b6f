"""When frames go to readers: with which burst a hub delivers them, and which stream writes next."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic

APART_S = 0.0005
"""Bursts that are closer together are delivered together. Longer, and a turn of a busy loop passes before readers are woken."""
WRITES_AT_ONCE = 64
"""Streams that write in one turn of the loop: 2 ms of writes."""
CHECK_S = 1.0
"""Seconds between checks for clients that have gone. A stream whose client has gone is open for as long."""


class Bursts:
    """Decides when the hubs deliver: at once, at the end of a burst, or together with the bursts after it.

    One for all hubs of a server, since each event of an agent goes to every face. Used from one event loop.
    In: `soon` calls a function in the loop's next turn; `now` in s.
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
        """Add a hub's function that gives its readers what waits for them, if anything does."""
        self._deliveries.append(deliver)

    def notify(self, *, urgent: bool) -> None:
        """A hub has something for its readers. Outside of a burst it is delivered at once."""
        self._waits = True
        self._is_urgent = self._is_urgent or urgent
        if not self._depth:
            self.deliver()

    @contextmanager
    def burst(self) -> Generator[None]:
        """Gives what the block publishes to the readers in one go, at its end. For work that does not wait in between.

        A burst that ends less than APART_S after another one goes together with the next ones, when the loop has turned, unless
        something in it is urgent. Bursts may be nested: the outermost one counts.
        """
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth and self._waits:
                self._deliver_or_wait()

    def deliver(self) -> None:
        """Deliver all that waits, now."""
        self._waits = self._is_urgent = self._is_scheduled = False
        for deliver in self._deliveries:
            deliver()

    def _deliver_or_wait(self) -> None:
        now = self._now()
        if self._is_urgent or now - self._delivered_at >= APART_S:
            self._delivered_at = now
            self.deliver()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._soon(self.deliver)


def _soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)


class WriteQueue:
    """A fair queue that limits how many streams write in one loop iteration. It also closes streams whose client has gone.

    A piece of text wakes all readers in the same turn. With 1,000 of them the writes take 30 ms and more, and a request that
    comes meanwhile would wait for all of them, several times; so it waits for WRITES_AT_ONCE of them.
    A connection that is closed is noticed by the next write, which on a quiet stream is a heartbeat. Until then it would
    keep its place and the watchers of its directory, so all streams are checked every CHECK_S.
    One for all streams of a server. Used from one event loop. With few readers nobody waits.
    """

    def __init__(self, at_once: int = WRITES_AT_ONCE) -> None:
        self._at_once = self._left = at_once
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
        """One stream, as long as it is open. `close` is called once `is_gone` says that its client has gone."""
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
        """Returns when it is the caller's turn: at once, or in one of the next turns of the loop."""
        self._turn_soon()
        if self._left > 0 and not self._queue:
            self._left -= 1
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
        self._left = self._at_once
        while self._queue and self._left > 0:
            turn = self._queue.popleft()
            if not turn.done():  # it may have been cancelled
                turn.set_result(None)
                self._left -= 1
        if self._queue:
            self._turn_soon()
