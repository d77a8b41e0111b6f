"""When OpenCode 2 has answered a prompt.

A session works in executions, each of which runs until nothing is left to do and ends by exactly one event. An execution that
began before our prompt may end without it (a background task had woken it), so an end counts only once the model got the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Course:
    """The way of one session from a prompt, or from its own doing, to rest."""

    active: bool = False
    """Something is to be answered: a prompt, or the agent's own doing."""
    running: bool = False
    """An execution has begun and not ended."""
    delivered: bool = False
    """The model has what is to be answered."""
    stopping: bool = False
    rejected: bool = False
    """A person rejected something, which ends an execution too."""

    def start(self, *, delivered: bool) -> None:
        """Begin something that is to be answered."""
        self.active, self.delivered = True, delivered
        self.stopping = self.rejected = False

    def is_answered(self, outcome: str) -> bool:
        """Return whether the end of an execution is the answer. A failure is one also if the prompt was never delivered."""
        return self.active and (self.delivered or outcome != "succeeded")

    def end(self) -> None:
        """Its end has been signalled."""
        self.active = self.running = False
