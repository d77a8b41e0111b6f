"""Keeps the last events of the hub, so that a reader that was cut off can go on. Pure, bounded."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, NamedTuple

from shim.stream.frame import Frame, decode_position
from shim.stream.positions import local_part


class Entry(NamedTuple):
    """One published event.

    position  its id in the stream
    face      the face whose event it is
    scope     the directory whose readers get it; None: all
    subject   the request that it is about
    event_id  its own id, if that is not the position
    frames    generation of an encoder -> the frame, for those in use when it was published; None: it has no such event
    size      bytes of all frames
    event     the event, if it can be encoded for other encoders later
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
    """Entries of all faces in order. The oldest are removed when they are too many or too large.

    In: `frames`, the maximum of entries of each face; `size`, the maximum of bytes for each face, of all entries together;
    `origin`, the position before the first entry, from which a reader gets all of them.
    """

    def __init__(self, origin: str, *, frames: int, size: int) -> None:
        self._origin = origin
        self._last = origin
        self._max_frames = frames
        self._max_size = size
        self._entries: deque[Entry] = deque()
        self._position_by_event: dict[str, str] = {}
        self._forgotten = 0
        self._size = 0
        self._size_limit = 0
        self._length_limit = 0
        self._count_by_face: dict[str, int] = {}

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
        """Add the newest entry, and remove the oldest ones if needed. The newest always stays."""
        position, face, _, _, event_id, _, size, _ = entry
        entries, counts = self._entries, self._count_by_face
        if face not in counts:
            counts[face] = 0
            self._length_limit += self._max_frames
            self._size_limit += self._max_size
        self._last = position
        if event_id is not None:
            self._position_by_event[event_id] = position
        entries.append(entry)
        self._size += size
        counts[face] += 1
        while (
            self._size > self._size_limit or len(entries) > self._length_limit or counts[entries[0].face] > self._max_frames
        ) and len(entries) > 1:
            self._forget(entries.popleft())

    def _forget(self, oldest: Entry) -> None:
        position, face, _, _, event_id, _, size, _ = oldest
        self._size -= size
        self._count_by_face[face] -= 1
        if event_id is not None and self._position_by_event.get(event_id) == position:
            del self._position_by_event[event_id]
        self._origin = position
        self._forgotten += 1

    def position(self, last_event_id: str) -> str:
        """The position of a client's `Last-Event-ID`: the `id:` of a frame, or the id of an event."""
        return self._position_by_event.get(last_event_id) or decode_position(last_event_id)

    def number_of(self, position: str) -> int | None:
        """Number of entries that were added up to a position, or None for an unknown position."""
        place = local_part(position)
        if place == local_part(self._origin):
            return self._forgotten
        newest_first = enumerate(reversed(self._entries))
        return next((self.published_count - back for back, entry in newest_first if local_part(entry.position) == place), None)

    def after(self, position: str) -> list[Entry] | None:
        """The entries after a position, oldest first, or None for an unknown position."""
        number = self.number_of(position)
        return None if number is None else list(islice(self._entries, number - self._forgotten, None))
