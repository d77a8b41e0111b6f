"""The session's reducer with OpenCode 1's events, for those who still read its JSON. Goes when they read the session."""

from __future__ import annotations

from collections.abc import Iterable

from shim.faces.opencode1.render import render
from shim.opencode.events import OpenCodeEvent
from shim.projection.opencode1.state import Conversation
from universal.events import UniversalEvent
from universal.session.reducer import Reducer


class Projector:
    """One session on the OpenCode 1.x face. `agent` is the name of its agent (tool table, provider id)."""

    def __init__(self, session_id: str, agent: str) -> None:
        self.reducer = Reducer(session_id, agent)
        self.conversation = Conversation(self.reducer.session)
        self.transcript = self.reducer.transcript

    @property
    def agent(self) -> str:
        """The agent whose tool table is used."""
        return self.reducer.session.agent

    def feed(self, event: UniversalEvent, at_ms: int) -> list[OpenCodeEvent]:
        """One universal event, made at `at_ms`; the events to publish."""
        return render(self.reducer.apply(event, at_ms), self.reducer.session, at_ms)

    def load(self, event: UniversalEvent, at_ms: int) -> None:
        """The same for an event of a journal, of which nothing is published."""
        self.reducer.load(event, at_ms)

    def told_anew(self, changed: Iterable[tuple[str, str]], at_ms: int) -> list[OpenCodeEvent]:
        """Each text that still grows, and the messages and parts that are named, as they are now. Changes nothing."""
        return render(self.reducer.current(changed, at_ms), self.reducer.session, at_ms, is_resent=True)
