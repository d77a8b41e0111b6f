"""The protocols of a face towards the hub: its events, and an encoder for each form of its stream; and the positions of events
in a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from shim.stream.frame import Frame

if TYPE_CHECKING:
    from shim.lib.ids import Ids


class StreamEvent(Protocol):
    """An event of a face, with the fields that the hub reads."""

    @property
    def face(self) -> str:
        """The face whose readers get the event."""
        ...

    @property
    def scope(self) -> str | None:
        """The normalised directory whose readers get the event; None: all readers."""
        ...

    @property
    def subject(self) -> tuple[str, str] | None:
        """The request that the event is about. If the replay has the event, the greeting does not repeat the request."""
        ...

    @property
    def session_id(self) -> str | None:
        """The session that the event is of, or None."""
        ...

    @property
    def event_id(self) -> str | None:
        """The event's own id, which a reader may send as its position. None: the hub makes it from the position."""
        ...


EventT_contra = TypeVar("EventT_contra", contravariant=True)


class Encoder(Protocol[EventT_contra]):
    """The encoder of one form of a face's stream. Readers with equal encoders get the same bytes."""

    @property
    def face(self) -> str:
        """The face whose events it encodes."""
        ...

    @property
    def generation(self) -> str:
        """The form of its events. Encoders of one generation share their frames and differ in `layout` alone."""
        ...

    @property
    def joins(self) -> bool:
        """Whether pieces of text that are sent together are joined, for clients that redraw with each piece."""
        ...

    @property
    def heartbeat_s(self) -> float:
        """Seconds between heartbeats, as in OpenCode."""
        ...

    def encode(self, event: EventT_contra, event_id: str, position: str) -> Frame | None:
        """Encode an event. None if this stream has no such event. Called while the event is published.

        In: `event_id`, for events without an id of their own. A frame for one reader alone names the `position` of the last
        event before it that can be replayed.
        """
        ...

    def layout(self, frame: Frame) -> bytes:
        """The bytes of a frame for the readers of this encoder."""
        ...

    def greeting(self, position: str, ids: Ids) -> list[Frame]:
        """The first frames of a stream: `server.connected`."""
        ...

    def heartbeat(self, position: str, ids: Ids) -> Frame:
        """A heartbeat for one reader."""
        ...


class PersonEncoder:
    """The encoder of a person's stream without the events of sessions that they do not see.

    In: `name`, of the person; `sees`, whether they see a session that there is.
    """

    def __init__(self, encoder: Encoder[Any], name: str, sees: Callable[[str], bool]) -> None:
        self._encoder = encoder
        self._sees = sees
        self._seen: set[str] = set()
        """Sessions of which they got events, since nobody owns one that is deleted."""
        self.face, self.joins, self.heartbeat_s = encoder.face, encoder.joins, encoder.heartbeat_s
        self.generation = f"{encoder.generation} for {name}"
        self.layout, self.greeting, self.heartbeat = encoder.layout, encoder.greeting, encoder.heartbeat

    def encode(self, event: Any, event_id: str, position: str) -> Frame | None:
        """As `Encoder.encode`. None for an event of another's session."""
        session_id: str | None = event.session_id
        if session_id is not None and session_id not in self._seen:
            if not self._sees(session_id):
                return None
            self._seen.add(session_id)
        return self._encoder.encode(event, event_id, position)


# --- positions in a cluster ---------------------------------------------------------------------------------------

# Where a client may go on at another server.

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
