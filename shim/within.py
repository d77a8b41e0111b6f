"""`with` for two functions."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType


class Within:
    """Calls one function at the beginning and one at the end, whatever happened in between.

    Made once and used again and again, also within itself: `contextmanager` makes a generator and its manager anew each time, and
    there is one for each read of an agent.
    """

    __slots__ = ("_enter", "_leave")

    def __init__(self, enter: Callable[[], object], leave: Callable[[], object]) -> None:
        self._enter = enter
        self._leave = leave

    def __enter__(self) -> None:
        self._enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self._leave()
