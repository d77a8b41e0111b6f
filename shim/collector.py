"""Python's collector of cycles, and what is large and here to stay: conversations.

A full collection looks through all that lives. With a conversation of 100,000 messages that is a quarter of a second in which
nobody is answered, again and again while the conversation grows. So what is there is set aside (`gc.freeze`) when a full
collection took long, and when a long journal was read, during which none is made. What is set aside goes when nobody refers to
it, as everything does, but is not looked through. Conversations and their projections refer to each other: when enough of them
was given up, all is looked through once more.
Owner of: whether the collector runs and what it looks through, once the server is up.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from time import thread_time

FULL = 2
"""The oldest generation."""
LONG_S = 0.010
"""Processor time of a full collection: some 100,000 objects. What is set aside with them by mistake, of requests that are being
answered, is little beside that."""
GIVEN_UP = 20_000
"""Events of conversations that were given up, until which their memory may wait: some 20 MiB."""


class Collector:
    """One for the process: `collector`. Used from the event loop."""

    def __init__(self) -> None:
        self._resting = 0
        self._was_on = False
        self._began = 0.0
        self._aside = False
        self._given_up = 0

    @contextmanager
    def rests(self) -> Generator[None, None, None]:
        """No collection until the last of those who asked for it is done, however that ends; then all is set aside."""
        if self._resting == 0:
            self._was_on = gc.isenabled()
            gc.disable()
        self._resting += 1
        try:
            yield
        finally:
            self._resting -= 1
            if self._resting == 0 and self._was_on:
                self._set_aside()
                gc.enable()

    @contextmanager
    def watched(self) -> Generator[None, None, None]:
        """Meanwhile full collections stay short."""
        gc.callbacks.append(self._seen)
        try:
            yield
        finally:
            gc.callbacks.remove(self._seen)

    def give_up(self, events: int) -> None:
        """A conversation, or a view of one, of so many events is not needed any more."""
        if self._aside:
            self._given_up += events
            if self._given_up >= GIVEN_UP:
                self._given_up = 0
                self._aside = False
                gc.unfreeze()

    def _set_aside(self) -> None:
        gc.freeze()
        self._aside = True

    def _seen(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "start":
            self._began = thread_time()
        elif thread_time() - self._began > LONG_S:
            self._set_aside()


collector = Collector()
