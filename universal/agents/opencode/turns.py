"""Finds the end of OpenCode's answers. After errors and aborts it sends idle twice, and the first one too early.

A session has answered when idle came after the last busy, and no message is incomplete. After an error or an abort, the first
idle comes before the end of the message (docs/wire.md, "Errors, aborts"). An abort before `busy` has no effect (trap 8), so it is
held until the prompt has begun.
"""

from __future__ import annotations

from dataclasses import dataclass

from universal.items import Json

ABORT_ERROR = "MessageAbortedError"
UNKNOWN_AGENT = "Agent not found"
"""Beginning of an error after which OpenCode sends neither busy nor idle."""


@dataclass(slots=True)
class Course:
    """The state of one session from busy to idle."""

    active: bool = False
    """True while an answer is due, to a prompt or to unprompted work."""
    has_begun: bool = False
    idle: bool = False
    stopping: bool = False
    aborted: bool = False
    error: Json = None

    def start(self) -> None:
        """A prompt was sent."""
        self.active, self.has_begun, self.idle = True, False, False
        self.stopping = self.aborted = False
        self.error = None

    def busy(self) -> bool:
        """Note that OpenCode works. True if the answer has just begun."""
        self.idle = False
        first, self.has_begun = not self.has_begun, True
        return first

    def rests(self, *, speaking: bool) -> bool:
        """Whether the answer is complete. `speaking`: a message is not complete."""
        return self.active and self.has_begun and self.idle and not speaking

    def end(self) -> None:
        """Note that the end was signalled."""
        self.active = self.has_begun = False
