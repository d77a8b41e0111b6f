"""Renders a session's changes as OpenCode 1 events. Pure and stateless.

`RENDER` is the table: kind of change -> its event. Source: recordings of OpenCode 1.18.33.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from shim.faces.opencode1 import host, read
from shim.faces.opencode1.generations import Generation, event_of_1_0
from shim.faces.opencode1.wire_event import FACE, OpenCodeEvent
from shim.host.changes import HostChanged
from shim.stream.frame import ID_LENGTH, Frame, encode_position, normal_scope
from universal.lib.jsonline import to_json
from universal.lib.jsonvalue import JsonObject, obj
from universal.permissions import REPLIES
from universal.session.changes import (
    Change,
    CommandExecuted,
    DiffsChanged,
    FileEdited,
    MessageChanged,
    MessageRemoved,
    Notice,
    PartChanged,
    PartRemoved,
    PromptFailed,
    RequestClosed,
    RequestOpened,
    SessionChanged,
    SessionCompacted,
    SessionCreated,
    SessionDeleted,
    StatusChanged,
    TextGrew,
    TodosChanged,
    TurnEnded,
)
from universal.session.model import Session
from universal.session.values import PermissionRequest

if TYPE_CHECKING:
    from shim.faces.opencode1._generated import types
    from shim.faces.opencode1._generated.event_types import QuestionRejectedProperties, SessionEvent
    from shim.lib.ids import Ids
    from shim.sessions.feed import SessionChanges


TOAST_MS = 15_000
"""Milliseconds for which a notice is shown."""
URGENT = frozenset({StatusChanged, TurnEnded, PromptFailed, RequestOpened, RequestClosed})
"""Changes that are sent at once instead of batched."""


def render(changes: Sequence[Change], session: Session, at_ms: int) -> list[OpenCodeEvent]:
    """Render the changes that a session just made."""
    record = session.record
    session_id, scope, project = record.id, normal_scope(record.directory), record.project_id
    events: list[OpenCodeEvent] = []
    for change in changes:
        type_ = type(change)
        if isinstance(change, TextGrew):  # nearly always, so without a call
            message_id, part_id, text, _, _ = change
            piece = {"sessionID": session_id, "messageID": message_id, "partID": part_id, "field": "text", "delta": text}
            older = partial(_grown_part, change, session)
            events.append(OpenCodeEvent("message.part.delta", piece, scope, project, False, older))
            continue
        row = RENDER.get(type_)
        if row is None:
            continue
        kind, properties = row(change, session_id)
        older = _no_event if isinstance(change, PartChanged) and change.is_empty else None
        subject = (kind, change.request.id) if isinstance(change, RequestOpened) else None
        events.append(OpenCodeEvent(kind, properties, scope, project, type_ in URGENT, older, subject))
    return events


class _GrownPart(TypedDict):
    """The content of `message.part.updated` in 1.1: the whole part, and the text that it grew by."""

    sessionID: str
    part: types.Part
    delta: str


def _no_event() -> OpenCodeEvent | None:
    """Clients of 1.1 and older get no part that is empty yet."""


def _grown_part(change: TextGrew, session: Session) -> OpenCodeEvent | None:
    message = session.messages.get(change.message_id)
    if message is None or change.part_id not in message.parts:
        return None
    grown = message.part(change.part_id, change.pieces)  # later pieces may have come together with this one
    part = read.part(grown, session.id, change.message_id)
    properties: _GrownPart = {"sessionID": session.id, "part": part, "delta": change.delta}
    return OpenCodeEvent("message.part.updated", properties)


def _diffs(change: DiffsChanged, session_id: str) -> SessionEvent:
    return "session.diff", {"sessionID": session_id, "diff": list(map(read.file_diff, change.diffs))}


def _todos(change: TodosChanged, session_id: str) -> SessionEvent:
    return "todo.updated", {"sessionID": session_id, "todos": list(map(read.todo, change.todos))}


def _command(change: CommandExecuted, session_id: str) -> SessionEvent:
    return "command.executed", {
        "sessionID": session_id,
        "name": change.name,
        "arguments": change.arguments,
        "messageID": change.message_id,
    }


def _notice(change: Notice, session_id: str) -> SessionEvent:
    return "tui.toast.show", {"title": change.title, "message": change.text, "variant": change.level, "duration": TOAST_MS}


def _message(change: MessageChanged, session_id: str) -> SessionEvent:
    return "message.updated", {"sessionID": session_id, "info": read.info(change.info, session_id)}


def _part(change: PartChanged, session_id: str) -> SessionEvent:
    part = read.part(change.part, session_id, change.message_id)
    return "message.part.updated", {"sessionID": session_id, "part": part, "time": change.at_ms}


def _part_removed(change: PartRemoved, session_id: str) -> SessionEvent:
    return "message.part.removed", {"sessionID": session_id, "messageID": change.message_id, "partID": change.part_id}


def _request_opened(change: RequestOpened, session_id: str) -> SessionEvent:
    if isinstance(change.request, PermissionRequest):
        return "permission.asked", read.permission(change.request, session_id)
    return "question.asked", read.question(change.request, session_id)


def request_closed(change: RequestClosed, session_id: str) -> SessionEvent:
    """The event of a request that is open no more."""
    place: QuestionRejectedProperties = {"sessionID": session_id, "requestID": change.request.id}
    if isinstance(change.request, PermissionRequest):
        return "permission.replied", {**place, "reply": REPLIES[change.answer]}
    if change.answer == "answered":
        return "question.replied", {**place, "answers": [list(answer) for answer in change.answers]}
    return "question.rejected", place


RENDER: Mapping[type[Any], Callable[[Any, str], SessionEvent]] = {
    SessionCreated: lambda change, session_id: (
        "session.created",
        {"sessionID": session_id, "info": read.session(change.record)},
    ),
    SessionChanged: lambda change, session_id: (
        "session.updated",
        {"sessionID": session_id, "info": read.session(change.record)},
    ),
    SessionDeleted: lambda change, session_id: (
        "session.deleted",
        {"sessionID": session_id, "info": read.session(change.record)},
    ),
    StatusChanged: lambda change, session_id: ("session.status", {"sessionID": session_id, "status": read.status(change.status)}),
    TurnEnded: lambda _, session_id: ("session.idle", {"sessionID": session_id}),
    PromptFailed: lambda change, session_id: ("session.error", {"sessionID": session_id, "error": read.failure(change.failure)}),
    DiffsChanged: _diffs,
    TodosChanged: _todos,
    CommandExecuted: _command,
    SessionCompacted: lambda _, session_id: ("session.compacted", {"sessionID": session_id}),
    Notice: _notice,
    FileEdited: lambda change, _: ("file.edited", {"file": change.path}),
    MessageChanged: _message,
    MessageRemoved: lambda change, session_id: ("message.removed", {"sessionID": session_id, "messageID": change.message_id}),
    PartChanged: _part,
    PartRemoved: _part_removed,
    RequestOpened: _request_opened,
    RequestClosed: request_closed,
}
"""`render` itself has the row of `TextGrew`. Other changes without a row (`LogAppended`) have no event in OpenCode 1."""


# --- frames of the stream --------------------------------------------------------------------------------

# Encodes OpenCode 1's event streams `/event` and `/global/event` for each generation of clients. Pure.
#
#     /event         id:POSITION\n data: {"id", "type", "properties"}\n\n
#     /global/event  id:POSITION\n data: {"directory", "project", "payload": <the same JSON>}\n\n
#
# Clients of 1.1 and 1.0 get no `id` and no `project`. Native OpenCode has no `id:` lines, but its clients accept them (tested
# with 1.1.53 and @opencode-ai/sdk 1.19.3). It repeats each lasting event as `sync` on `/global/event`, which no client reads.
# Source: recordings of 1.18.33 and 1.1.53, `docs/wire.md`; docs/adr/0011-event-hub.md.

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
    """

    now_ms: Callable[[], int]
    generation: Generation = "v1.18"
    wrapped: bool = False
    face: str = FACE
    joins: bool = False

    @property
    def heartbeat_s(self) -> float:
        return HEARTBEAT_S if self.generation == "v1.18" else LEGACY_HEARTBEAT_S

    def encode(self, event: OpenCodeEvent, event_id: str, position: str) -> Frame | None:
        """As `Encoder.encode`. Older clients get the event's `legacy` form."""
        if self.generation == "v1.18":
            body = b'{"id":"%b","type":"%b","properties":%b}' % (
                event_id.encode(),
                event.type.encode(),
                to_json(event.properties),
            )
            piece_of = _Piece if event.type == DELTA else None
            return Frame(position, body, event.urgent, piece_of, _envelope(event.scope, event.project))
        legacy = event if event.legacy is None else event.legacy()
        if legacy is None:
            return None
        if self.generation == "v1.0":
            legacy = event_of_1_0(legacy, self.now_ms()) or legacy
        return legacy_frame(legacy, position)

    def layout(self, frame: Frame) -> bytes:
        position, body, _, _, envelope = frame
        id_ = encode_position(position) if len(position) == ID_LENGTH else position.encode()
        if not self.wrapped:
            return b"id:%b\ndata: %b\n\n" % (id_, body)
        return b'id:%b\ndata: {%b"payload":%b}\n\n' % (id_, envelope, body)

    def greeting(self, position: str, ids: Ids) -> list[Frame]:
        return [self._frame(CONNECTED, ids.moment(), position)]

    def heartbeat(self, position: str, ids: Ids) -> Frame:
        return self._frame(HEARTBEAT, ids.moment(), position)

    def _frame(self, event: OpenCodeEvent, event_id: str, position: str) -> Frame:
        frame = self.encode(event, event_id, position) if self.generation == "v1.18" else None
        return frame or legacy_frame(event, position)


def encoder_of(now_ms: Callable[[], int], generation: Generation, *, wrapped: bool) -> EventEncoder:
    """Create the encoder of a client's stream. On `/global/event`, clients of 1.0 get the events of 1.1."""
    if wrapped and generation == "v1.0":
        generation = "v1.1"
    return EventEncoder(now_ms, generation, wrapped)


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
        properties = obj(self.event["properties"])
        if "partID" in properties:
            return ("field", str(properties["partID"]), str(properties.get("field")))
        return ("part", str(obj(properties.get("part")).get("id")))

    @property
    def text(self) -> str:
        return str(self.event["properties"]["delta"])

    def frame(self, text: str) -> Frame:
        properties = {**self.event["properties"], "delta": text}
        return self.source._replace(body=to_json({**self.event, "properties": properties}))


@lru_cache(maxsize=256)
def _envelope(scope: str | None, project: str | None) -> bytes:
    """Return the JSON members before the payload on `/global/event`; empty for events of the whole server."""
    if scope is None:
        return b""
    head = b'"directory":' + to_json(scope) + b","
    return head if project is None else head + b'"project":' + to_json(project) + b","


# --- what the hub knows ----------------------------------------------------------------------------------


def events_of(change: SessionChanges | HostChanged) -> list[OpenCodeEvent]:
    """Render a change as events."""
    if isinstance(change, HostChanged):
        return host.events_of(change)
    return render(change.changes, change.session, change.at_ms)
