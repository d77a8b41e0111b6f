"""Python's collector of cycles, and what is large and here to stay: conversations.

A full collection looks through all that lives. With a conversation of 100,000 messages that is a quarter of a second in which
nobody is answered, again and again while the conversation is read. So it rests while much is read, and what is there then is set
aside (`gc.freeze`): it goes when nobody refers to it, as everything does, but is not looked through any more.
Owner of: whether the collector runs, once the server is up.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

FULL = 2
"""The oldest generation."""


class Collector:
    """One for the process: `collector`. Used from the event loop."""

    def __init__(self) -> None:
        self._resting = 0
        self._was_on = False
        self._aside = False

    @contextmanager
    def rests(self) -> Generator[None, None, None]:
        """No collection until the last of those who asked for it is done, however that ends."""
        if self._resting == 0:
            self._was_on = gc.isenabled()
            gc.disable()
        self._resting += 1
        try:
            yield
        finally:
            self._resting -= 1
            if self._resting == 0 and self._was_on:
                gc.freeze()
                self._aside = True
                gc.enable()

    def let_go(self) -> None:
        """Something large, whose parts refer to each other, is not needed any more: the next full collection looks through all,
        and what it leaves is set aside again.
        """
        if self._aside:
            self._aside = False
            gc.unfreeze()
            gc.callbacks.append(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == FULL:
            gc.callbacks.remove(self._collected)
            gc.freeze()
            self._aside = True


collector = Collector()
