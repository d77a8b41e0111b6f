"""Keeps Python's cyclic garbage collector from pausing the server while it holds large conversations.

A full collection visits all live objects. With a conversation of 100,000 messages that blocks the loop for a quarter of a second,
again and again while the conversation grows. So the live objects are frozen (`gc.freeze`) after a long full collection, and after
the load of a long journal, during which the collector is off. The collector skips frozen objects; reference counts still free
them. Conversations and their projections refer to each other in cycles: when enough of them were released, all objects are
unfrozen once.
This module alone decides whether the collector runs and what it visits, once the server is up.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from time import thread_time

FULL = 2
"""The collector's oldest generation."""
LONG_S = 0.010
"""Seconds of CPU time from which a full collection counts as long: some 100,000 objects. The freeze also covers the few objects
of current requests, which are small beside that."""
UNFREEZE_EVENTS = 20_000
"""Released events after which all objects are unfrozen, so that at most some 20 MiB wait to be freed."""


class Collector:
    """Controls the garbage collector. The process has one instance, `collector`, used from the event loop."""

    def __init__(self) -> None:
        self._pauses = 0
        self._was_on = False
        self._began = 0.0
        self._has_frozen = False
        self._released_events = 0

    @contextmanager
    def pause(self) -> Generator[None, None, None]:
        """Pause collections until the last user of this context leaves; then freeze all objects."""
        if self._pauses == 0:
            self._was_on = gc.isenabled()
            gc.disable()
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0 and self._was_on:
                self._freeze()
                gc.enable()

    @contextmanager
    def freeze_after_collections(self) -> Generator[None, None, None]:
        """Freeze all objects after each long full collection, until this context ends."""
        gc.callbacks.append(self._on_collection)
        try:
            yield
        finally:
            gc.callbacks.remove(self._on_collection)

    def note_released(self, events: int) -> None:
        """Count the events of a conversation, or of a view of one, that was released."""
        if self._has_frozen:
            self._released_events += events
            if self._released_events >= UNFREEZE_EVENTS:
                self._released_events = 0
                self._has_frozen = False
                gc.unfreeze()

    def _freeze(self) -> None:
        gc.freeze()
        self._has_frozen = True

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "start":
            self._began = thread_time()
        elif thread_time() - self._began > LONG_S:
            self._freeze()


collector = Collector()
