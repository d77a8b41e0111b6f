"""When what the hubs have published goes to their readers: at once, at the end of a burst, or with the bursts after it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic

APART_S = 0.0005
"""Bursts that are closer together are handed over together. Longer, and a turn of a busy loop passes before readers are woken."""


class Bursts:
    """One for all hubs of a server: what an agent says is told on each wire. Used from one event loop.

    `soon` calls a function in the loop's next turn; `now` in s.
    """

    def __init__(
        self, *, soon: Callable[[Callable[[], None]], object] | None = None, now: Callable[[], float] = monotonic
    ) -> None:
        self._soon = soon or _soon
        self._now = now
        self._hand_overs: list[Callable[[], None]] = []
        self._depth = 0
        self._waits = self._hurry = self._due = False
        self._delivered_at = -math.inf

    def to(self, hand_over: Callable[[], None]) -> None:
        """A hub: called when what it has kept is to go to its readers, if it has any."""
        self._hand_overs.append(hand_over)

    def came(self, *, urgent: bool) -> None:
        """A hub has kept something for its readers."""
        self._waits = True
        self._hurry = self._hurry or urgent
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
                self._hand_over_or_wait()

    def deliver(self) -> None:
        """Now, all of it."""
        self._waits = self._hurry = self._due = False
        for hand_over in self._hand_overs:
            hand_over()

    def _hand_over_or_wait(self) -> None:
        now = self._now()
        if self._hurry or now - self._delivered_at >= APART_S:
            self._delivered_at = now
            self.deliver()
        elif not self._due:
            self._due = True
            self._soon(self.deliver)


def _soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)
