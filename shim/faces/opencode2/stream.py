"""How OpenCode 2's event stream `/api/event` looks, in each dialect. Pure.

One stream carries all directories. Frames have an `id:` line, which native lacks: the position to ask for what follows, by
`Last-Event-ID` or `?after=`; the event's own id is taken as well. Heartbeats are comments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shim.faces.opencode2.dialects import DIALECTS, Dialect
from shim.faces.opencode2.events import FACE, Event
from shim.stream.frame import Frame, encode_position, to_json

if TYPE_CHECKING:
    from shim.ids import Ids

KEEP_S = 60.0
"""Seconds that events are made after the last reader left, so that it can come back."""
READER_FRAMES = 4096
"""Events that may wait for a reader, as native."""
HEARTBEAT_S = 15.0
"""As native."""
HEARTBEAT = b": heartbeat\n\n"
URGENT = frozenset(
    {
        *("session.execution.started", "session.execution.succeeded", "session.execution.failed"),
        *("session.execution.interrupted", "permission.asked", "permission.replied", "form.created"),
        *("form.replied", "form.cancelled", "session.inbox.enqueued", "session.status", "session.idle"),
    }
)
"""Sent at once, without waiting for more."""


@dataclass(frozen=True, slots=True, eq=False)
class DialectEncoder:
    """The encoder of one dialect."""

    dialect: Dialect

    @property
    def face(self) -> str:
        """As `Encoder.face`."""
        return FACE

    @property
    def generation(self) -> str:
        """As `Encoder.generation`."""
        return self.dialect.name

    @property
    def joins(self) -> bool:
        """As `Encoder.joins`."""
        return self.dialect.joins

    @property
    def heartbeat_s(self) -> float:
        """As `Encoder.heartbeat_s`."""
        return HEARTBEAT_S

    def encode(self, event: Event, event_id: str, position: str) -> Frame | None:
        """As `Encoder.encode`. Events have ids of their own."""
        translated = self.dialect.event(event)
        return None if translated is None else event_frame(translated, position)

    def layout(self, frame: Frame) -> bytes:
        """As `Encoder.layout`."""
        return b"id: %b\ndata: %b\n\n" % (encode_position(frame.position), frame.body) if frame.body else HEARTBEAT

    def greeting(self, position: str, ids: Ids) -> list[Frame]:
        """As `Encoder.greeting`: the event and a heartbeat."""
        connected = to_json({"id": ids.new("event"), "type": "server.connected", "data": {}})
        return [Frame(position, connected, urgent=True), self.heartbeat(position, ids)]

    def heartbeat(self, position: str, ids: Ids) -> Frame:
        """As `Encoder.heartbeat`: a comment, so a frame without a body."""
        return Frame(position, b"", urgent=True)


ENCODERS: dict[str, DialectEncoder] = {name: DialectEncoder(dialect) for name, dialect in DIALECTS.items()}
"""By the dialect's name."""


def event_frame(event: Event, position: str) -> Frame:
    """The frame of an event that is in its reader's dialect already."""
    return Frame(position, to_json(event.wire()), event.type in URGENT, _piece(event))


@dataclass(frozen=True, slots=True)
class EventPiece:
    """The text that an event adds to a part. `field` is where it stands in the event's data."""

    event: Event
    field: str

    @property
    def key(self) -> tuple[str, ...]:
        """As `TextPiece.key`: all that the event says but the text."""
        return (self.event.type, *(f"{name}={value}" for name, value in self.event.data.items() if name != self.field))

    @property
    def text(self) -> str:
        """As `TextPiece.text`."""
        return str(self.event.data[self.field])

    def frame(self, text: str, position: str) -> Frame:
        """As `TextPiece.frame`."""
        return event_frame(replace(self.event, data={**self.event.data, self.field: text}), position)


def _piece(event: Event) -> EventPiece | None:
    if not event.type.endswith(".delta"):
        return None
    return EventPiece(event, "text" if event.type == "session.compaction.delta" else "delta")
