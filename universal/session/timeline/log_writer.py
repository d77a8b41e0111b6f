"""Ids and numbers of the events of a session's log. Pure: the same journal, the same ids and numbers.

An id is 48 bits of time and a tail that counts, from the sequence of the universal event on: so it depends on the place in the
journal alone, however the journal was read. An entry that an event makes has the event's id, and clients compare ids of
messages as strings. So the time is the highest that an id of the session's messages has used, and only the tail is higher; the
next message's time is above it.
"""

from __future__ import annotations

from collections.abc import Iterable

from universal.lib.ids import COUNTER_SPAN, MASK, hashed_tail, highest
from universal.session.entries import Timeline
from universal.session.log import LIVE_ONLY, LogAppended, LogEvent

LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""Ends of the ids of events that accompany another one (`LogWriter.accompany`)."""
EVENTS_BITS = 5
"""Bits of a tail that count the log's events of one universal event. More of them take the tails of the next one."""


class LogWriter:
    """Collects the log's events of one universal event."""

    def __init__(self, session_id: str, timeline: Timeline) -> None:
        self._timeline = timeline
        self._suffix = hashed_tail(f"{session_id}:2")[:4]
        self._first_tail = 0
        self.at = 0
        self.is_live = True
        self.events: list[LogAppended] = []

    def begin(self, sequence: int, at_ms: int, *, is_live: bool) -> None:
        """Begin with a new universal event. `is_live`: somebody may be told of it."""
        self._first_tail = sequence << EVENTS_BITS
        self.is_live = is_live
        self.at = at_ms
        self.events = []

    def saw(self, id_: str) -> None:
        """Note the id of a message or part, so that later ids sort after it."""
        self._timeline.highest_id = highest(self._timeline.highest_id, id_, self.at)

    def next_message_id(self) -> str:
        """The id for a message that the next event makes."""
        timeline = self._timeline
        value = max(timeline.last_id, timeline.highest_id, self.at * COUNTER_SPAN & MASK)
        return f"msg_{self._render(value, max(timeline.last_tail + 1, self._first_tail))}"

    def id_at(self, place: tuple[int, int]) -> str:
        """The id at a place of the log (`TextGrew.place`), without a prefix."""
        return self._render(*place)

    def place_at(self, at_ms: int) -> str:
        """The id that an event outside the journal would have now. Changes nothing."""
        timeline = self._timeline
        return self._render(max(timeline.last_id, timeline.highest_id, at_ms * COUNTER_SPAN & MASK), timeline.last_tail + 1)

    def write(self, event: LogEvent, *, created_ms: int | None = None) -> None:
        """Write one event. `created_ms`: when it happened, if that was before the universal event that tells of it."""
        timeline = self._timeline
        timeline.last_id = max(timeline.last_id, timeline.highest_id, self.at * COUNTER_SPAN & MASK)
        timeline.last_tail = max(timeline.last_tail + 1, self._first_tail)
        timeline.companions = 0
        number = None
        if type(event) not in LIVE_ONLY:
            number, timeline.number = timeline.number, timeline.number + 1
        if not self.is_live:
            return
        id_ = f"{timeline.last_id:012x}zzz{timeline.last_tail:07x}{self._suffix}"  # as `_render`
        self.events.append(LogAppended(id_, number, self.at if created_ms is None else created_ms, event))

    def pass_over(self, sequences: Iterable[int], at_ms: int) -> tuple[int, int]:
        """Give the next places to pieces of text: later ids are above them. A fast `begin` and `write` for most journal events.

        In: the sequences of their universal events. Out: the place of the last one (`TextGrew.place`).
        """
        timeline = self._timeline
        timeline.last_id = max(timeline.last_id, timeline.highest_id, at_ms * COUNTER_SPAN & MASK)
        tail = timeline.last_tail
        for sequence in sequences:
            own_tail = sequence << EVENTS_BITS
            tail = own_tail if own_tail > tail else tail + 1
        timeline.last_tail = tail
        return timeline.last_id, tail

    def accompany(self, event: LogEvent) -> None:
        """Write a live event under the last one's id and a letter, so that later ids do not change."""
        timeline = self._timeline
        if not self.is_live:
            return
        id_ = self._render(timeline.last_id, timeline.last_tail) + LETTERS[timeline.companions]
        timeline.companions = min(timeline.companions + 1, len(LETTERS) - 1)
        self.events.append(LogAppended(id_, None, self.at, event))

    def _render(self, value: int, tail: int) -> str:
        return f"{value:012x}zzz{tail:07x}{self._suffix}"
