"""The last events of the hub, so that a reader that was cut off can go on where it was. Pure, bounded."""

from __future__ import annotations

from collections import Counter, deque
from itertools import islice
from typing import Any, NamedTuple

from shim.stream.frame import Frame, decode_position


class Entry(NamedTuple):
    """One published event.

    position  its id in the stream
    face      the face whose event it is
    scope     the directory whose readers get it; None: all
    subject   the request that it is about
    event_id  its own id, if that is not the position
    frames    by generation of the wire, those that were wanted when it was published; None: that wire has no such event
    size      bytes of all frames
    event     itself, if it can be encoded for other wires later
    """

    position: str
    face: str
    scope: str | None
    subject: tuple[str, str] | None
    event_id: str | None
    frames: dict[str, Frame | None]
    size: int
    event: Any = None


class Ring:
    """Entries of all faces in order. The oldest are forgotten when there are too many or they are too large.

    In: `frames` and `size` (bytes), for each face whose events it has. An entry stays while its face has no more than `frames`
    and all together have no more than that for each. `origin` is the position before the first entry: a reader that is there
    gets all of them.
    """

    def __init__(self, origin: str, *, frames: int, size: int) -> None:
        self._origin = origin
        self._last = origin
        self._max_frames = frames
        self._max_size = size
        self._entries: deque[Entry] = deque()
        self._number: dict[str, int] = {}
        self._position_by_event: dict[str, str] = {}
        self._forgotten = 0
        self._size = 0
        self._count_by_face: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def last(self) -> str:
        """The position after the last entry."""
        return self._last

    @property
    def published_count(self) -> int:
        """The number of entries that were ever added."""
        return self._forgotten + len(self._entries)

    def add(self, entry: Entry) -> None:
        """Add the newest; forget the oldest if need be. The newest always stays."""
        entries = self._entries
        self._last = position = entry.position
        self._number[position] = self._forgotten + len(entries)
        if entry.event_id is not None:
            self._position_by_event[entry.event_id] = position
        entries.append(entry)
        self._size += entry.size
        self._count_by_face[entry.face] += 1
        while len(entries) > 1 and self._is_full():
            self._forget(entries.popleft())

    def _is_full(self) -> bool:
        faces = len(self._count_by_face)
        too_many = self._count_by_face[self._entries[0].face] > self._max_frames or len(self._entries) > self._max_frames * faces
        return too_many or self._size > self._max_size * faces

    def _forget(self, oldest: Entry) -> None:
        self._size -= oldest.size
        self._count_by_face[oldest.face] -= 1
        del self._number[oldest.position]
        if oldest.event_id is not None and self._position_by_event.get(oldest.event_id) == oldest.position:
            del self._position_by_event[oldest.event_id]
        self._origin = oldest.position
        self._forgotten += 1

    def position(self, last_event_id: str) -> str:
        """The position that a client names: the `id:` of a frame, or the id of an event."""
        return self._position_by_event.get(last_event_id) or decode_position(last_event_id)

    def number_of(self, position: str) -> int | None:
        """How many entries were added up to a position; None if that is not known any more, or never was."""
        if position == self._origin:
            return self._forgotten
        number = self._number.get(position)
        return None if number is None else number + 1

    def after(self, position: str) -> list[Entry] | None:
        """What followed a position, oldest first; None if that is not known any more, or never was."""
        number = self.number_of(position)
        return None if number is None else list(islice(self._entries, number - self._forgotten, None))
