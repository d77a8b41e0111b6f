"""Universal events of one session -> its OpenCode 2 state and events, in R's form. Pure: the same journal, the same result.

A fold over the universal event and what the first projection made of it: part order, step boundaries, endings and ids of
messages are that one's (`shim.projection.opencode1`); this one says them in the other grammar.
"""

from __future__ import annotations

from shim.opencode2.events import Event2
from shim.projection.opencode1.projector import Projector
from shim.projection.opencode2.state import Conversation2
from universal.events import UniversalEvent


class Projector2:
    """One session on the OpenCode 2 face. `agent` is the name of its agent."""

    def __init__(self, session_id: str, agent: str) -> None:
        self._first = Projector(session_id, agent)
        self.conversation = Conversation2({"id": session_id})

    def feed(self, event: UniversalEvent, at_ms: int) -> list[Event2]:
        """One universal event, made at `at_ms`; the events to publish, in order."""
        self._first.feed(event, at_ms)
        return []

    def deleted(self, at_ms: int) -> list[Event2]:
        """The session was deleted: the last events of it."""
        return []
