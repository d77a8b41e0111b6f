"""Detection of when OpenCode 2 has answered a prompt.

A session works in executions, each of which runs until nothing is left to do and ends by exactly one event. An execution that
began before our prompt may end without it (a background task had woken it), so an end counts only once the model got the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Course:
    """The progress of one session from a prompt, or from work of its own, until it rests."""

    active: bool = False
    """Whether something is to be answered: a prompt, or work that the agent began."""
    running: bool = False
    """Whether an execution has begun and not ended."""
    delivered: bool = False
    """Whether the model has received what is to be answered."""
    stopping: bool = False
    rejected: bool = False
    """A person rejected something, which ends an execution too."""

    def start(self, *, delivered: bool) -> None:
        """Begin something that is to be answered."""
        self.active, self.delivered = True, delivered
        self.stopping = self.rejected = False

    def is_answered(self, outcome: str) -> bool:
        """Return whether the end of an execution is the answer. A failure counts even if the prompt was never delivered."""
        return self.active and (self.delivered or outcome != "succeeded")

    def end(self) -> None:
        """Reset after the end has been signalled."""
        self.active = self.running = False
