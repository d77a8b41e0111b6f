"""Carries out the effects of one session, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

E = TypeVar("E")


class EffectQueue(Generic[E]):
    """A queue of effects and the only loop that carries them out.

    `carry_out` handles one effect. Effects that it adds run next, in their order, before those that wait already.
    """

    def __init__(self, carry_out: Callable[[E], None]) -> None:
        self._carry_out = carry_out
        self._waiting: deque[E] = deque()
        self._is_running = False

    def add(self, effects: Sequence[E]) -> None:
        """Queue effects. Outside of `carry_out`, return when they and all that they cause are carried out.

        An exception of `carry_out` ends the run: effects that still wait are dropped.
        """
        self._waiting.extendleft(reversed(effects))
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._waiting:
                self._carry_out(self._waiting.popleft())
        finally:
            self._is_running = False
            self._waiting.clear()
