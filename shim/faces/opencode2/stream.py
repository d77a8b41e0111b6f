"""Encodes OpenCode 2's event stream `/api/event` in each dialect. Pure.

One stream carries all directories. Frames have an `id:` line, which OpenCode lacks: the position from which a client goes on with
`Last-Event-ID` or `?after=`, which also accept an event's id. Heartbeats are comments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from shim.faces.opencode2.dialects import DIALECTS, Dialect
from shim.faces.opencode2.wire_event import FACE, Event
from shim.stream.frame import Frame, encode_position
from universal.lib.jsonline import to_json
from universal.lib.jsonvalue import JsonObject, obj

if TYPE_CHECKING:
    from shim.lib.ids import Ids

KEEP_S = 60.0
"""Seconds for which events are still made after the last reader has left, so that it can come back."""
READER_FRAMES = 4096
"""Maximum events that wait for a reader, as in OpenCode."""
HEARTBEAT_S = 15.0
"""Seconds between heartbeats, as in OpenCode."""
HEARTBEAT = b": heartbeat\n\n"
URGENT = frozenset(
    {
        *("session.execution.started", "session.execution.succeeded", "session.execution.failed"),
        *("session.execution.interrupted", "permission.asked", "permission.replied", "form.created"),
        *("form.replied", "form.cancelled", "session.inbox.enqueued", "session.status", "session.idle"),
    }
)
"""Types of events that are sent at once, and not held back for a burst."""


@dataclass(frozen=True, slots=True, eq=False)
class DialectEncoder:
    """The encoder of one dialect."""

    dialect: Dialect

    @property
    def face(self) -> str:
        return FACE

    @property
    def generation(self) -> str:
        return self.dialect.name

    @property
    def joins(self) -> bool:
        return False

    @property
    def heartbeat_s(self) -> float:
        return HEARTBEAT_S

    def encode(self, event: Event, event_id: str, position: str) -> Frame | None:
        translated = self.dialect.event(event)
        return None if translated is None else event_frame(translated, position)

    def layout(self, frame: Frame) -> bytes:
        return b"id: %b\ndata: %b\n\n" % (encode_position(frame.position), frame.body) if frame.body else HEARTBEAT

    def greeting(self, position: str, ids: Ids) -> list[Frame]:
        connected = to_json({"id": ids.new("event"), "type": "server.connected", "data": {}})
        return [Frame(position, connected, urgent=True), self.heartbeat(position, ids)]

    def heartbeat(self, position: str, ids: Ids) -> Frame:
        """As `Encoder.heartbeat`: a comment, so a frame without a body."""
        return Frame(position, b"", urgent=True)


ENCODERS: dict[str, DialectEncoder] = {name: DialectEncoder(dialect) for name, dialect in DIALECTS.items()}
"""Name of the dialect -> its encoder."""


def event_frame(event: Event, position: str) -> Frame:
    """The frame of an event that was converted to its reader's dialect."""
    return Frame(position, to_json(event.wire()), event.type in URGENT, _Piece if event.type.endswith(".delta") else None)


class _Piece(NamedTuple):
    """The text that a frame adds to a part. `event`: its body."""

    source: Frame
    event: JsonObject

    @property
    def field(self) -> str:
        """The key of the text in the event's data."""
        return "text" if self.event["type"] == "session.compaction.delta" else "delta"

    @property
    def key(self) -> tuple[str, ...]:
        """As `TextPiece.key`: all that the event says but the text."""
        data = obj(self.event["data"])
        return (self.event["type"], *(f"{name}={value}" for name, value in data.items() if name != self.field))

    @property
    def text(self) -> str:
        return str(self.event["data"][self.field])

    def frame(self, text: str) -> Frame:
        return self.source._replace(body=to_json({**self.event, "data": {**self.event["data"], self.field: text}}))
