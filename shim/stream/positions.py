"""The positions of a hub's events in a cluster, where a client may go on at another server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

SEPARATOR = "."
"""Between the part of a position that only its server understands and the part for all servers."""


class Positions(Protocol):
    """Makes the positions of a hub's events. Without one, a position is the id of an event and only this server knows it.

    For each change: `begin` for each face, `next` for each event, and `end`.
    """

    def begin(self, change: object) -> None:
        """The next events are those that a face makes of this change."""
        ...

    def next(self, moment: str) -> tuple[str, str]:
        """The position and the id of the next event. In: `moment`, a new id of this server."""
        ...

    def end(self, change: object) -> None:
        """All faces have made their events of the change."""
        ...

    def renew(self, position: str) -> str:
        """The same place in this server's stream, with what all servers understand as it is now."""
        ...


class RepeatFilter(Protocol):
    """What a reader has seen at another server, and this one has not shown yet. Asked while an event is published."""

    @property
    def is_over(self) -> bool:
        """Whether this server has shown all of it."""
        ...

    def bind(self, drop: Callable[[], object]) -> None:
        """Break the reader's connection off with `drop` if it must come again."""
        ...

    def is_repeat(self) -> bool:
        """Whether the reader has seen the event, after `Positions.next`. If not, it gets it."""
        ...

    def position(self, position: str) -> str:
        """A position of this server's stream, with what the reader has seen elsewhere."""
        ...

    def close(self) -> None:
        """The reader is gone. May be called again."""
        ...


def local_part(position: str) -> str:
    """The part of a position that only its server understands."""
    return position.partition(SEPARATOR)[0]
