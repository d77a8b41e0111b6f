"""The protocols of a face towards the hub: its events, and an encoder for each form of its stream."""

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
