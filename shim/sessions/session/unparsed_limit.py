"""Limits the unparsed lines of an agent that are recorded in a turn.

The first KEPT of each turn are recorded as events. The others are counted, and at the end of the turn one more event has their
number. Lines between two turns count for the next one.
"""

from __future__ import annotations

import structlog

from universal.codec import Fact
from universal.events import UnparsedData

log = structlog.get_logger()

KEPT = 1_000
"""Maximum recorded unparsed lines of one turn."""


class UnparsedLimit:
    """The limit for one session."""

    def __init__(self, session_id: str, limit: int = KEPT) -> None:
        self._session_id = session_id
        self._bound = limit
        self._recorded = 0
        self._more = 0
        self._last = ""

    def keep(self, fact: Fact) -> bool:
        """Whether to record the fact of an unparsed line."""
        if self._recorded < self._bound:
            self._recorded += 1
            return True
        if self._more == 0:
            log.warning("agent.unparsed_too_much", session_id=self._session_id, kept=self._recorded)
        self._more += 1
        if isinstance(fact.data, UnparsedData):
            self._last = fact.data.location
        return False

    def end(self) -> UnparsedData | None:
        """End the turn: the data of the event with the number of dropped lines, or None. Counting begins anew."""
        more, self._recorded, self._more = self._more, 0, 0
        if not more:
            return None
        log.warning("agent.unparsed_total", session_id=self._session_id, dropped=more)
        return UnparsedData(error=f"{more} more that no rule knows: counted, not kept", location=self._last)
