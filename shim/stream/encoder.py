"""The protocols of a face towards the hub: its events, and an encoder for each form of its stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

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
