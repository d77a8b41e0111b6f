"""Joins runs of pieces of text into few events, for readers that need only the whole text. Pure.

    piece, piece, ... piece, anything else  ->  one `Stretch`, if they were many

A stretch has two events for each part: the first piece, whose time is the part's, and the rest as one event with the sequence of
the last piece, in the order of these sequences. So a reader gets the same texts, at the same times, and the journal's last
sequence. The journal stays the truth: a stretch that was not closed, because the server died, is only read more slowly.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from shim.lib.errors import StoreError
from shim.store.rows import EventRow, dump, load, row_of
from universal.events import EventType, UniversalEvent

JOINED = ("text", "reasoning")
"""Kinds of parts whose pieces are joined. Pieces of a tool's output are durable events with their own numbers (`sync`)."""
SHORTEST = 64
"""Minimum pieces of a stretch."""
LONGEST = 4_096
"""Pieces after which a stretch is closed, because an open stretch is in memory."""
MOST_CHARS = 2**20
"""Characters after which a stretch is closed."""

V = TypeVar("V")

KIND_OF = attrgetter("session_id", "type")
PART_OF = attrgetter("data.item_id", "data.part_index", "data.part_type")
TEXT_OF = attrgetter("data.delta")
NO_PART = (None, None, None)
"""In the place of the part of an event that is no piece of text."""
Key: TypeAlias = tuple[object, object]
"""The item and part of a piece of text."""


class PartsRun(Generic[V]):
    """Pieces of several texts with nothing else between them, joined to two for each: the first, and all others.

    The first stands alone, since its time is the time of the part, and after all pieces that came before it. A joined piece has
    the value (an event, a row) of its last piece. Joined pieces are in the order of these last pieces, so sequences ascend.
    """

    __slots__ = ("_started", "_texts")

    def __init__(self) -> None:
        self._started: set[Hashable] = set()
        self._texts: dict[Hashable, tuple[V, list[str]]] = {}

    def add(self, key: Hashable, values: Sequence[V], pieces: Sequence[str]) -> list[tuple[V, str]]:
        """Append pieces to the text of this key, each with its value; return the pieces that are complete now, joined."""
        done: list[tuple[V, str]] = []
        if key not in self._started:
            self._started.add(key)
            done, pieces = [*self._join(), (values[0], pieces[0])], pieces[1:]
        if pieces:
            _, text = self._texts.pop(key, (values[-1], []))  # put in again at the end
            text += pieces
            self._texts[key] = values[-1], text
        return done

    def take(self) -> list[tuple[V, str]]:
        """Return the pieces that are left, joined, and start an empty run."""
        self._started = set()
        return self._join()

    def _join(self) -> list[tuple[V, str]]:
        texts, self._texts = self._texts, {}
        return [(value, "".join(pieces)) for value, pieces in texts.values()]


class Stretch(NamedTuple):
    """The events `first` to `last` of a session. `rows`: the joined events, as JSON text."""

    session_id: str
    first: int
    last: int
    rows: str


class _Open:
    """An open stretch. `joined`: its complete events; `run`: the pieces that may continue."""

    __slots__ = ("chars", "count", "first", "joined", "last", "run")

    def __init__(self, first: int) -> None:
        self.first = self.last = first
        self.count = self.chars = 0
        self.joined: list[tuple[UniversalEvent, str]] = []
        self.run: PartsRun[UniversalEvent] = PartsRun()

    def close(self, session_id: str) -> Stretch | None:
        if self.count < SHORTEST:
            return None
        rows = [_row(event, text)[1:7] for event, text in (*self.joined, *self.run.take())]
        return Stretch(session_id, self.first, self.last, dump(rows, f"stretch {self.first} of session {session_id}"))


def _row(last: UniversalEvent, text: str) -> EventRow:
    """The row of joined pieces: that of the last piece, with the text of all."""
    data = last.data.model_copy(update={"delta": text})
    return row_of(last.model_copy(update={"data": data, "raw": None}))


class Stretches:
    """The open stretches of all sessions. Give it every event of every journal, in order, once it is queued."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def add(self, events: Iterable[UniversalEvent]) -> list[Stretch]:
        """Add events, and return the stretches that are closed now. Pieces of one part that come together are one step."""
        over: list[Stretch] = []
        for (session_id, type_), some in groupby(events, KIND_OF):
            for part, run in groupby(some, PART_OF) if type_ is EventType.ITEM_DELTA else ((NO_PART, some),):
                item_id, part_index, part_type = part
                growing, is_joined = self._open.get(session_id), part_type in JOINED
                if growing is not None and (not is_joined or growing.count >= LONGEST or growing.chars >= MOST_CHARS):
                    del self._open[session_id]
                    closed, growing = growing.close(session_id), None
                    over += () if closed is None else (closed,)
                if is_joined:
                    pieces = list(run)
                    if growing is None:
                        growing = self._open[session_id] = _Open(pieces[0].sequence)
                    texts = list(map(TEXT_OF, pieces))
                    growing.last = pieces[-1].sequence
                    growing.count += len(pieces)
                    growing.chars += sum(map(len, texts))
                    growing.joined += growing.run.add((item_id, part_index), pieces, texts)
        return over

    def drop(self, session_id: str) -> None:
        self._open.pop(session_id, None)


def rows_of(stretch: Stretch) -> list[EventRow]:
    """The rows of a stretch, without raw payloads. Raises StoreError if it is damaged."""
    subject = f"stretch {stretch.first} of session {stretch.session_id}"
    try:
        return [EventRow(stretch.session_id, *cells, raw=None) for cells in load(stretch.rows, subject)]
    except TypeError as error:
        raise StoreError(f"The stored {subject} cannot be read: {error}. Was it written by another version?") from error
