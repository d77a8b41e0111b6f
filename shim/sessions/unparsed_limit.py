"""Of what an agent says and no rule knows, how much is kept: what tells what is wrong, not a flood.

Each turn the first KEPT are events like all others. Those after them are counted, and at the turn's end one event more says how
many they were. What comes between two turns counts for the next one.
"""

from __future__ import annotations

import structlog

from universal.codec import Fact
from universal.events import EventType, UnparsedData

log = structlog.get_logger()

KEPT = 1_000
"""Of one session's turn."""


class UnparsedLimit:
    """Of one session."""

    def __init__(self, session_id: str, kept: int = KEPT) -> None:
        self._session_id = session_id
        self._bound = kept
        self._kept = 0
        self._more = 0
        self._last = ""

    def keep(self, fact: Fact) -> bool:
        """Whether to record it. Facts of other types always are."""
        if fact.type is not EventType.UNPARSED:
            return True
        if self._kept < self._bound:
            self._kept += 1
            return True
        if self._more == 0:
            log.warning("agent.unparsed_too_much", session_id=self._session_id, kept=self._kept)
        self._more += 1
        if isinstance(fact.data, UnparsedData):
            self._last = fact.data.location
        return False

    def end(self) -> UnparsedData | None:
        """The turn ends: what is to be recorded of those that were not kept, None if all were. Counting begins anew."""
        more, self._kept, self._more = self._more, 0, 0
        if not more:
            return None
        log.warning("agent.unparsed_total", session_id=self._session_id, dropped=more)
        return UnparsedData(error=f"{more} more that no rule knows: counted, not kept", location=self._last)
