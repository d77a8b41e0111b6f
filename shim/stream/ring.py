"""The last frames of the server, so that a reader that was cut off can go on where it was. Pure, bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from shim.stream.frame import Frame


class Placed(Protocol):
    """What a ring holds."""

    @property
    def id(self) -> str:
        """Its place: by it a reader says where it was."""
        ...

    @property
    def size(self) -> int:
        """Bytes, in all forms."""
        ...


EntryT = TypeVar("EntryT", bound=Placed)


class Entry(NamedTuple):
    """One published event.

    id           its id
    directory    normalised; None: for everyone
    modern       its frame
    legacy       its frame for clients of 1.1 and 1.0, None if they get nothing
    legacy_made  False if nobody of 1.1 was there and `legacy` was never asked for
    subject      (type, properties.id): by it an open request is known to be among replayed events
    size         bytes, in all forms
    """

    id: str
    directory: str | None
    modern: Frame
    legacy: Frame | None
    legacy_made: bool
    subject: tuple[str, str] | None
    size: int


class Ring(Generic[EntryT]):
    """Entries in order, the oldest forgotten when there are too many or they are too large.

    `origin` is the id of the place before the first entry: who is there gets all of them.
    """

    def __init__(self, origin: str, *, frames: int, size: int) -> None:
        self._origin = origin
        self._last = origin
        self._max_frames = frames
        self._max_size = size
        self._entries: deque[EntryT] = deque()
        self._number: dict[str, int] = {}
        self._forgotten = 0
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def last(self) -> str:
        """The place after the last entry."""
        return self._last

    @property
    def published(self) -> int:
        """How many entries there have been."""
        return self._forgotten + len(self._entries)

    def entries(self) -> Iterator[EntryT]:
        """All of them, the newest first."""
        return reversed(self._entries)

    def add(self, entry: EntryT) -> None:
        """Add the newest; forget the oldest if need be. The newest always stays."""
        entries = self._entries
        self._last = id_ = entry.id
        self._number[id_] = self._forgotten + len(entries)
        entries.append(entry)
        self._size += entry.size
        while len(entries) > 1 and (len(entries) > self._max_frames or self._size > self._max_size):
            oldest = self._entries.popleft()
            self._size -= oldest.size
            del self._number[oldest.id]
            self._origin = oldest.id
            self._forgotten += 1

    def after(self, id_: str) -> list[EntryT] | None:
        """What followed the entry with this id, oldest first; None if that is not known any more, or never was."""
        if id_ == self._origin:
            return list(self._entries)
        number = self._number.get(id_)
        if number is None:
            return None
        skip = number + 1 - self._forgotten
        return [entry for index, entry in enumerate(self._entries) if index >= skip]
