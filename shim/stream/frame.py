"""One OpenCode event as bytes, for both streams. Pure.

    /event         id:PLACE\\n data: {"id", "type", "properties"}\\n\\n
    /global/event  id:PLACE\\n data: {"directory", "project", "payload": <the same JSON>}\\n\\n

PLACE is where a reader is in the stream (what it sends as Last-Event-ID): the event's id in eight characters, so that with
it a piece of text is no longer than native's, which has no such line. Its clients' parser takes it (seen with 1.1.53 and
@opencode-ai/sdk 1.19.3). For clients of 1.1 and older the JSON has
no `id` and no `project`.
Source: recordings of 1.18.33 and 1.1.53, `docs/wire.md`.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import starmap
from typing import Any, NamedTuple, Protocol, cast

import orjson

from shim.opencode.events import OpenCodeEvent
from universal.growing import Run

ID_LENGTH, PLACE_LENGTH = 16, 8
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Piece(Protocol):
    """The piece of text that a frame adds to a part. Pieces with the same `key` can be joined."""

    @property
    def key(self) -> tuple[str, ...]:
        """What it is a piece of."""
        ...

    @property
    def text(self) -> str:
        """The piece."""
        ...

    def frame(self, text: str, position: str) -> Frame:
        """Another piece of the same, at another place."""
        ...


class Delta(NamedTuple):
    """A piece of a part of the 1.x wire.

    Not the event itself: its `legacy` would keep the conversation alive, which may be deleted, for as long as the ring has this.
    """

    type: str
    properties: dict[str, Any]
    directory: str | None
    project: str | None
    urgent: bool
    legacy: bool

    @property
    def key(self) -> tuple[str, ...]:
        """As `Piece`. Asked for only when a reader lags."""
        if self.type == "message.part.delta":
            return ("field", str(self.properties.get("partID")), str(self.properties.get("field")))
        part = self.properties.get("part")
        return ("part", str(cast("Mapping[str, Any]", part).get("id") if isinstance(part, Mapping) else None))

    @property
    def text(self) -> str:
        """As `Piece`."""
        return str(self.properties["delta"])

    def frame(self, text: str, position: str) -> Frame:
        """As `Piece`."""
        event = OpenCodeEvent(self.type, {**self.properties, "delta": text}, self.directory, self.project, self.urgent)
        return encode(event, position, legacy=self.legacy)


class Frame(NamedTuple):
    """One event, encoded.

    id       the event whose place its `id:` line tells
    plain    for `/event`, and for `/api/event`
    wrapped  for `/global/event`
    urgent   to be sent at once
    delta    set for a piece of text
    twin     a lasting event told again as `sync`, to stand behind `wrapped`; it has no `id:` line
    oldest   for `/event` of clients of 1.0, if it is not `plain`
    """

    id: str
    plain: bytes
    wrapped: bytes
    urgent: bool
    delta: Piece | None = None
    twin: bytes = b""
    oldest: bytes = b""

    @property
    def size(self) -> int:
        """Bytes, in all forms."""
        return len(self.plain) + len(self.wrapped) + len(self.twin) + len(self.oldest)


def encode(
    event: OpenCodeEvent,
    id_: str,
    *,
    position: str | None = None,
    legacy: bool = False,
    twin: bool = False,
    oldest: OpenCodeEvent | None = None,
) -> Frame:
    """The frame of one event.

    In: `id_`, the event's own id; `position`, the event whose place the `id:` line tells if it is another one: frames that
    only one reader gets (`server.connected`, a heartbeat) tell that of the last frame before them that can be replayed.
    `oldest`, the event for clients of 1.0, if it is another one.
    Raises: nothing; text without UTF-8 has U+FFFD for it, what is not JSON is its `str`.
    """
    kind, properties = event.type, event.properties
    body = to_json({"type": kind, "properties": properties} if legacy else {"id": id_, "type": kind, "properties": properties})
    position = position or id_
    head = b"id:%b\ndata: " % _place(position)
    return Frame(
        position,
        b"%b%b\n\n" % (head, body),
        b'%b{%b"payload":%b}\n\n' % (head, _envelope(event.directory, None if legacy else event.project), body),
        event.urgent,
        _delta(event, legacy=legacy),
        _twin(event, id_) if twin else b"",
        b"" if oldest is None else head + to_json({"type": oldest.type, "properties": oldest.properties}) + b"\n\n",
    )


def _twin(event: OpenCodeEvent, id_: str) -> bytes:
    """The `sync` twin of a lasting event, empty for others. Source: `/global/event` of 1.18.33; 1.14 is the first with it."""
    if event.sync is None:
        return b""
    told = {"type": f"{event.type}.1", "id": event.sync.id, "seq": event.sync.seq, "aggregateID": event.sync.session_id}
    payload = to_json({"type": "sync", "id": id_, "syncEvent": {**told, "data": event.properties}})
    return b"data: {" + _envelope(event.directory, event.project) + b'"payload":' + payload + b"}\n\n"


def place(id_: str) -> str:
    """What an `id:` line says for an event: the six bytes of its id in URL-safe base 64; an id of another form as it is."""
    return _place(id_).decode()


def _place(id_: str) -> bytes:
    try:
        if len(id_) == ID_LENGTH:
            return b2a_base64(bytes.fromhex(id_[4:]), newline=False).translate(_URL_SAFE)
    except ValueError:
        pass
    return id_.encode()


def event_at(said: str) -> str:
    """The inverse of `place`, for what a client says as its Last-Event-ID; an event's id is taken as well."""
    try:
        return "evt_" + b64decode(said, b"-_", validate=True).hex() if len(said) == PLACE_LENGTH else said
    except ValueError:
        return said


def normal(directory: str) -> str:
    """A directory as events and readers are compared by: without a slash at its end."""
    return directory.rstrip("/") or directory[:1]


def compact(frames: Iterable[Frame]) -> list[Frame]:
    """The same stream with fewer frames: pieces of text of one part, with only pieces of text between them, are joined.

    Out: what is not a piece of text keeps its place and order; the joined text of each part is the same between any two
    of them; ids ascend, and each is the id of its last piece.
    """
    out: list[Frame] = []
    run: Run[Frame] = Run()
    for frame in frames:
        if frame.delta is None:
            out += starmap(_joined, run.take())
            out.append(frame)
        else:
            run.add(frame.delta.key, frame.delta.text, frame)
    out += starmap(_joined, run.take())
    return out


def _joined(last: Frame, text: str) -> Frame:
    """One frame for pieces of one part: the last one, with the text of all."""
    assert last.delta is not None
    return last if last.delta.text == text else last.delta.frame(text, last.id)


def _delta(event: OpenCodeEvent, *, legacy: bool) -> Delta | None:
    """What a frame adds to which part: `message.part.delta`, and in 1.1 `message.part.updated` with `delta`."""
    if event.type not in ("message.part.delta", "message.part.updated") or not isinstance(event.properties.get("delta"), str):
        return None
    return Delta(event.type, event.properties, event.directory, event.project, event.urgent, legacy)


@lru_cache(maxsize=256)
def _envelope(directory: str | None, project: str | None) -> bytes:
    """What stands before the payload on `/global/event`; nothing for events of the whole server."""
    if directory is None:
        return b""
    head = b'"directory":' + to_json(normal(directory)) + b","
    return head if project is None else head + b'"project":' + to_json(project) + b","


def to_json(value: Any) -> bytes:
    """JSON, by orjson; by the standard library for what orjson does not take (lone surrogates, integers over 64 bits)."""
    try:
        return orjson.dumps(value)
    except TypeError:  # orjson.JSONEncodeError is one
        return json.dumps(_clean(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _clean(value: Any) -> Any:
    """`value` with UTF-8 text only, and nothing that is not JSON."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_clean(str(key)): _clean(inner) for key, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in cast("Sequence[Any]", value)]
    return _clean(str(value))
