"""Resends messages and parts of a running turn to a client that has just read the session.

Such a client replaces what the stream has told it by the answer, or adds the stream to the answer, and cannot know which events
the answer contains. So pieces of text came twice or not at all (the TUI showed "I hang until until you stop me"), or a tool call
became pending again, so that a permission was shown without its command (TUIs of 1.1 to 1.15, whose first read of a new session
overlaps with a quick agent). Whole messages and parts repair that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from universal.session.changes import Change, MessageChanged, PartChanged, TextGrew

AFTER_S = (0.1, 1.0)
"""Seconds after an answer at which parts are resent: when its reader has processed it (the TUI processes events every 16 ms), and
again for a large answer on a slow connection."""
KEEP_S = 1.1
"""Seconds for which changes are kept for resending. It is longer than the last of these times."""
INFO = ""
"""Stands for the message itself, in place of a part's id."""

Changed = Iterable[tuple[str, str]]
"""(message, part or INFO), in the order of their last changes."""


class Resync:
    """Resends what changed in one session. `resend` publishes messages, parts and growing texts in their present state."""

    def __init__(self, resend: Callable[[Changed], None]) -> None:
        self._resend = resend
        self._timers: dict[float, asyncio.TimerHandle] = {}
        self._changed: dict[tuple[str, str], float] = {}
        self.waits = False
        """Whether a resend is due, so that changes must be noted."""

    def on_read(self) -> None:
        """A client has read the running turn."""
        self.waits = True
        loop = asyncio.get_running_loop()
        for after_s in AFTER_S:
            if after_s not in self._timers:
                self._timers[after_s] = loop.call_later(after_s, self._due, after_s)

    def note(self, change: Change) -> None:
        """Note published changes. Ignored unless `waits`."""
        subject = _subject(change)
        if subject is not None:
            self._changed.pop(subject, None)
            self._changed[subject] = asyncio.get_running_loop().time()

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
