"""The last events of a hub, so that a reader that was cut off can go on where it was. Pure, bounded."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from shim.stream.frame import Frame, decode_position


class Entry(NamedTuple):
    """One published event.

    position  its id in the stream
    scope     the directory whose readers get it; None: all
    subject   the request that it is about
    event_id  its own id, if that is not the position
    frames    by generation of the wire, those that were wanted when it was published; None: that wire has no such event
    size      bytes of all frames
    event     itself, if it can be encoded for other wires later
    """

    position: str
    scope: str | None
    subject: tuple[str, str] | None
    event_id: str | None
    frames: dict[str, Frame | None]
    size: int
    event: Any = None


class Ring:
    """Entries in order. The oldest are forgotten when there are too many or they are too large.

    `origin` is the position before the first entry: a reader that is there gets all of them.
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

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def last(self) -> str:
        """The position after the last entry."""
        return self._last

    @property
    def published(self) -> int:
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
        while len(entries) > 1 and (len(entries) > self._max_frames or self._size > self._max_size):
            self._forget(entries.popleft())

    def _forget(self, oldest: Entry) -> None:
        self._size -= oldest.size
        del self._number[oldest.position]
        if oldest.event_id is not None and self._position_by_event.get(oldest.event_id) == oldest.position:
            del self._position_by_event[oldest.event_id]
        self._origin = oldest.position
        self._forgotten += 1

    def position(self, last_event_id: str) -> str:
        """The position that a client names: the `id:` of a frame, or the id of an event."""
        return self._position_by_event.get(last_event_id) or decode_position(last_event_id)

    def after(self, position: str) -> list[Entry] | None:
        """What followed a position, oldest first; None if that is not known any more, or never was."""
        if position == self._origin:
            return list(self._entries)
        number = self._number.get(position)
        if number is None:
            return None
        skip = number + 1 - self._forgotten
        return [entry for index, entry in enumerate(self._entries) if index >= skip]
