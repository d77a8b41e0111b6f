"""What a client that reads a running turn may miss or spoil, told to it once more.

It puts what it has read over what streams have told it meanwhile, or adds what they tell to it, and cannot know which of that is
in it already: pieces of text came twice, or not at all (the TUI showed "I hang until until you stop me"); a tool call was
pending again, so that a permission was asked without the command (TUIs of 1.1 to 1.15, whose first read of a new session is
not over when a quick agent has begun). Whole messages and parts put that right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from universal.session.changes import Change, MessageChanged, PartChanged, TextGrew

AFTER_S = (0.1, 1.0)
"""After an answer, until its reader has surely taken it in: the TUI works off what streams bring every 16 ms; and again, for a
large answer on a slow line."""
KEEP_S = 1.1
"""For so long what has changed is told again: longer than the longest of these."""
INFO = ""
"""Stands for the message itself, in the place of a part's id."""

Changed = Iterable[tuple[str, str]]
"""(message, part or INFO), in the order of their last changes."""


class Resync:
    """Of one session. `resend` publishes what is named, and texts that still grow, as they are then."""

    def __init__(self, resend: Callable[[Changed], None]) -> None:
        self._resend = resend
        self._timers: dict[float, asyncio.TimerHandle] = {}
        self._changed: dict[tuple[str, str], float] = {}
        self.waits = False
        """Whether something is to be told again, so that changes are to be noted."""

    def on_read(self) -> None:
        """A client has read the running turn."""
        self.waits = True
        loop = asyncio.get_running_loop()
        for after_s in AFTER_S:
            if after_s not in self._timers:
                self._timers[after_s] = loop.call_later(after_s, self._due, after_s)

    def note(self, change: Change) -> None:
        """This was published; what is told is noted when `waits`."""
        found = _subject(change)
        if found is not None:
            self._changed.pop(found, None)
            self._changed[found] = asyncio.get_running_loop().time()

    def _due(self, after_s: float) -> None:
        del self._timers[after_s]
        since = asyncio.get_running_loop().time() - KEEP_S
        self._changed = {subject: at for subject, at in self._changed.items() if at > since}
        self._resend(tuple(self._changed))
        if not self._timers:
            self.waits = False
            self._changed.clear()


def _subject(change: Change) -> tuple[str, str] | None:
    match change:
        case TextGrew():
            return change.message_id, change.part_id
        case PartChanged():
            return change.message_id, change.part.id
        case MessageChanged():
            return change.info.id, INFO
        case _:
            return None
