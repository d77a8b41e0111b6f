"""What the server's agents have told of the limits of the person's plan (`universal.limits`), and the warnings about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from shim.sessions.feed import SessionChanges
from universal.limits import PlanWindow
from universal.session.changes import LimitsReported

WARNING = 0.8
"""How much of a window must be used for a warning, from 0 to 1. Each window warns once until it begins anew."""
FRESH = 0.4
"""A window of which less is used has begun anew. Use that swings around WARNING does not warn twice."""
SAME_WINDOW_S = 600
"""Most seconds by which the told reset of one window moves between two reports."""
KEPT_AGENTS = 100


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What an agent has told last, and when (ms since 1970)."""

    windows: Sequence[PlanWindow]
    at_ms: int


class PlanReports:
    """The last report of each agent. In: `warn` gets an agent, a text for a person, and the directory of the session."""

    def __init__(self, warn: Callable[[str, str, str], None]) -> None:
        self._warn = warn
        self._warned: dict[tuple[str, str], int] = {}
        self.agents: dict[str, PlanReport] = {}

    def note(self, changed: SessionChanges) -> None:
        agent = changed.session.agent
        for change in changed.changes:
            if isinstance(change, LimitsReported):
                self.agents[agent] = PlanReport(change.windows, changed.at_ms)
                for window in change.windows:
                    self._look(agent, window, changed.session.record.directory)
        while len(self.agents) > KEPT_AGENTS:
            del self.agents[next(iter(self.agents))]

    def _look(self, agent: str, window: PlanWindow, directory: str) -> None:
        key = agent, window.name
        if window.used < WARNING:
            if window.used < FRESH:
                self._warned.pop(key, None)
        elif (resets_at := self._warned.get(key)) is None or window.resets_at - resets_at > SAME_WINDOW_S:
            self._warned[key] = window.resets_at
            reset = f" It resets at {datetime.fromtimestamp(window.resets_at, UTC):%d %b, %H:%M} UTC." if window.resets_at else ""
            self._warn(agent, f"{window.used:.0%} of the {window.title} is used.{reset}", directory)
