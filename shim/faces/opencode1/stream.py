"""Encodes OpenCode 1's event streams `/event` and `/global/event` for each generation of clients. Pure.

    /event         id:POSITION\\n data: {"id", "type", "properties"}\\n\\n
    /global/event  id:POSITION\\n data: {"directory", "project", "payload": <the same JSON>}\\n\\n

Clients of 1.1 and 1.0 get no `id` and no `project`. Since 1.14, `/global/event` repeats each lasting event as `sync`, without
an `id:` line. Native OpenCode has no `id:` lines, but its clients accept them (tested with 1.1.53 and @opencode-ai/sdk 1.19.3).
Source: recordings of 1.18.33 and 1.1.53, `docs/wire.md`; docs/adr/0011-event-hub.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from shim.faces.opencode1.events import FACE, OpenCodeEvent
from shim.faces.opencode1.generations import Generation, event_of_1_0
from shim.stream.frame import Frame, encode_position, to_json
from universal.lib.jsonvalue import JsonObject, obj

if TYPE_CHECKING:
    from shim.lib.ids import Ids

HEARTBEAT_S = 10.0
"""Seconds between heartbeats, as in OpenCode 1.18.33."""
LEGACY_HEARTBEAT_S = 30.0
"""Seconds between heartbeats, as in OpenCode 1.1.53."""
DELTA = "message.part.delta"
"""The event of a piece of text. Clients of 1.1 get `message.part.updated` with a `delta`."""
PIECE_TYPES = (DELTA, "message.part.updated")
CONNECTED = OpenCodeEvent("server.connected", {}, urgent=True)
HEARTBEAT = OpenCodeEvent("server.heartbeat", {}, urgent=True)


@dataclass(frozen=True, slots=True)
class EventEncoder:
    """The encoder of one stream. `encoder_of` creates it for a client.

    now_ms      the clock, for events of 1.0 that contain the time of sending
    generation  the client's generation
    wrapped     put each event into an envelope with its directory, as on `/global/event`
    twins       send a `sync` twin after each lasting event
    """

    now_ms: Callable[[], int]
    generation: Generation = "v1.18"
    wrapped: bool = False
    twins: bool = False
    face: str = FACE
    joins: bool = False

    @property
    def heartbeat_s(self) -> float:
        """As `Encoder.heartbeat_s`."""
        return HEARTBEAT_S if self.generation == "v1.18" else LEGACY_HEARTBEAT_S

    def encode(self, event: OpenCodeEvent, event_id: str, position: str) -> Frame | None:
        """As `Encoder.encode`. Older clients get the event's `legacy` form."""
        if self.generation == "v1.18":
            return modern_frame(event, event_id, position)
        legacy = event if event.legacy is None else event.legacy()
        if legacy is None:
            return None
        if self.generation == "v1.0":
            legacy = event_of_1_0(legacy, self.now_ms()) or legacy
        return legacy_frame(legacy, position)

    def layout(self, frame: Frame) -> bytes:
        """As `Encoder.layout`."""
        position, body, _, _, envelope, twin = frame
        if not self.wrapped:
            return b"id:%b\ndata: %b\n\n" % (encode_position(position), body)
        data = b'id:%b\ndata: {%b"payload":%b}\n\n' % (encode_position(position), envelope, body)
        return data + b'data: {%b"payload":%b}\n\n' % (envelope, twin) if twin and self.twins else data

    def greeting(self, position: str, ids: Ids) -> list[Frame]:
        """As `Encoder.greeting`."""
        return [self._frame(CONNECTED, ids.moment(), position)]

    def heartbeat(self, position: str, ids: Ids) -> Frame:
        """As `Encoder.heartbeat`: an event."""
        return self._frame(HEARTBEAT, ids.moment(), position)

    def _frame(self, event: OpenCodeEvent, event_id: str, position: str) -> Frame:
        return modern_frame(event, event_id, position) if self.generation == "v1.18" else legacy_frame(event, position)


def encoder_of(now_ms: Callable[[], int], generation: Generation, *, wrapped: bool, twins: bool = False) -> EventEncoder:
    """Create the encoder of a client's stream. On `/global/event`, clients of 1.0 get the events of 1.1."""
    if wrapped and generation == "v1.0":
        generation = "v1.1"
    return EventEncoder(now_ms, generation, wrapped, wrapped and twins)


def modern_frame(event: OpenCodeEvent, event_id: str, position: str) -> Frame:
    """Encode an event for clients of 1.2 and later. A lasting event and its `sync` twin share the encoded properties."""
    id_, type_, properties, sync, twin = event_id.encode(), event.type.encode(), to_json(event.properties), event.sync, b""
    body = b'{"id":"%b","type":"%b","properties":%b}' % (id_, type_, properties)
    if sync is not None:
        place = (type_, sync.id.encode(), sync.seq, sync.session_id.encode())
        twin = b'{"type":"sync","id":"%b","syncEvent":{"type":"%b.1","id":"%b","seq":%d,"aggregateID":"%b","data":%b}}' % (
            id_,
            *place,
            properties,
        )
    piece_of = _Piece if event.type == DELTA else None
    return Frame(position, body, event.urgent, piece_of, _envelope(event.scope, event.project), twin)


def legacy_frame(event: OpenCodeEvent, position: str) -> Frame:
    """Encode an event for clients of 1.1 and 1.0."""
    body = to_json({"type": event.type, "properties": event.properties})
    piece_of = _Piece if event.type in PIECE_TYPES and isinstance(event.properties.get("delta"), str) else None
    return Frame(position, body, event.urgent, piece_of, _envelope(event.scope, None))


class _Piece(NamedTuple):
    """The text that a frame adds to a part. `event`: its body."""

    source: Frame
    event: JsonObject

    @property
    def key(self) -> tuple[str, ...]:
        """As `TextPiece.key`."""
        properties = obj(self.event["properties"])
        if "partID" in properties:
            return ("field", str(properties["partID"]), str(properties.get("field")))
        return ("part", str(obj(properties.get("part")).get("id")))

    @property
    def text(self) -> str:
        """As `TextPiece.text`."""
        return str(self.event["properties"]["delta"])

    def frame(self, text: str) -> Frame:
        """As `TextPiece.frame`."""
        properties = {**self.event["properties"], "delta": text}
        return self.source._replace(body=to_json({**self.event, "properties": properties}))


@lru_cache(maxsize=256)
def _envelope(scope: str | None, project: str | None) -> bytes:
    """Return the JSON members before the payload on `/global/event`; empty for events of the whole server."""
    if scope is None:
        return b""
    head = b'"directory":' + to_json(scope) + b","
    return head if project is None else head + b'"project":' + to_json(project) + b","
