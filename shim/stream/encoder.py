"""What a face gives the hub: events that say whom they concern, and an encoder for each of its wires."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from shim.stream.frame import Frame

if TYPE_CHECKING:
    from shim.ids import Ids


class StreamEvent(Protocol):
    """An event of a face, as far as the hub reads it."""

    @property
    def face(self) -> str:
        """The face whose readers get it."""
        ...

    @property
    def scope(self) -> str | None:
        """The directory whose readers get it, normalised; None: all readers."""
        ...

    @property
    def subject(self) -> tuple[str, str] | None:
        """The request that it is about: a replay that has it makes its repetition in the greeting superfluous."""
        ...

    @property
    def event_id(self) -> str | None:
        """Its own id, which a reader may name as its position; None: the id is given with the position."""
        ...


EventT_contra = TypeVar("EventT_contra", contravariant=True)


class Encoder(Protocol[EventT_contra]):
    """One wire of a face. Equal encoders have the same readers' bytes."""

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
        """Whether pieces of text that go out together are joined: for clients to which each costs a redraw."""
        ...

    @property
    def heartbeat_s(self) -> float:
        """Seconds between heartbeats, as native sends them."""
        ...

    def encode(self, event: EventT_contra, event_id: str, position: str) -> Frame | None:
        """The frame of an event, None if this wire has no such event. Called while the event is published.

        In: `event_id`, for events without an id of their own. A frame for one reader alone names the `position` of the last
        event before it that can be replayed.
        """
        ...

    def layout(self, frame: Frame) -> bytes:
        """A frame's bytes for readers of this wire."""
        ...

    def greeting(self, position: str, ids: Ids) -> list[Frame]:
        """The first frames of a stream: `server.connected`."""
        ...

    def heartbeat(self, position: str, ids: Ids) -> Frame:
        """A heartbeat for one reader."""
        ...
