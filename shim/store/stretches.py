"""Runs of pieces of text as the few events that they add up to, for readers to whom only the whole text matters. Pure.

    piece, piece, ... piece, anything else  ->  one `Stretch`, if they were many

What pieces add up to: of each part the first, whose time is the part's, and the rest as one, with the sequence of the last of
them; in the order of those sequences. A part that begins is told after what was said before it. So whoever folds these events
gets the same texts, at the same times, and the journal's last sequence. Source of truth is the journal: a stretch that was never
closed, since the server died, is only read more slowly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from shim.errors import StoreError
from shim.store.rows import EventRow, dump, load, row_of
from universal.events import ItemDeltaData, UniversalEvent
from universal.growing_text import PartsRun

JOINED = ("text", "reasoning")
"""Kinds of parts whose pieces can be joined: those of a tool's output are lasting events with a number each (`sync`)."""
SHORTEST = 64
"""Pieces that are worth a row of their own."""
LONGEST = 4_096
"""Pieces after which another stretch begins: what is not closed yet is in memory."""
MOST_CHARS = 2**20
"""The same by their text."""

Key: TypeAlias = tuple[object, object]
"""Which item and part a piece of text is for."""


class Stretch(NamedTuple):
    """Events `first` to `last` of a session; `rows` are those that they add up to, as JSON text."""

    session_id: str
    first: int
    last: int
    rows: str


class _Open:
    """A stretch that grows. `joined` holds what is complete of it, `run` the pieces that may go on."""

    __slots__ = ("chars", "count", "first", "joined", "last", "run")

    def __init__(self, first: int) -> None:
        self.first = self.last = first
        self.count = self.chars = 0
        self.joined: list[tuple[UniversalEvent, str]] = []
        self.run: PartsRun[UniversalEvent] = PartsRun()

    def add(self, event: UniversalEvent, data: ItemDeltaData) -> None:
        self.last = event.sequence
        self.count += 1
        self.chars += len(data.delta)
        self.joined += self.run.add((data.item_id, data.part_index), data.delta, event)

    def close(self, session_id: str) -> Stretch | None:
        if self.count < SHORTEST:
            return None
        rows = [_row(event, text)[1:7] for event, text in (*self.joined, *self.run.take())]
        return Stretch(session_id, self.first, self.last, dump(rows, f"stretch {self.first} of session {session_id}"))


def _row(last: UniversalEvent, text: str) -> EventRow:
    """The row of a joined piece: its last piece's, with the text of all."""
    data = last.data.model_copy(update={"delta": text})
    return row_of(last.model_copy(update={"data": data, "raw": None}))


class Stretches:
    """Those that grow, of all sessions. Feed it every event of every journal, in order, once it is queued."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def add(self, events: Iterable[UniversalEvent]) -> list[Stretch]:
        """Those that are over now."""
        over: list[Stretch] = []
        for event in events:
            data, growing = event.data, self._open.get(event.session_id)
            piece = isinstance(data, ItemDeltaData) and data.part_type in JOINED
            if growing is not None and (not piece or growing.count >= LONGEST or growing.chars >= MOST_CHARS):
                del self._open[event.session_id]
                closed, growing = growing.close(event.session_id), None
                over += () if closed is None else (closed,)
            if isinstance(data, ItemDeltaData) and piece:
                if growing is None:
                    growing = self._open[event.session_id] = _Open(event.sequence)
                growing.add(event, data)
        return over

    def drop(self, session_id: str) -> None:
        """The session is deleted."""
        self._open.pop(session_id, None)


def rows_of(stretch: Stretch) -> list[EventRow]:
    """The rows that it is read as, without raw payloads. Raises StoreError if it is damaged."""
    what = f"stretch {stretch.first} of session {stretch.session_id}"
    try:
        return [EventRow(stretch.session_id, *cells, raw=None) for cells in load(stretch.rows, what)]
    except TypeError as error:
        raise StoreError(f"The stored {what} cannot be read: {error}. Was it written by another version?") from error
