"""When OpenCode has answered: idles are told twice after errors and aborts, and the first comes too early.

A session of OpenCode's is at rest when it was told idle since it was last told busy, and no message is incomplete:
after an error or an abort the first idle comes before the message is completed (docs/wire.md, "Errors, aborts"). An
abort before `busy` changes nothing there (trap 8), so it is held until the prompt has begun.
"""

from __future__ import annotations

from dataclasses import dataclass

from universal.items import Json

ABORT_ERROR = "MessageAbortedError"
UNKNOWN_AGENT = "Agent not found"
"""How an error begins after which OpenCode tells neither busy nor idle."""


@dataclass(slots=True)
class Course:
    """One session's way from busy to rest."""

    active: bool = False
    """Something is to be answered: a prompt, or the agent's own doing."""
    begun: bool = False
    idle: bool = False
    stopping: bool = False
    aborted: bool = False
    error: Json = None

    def start(self) -> None:
        """A prompt was handed over."""
        self.active, self.begun, self.idle = True, False, False
        self.stopping = self.aborted = False
        self.error = None

    def busy(self) -> bool:
        """OpenCode works. True: it has just begun with what is to be answered."""
        self.idle = False
        first, self.begun = not self.begun, True
        return first

    def rests(self, *, speaking: bool) -> bool:
        """Whether all is said. `speaking`: a message is not complete."""
        return self.active and self.begun and self.idle and not speaking

    def end(self) -> None:
        """Its end has been signalled."""
        self.active = self.begun = False
