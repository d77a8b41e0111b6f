"""Shared by all stores: JSON text, events as rows, and the rule that a journal has no holes. Pure.

JSON is the form that Python's `json` reads: lone surrogates, NaN and integers of any size survive, because agents send them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from shim.lib.errors import StoreError
from universal.events import EVENT_DATA, ItemDeltaData, Source, UniversalEvent
from universal.items import Frozen
from universal.lib.jsonline import encode

COLUMNS = ("session_id", "sequence", "event_id", "time", "type", "source")
"""Fields of an event with a separate column. `raw` has one too, and the rest is the `body`."""

RAW_LIMIT_BYTES = 2**20
"""Maximum bytes of the agent's raw payload stored with an event. The event itself holds everything that is shown."""
RAW_HEAD = 4096
"""Characters kept of a longer raw payload, to identify it."""

NOT_IN_BODY = {"raw", *COLUMNS}
_OPTIONAL = {"by"}
"""Fields of a body that events of nobody in particular do not have, nor those of before 2026-11-29."""
_BODY = frozenset(UniversalEvent.model_fields) - NOT_IN_BODY - _OPTIONAL
_TYPES = {kind.value: (kind, model) for kind, model in EVENT_DATA.items()}
_SOURCES = {source.value: source for source in Source}
_NAMES = {member: member.value for member in (*EVENT_DATA, *Source)}
_NO_JSON = ("NaN", "Infinity")
"""Values that stored texts may hold and JSON on the wire may not."""


class JsonText(Mapping[str, Any]):
    """The JSON of a session's row, decoded when something of it is asked for.

    Raises StoreError then if it is damaged.
    """

    __slots__ = ("_session_id", "_value", "text")

    def __init__(self, text: str, session_id: str) -> None:
        self.text = text
        self._session_id = session_id
        self._value: dict[str, Any] | None = None

    def _decode(self) -> dict[str, Any]:
        if (value := self._value) is None:
            value = self._value = load(self.text, f"session {self._session_id}")
        return value

    def __getitem__(self, key: str) -> Any:
        return self._decode()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decode())

    def __len__(self) -> int:
        return len(self._decode())


class SessionRow(NamedTuple):
    """The row of a session. `data`: JSON with its title, agent and so on. A start makes 100,000 of them (docs/cluster.md)."""

    id: str
    directory: str
    project_id: str
    parent_id: str | None
    created_ms: int
    updated_ms: int
    data: Mapping[str, Any] = MappingProxyType({})


def text_of_data(row: SessionRow) -> str:
    """The JSON text of a row's data. Raises StoreError if it is no JSON."""
    return row.data.text if isinstance(row.data, JsonText) else dump(dict(row.data), f"session {row.id}")


def may_be_busy(row: SessionRow) -> bool:
    """Whether a turn may have run in a session when its row was written. Decodes only what it cannot read otherwise."""
    if isinstance(row.data, JsonText) and '"busy":true' not in row.data.text and '"busy":false' in row.data.text:
        return False
    return bool(row.data.get("busy"))


class EventRow(NamedTuple):
    """The row of one event: `COLUMNS`, then two JSON texts. `raw` is None without a raw payload.

    In the database a row may hold several events (`shim.store.runs`): then `first` is the sequence of the first one.
    """

    session_id: str
    sequence: int
    event_id: str
    time: str
    type: str
    source: str
    body: str
    raw: str | None
    first: int | None = None


class RowPlace(NamedTuple):
    """Which events of a journal a row holds, and the id of the last one."""

    session_id: str
    first: int
    last: int
    event_id: str


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def dump(value: Any, subject: str = "a value") -> str:
    """Encode a value as JSON text that any UTF-8 store takes.

    Raises StoreError that names the `subject`, if it is no JSON.
    """
    try:
        text = _encode(value)
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8 form, only an escape
        return json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"Cannot store {subject}, it is not JSON: {error}. This is a bug of the server.") from error
    return text


_CUT = f'{{"dropped":"over the limit of {RAW_LIMIT_BYTES} bytes",'


def bound_raw(text: str) -> str:
    """The JSON text of a raw payload. One over RAW_LIMIT_BYTES is replaced by an object with its beginning."""
    if len(text) <= RAW_LIMIT_BYTES:
        return text
    return _CUT + dump({"size": len(text), "head": text[:RAW_HEAD]}, "a payload")[1:]


def is_cut(text: str) -> bool:
    """Whether a value replaces a raw payload that was too long."""
    return text.startswith(_CUT)


def load(text: str, subject: str) -> Any:
    """The inverse of `dump`. Raises StoreError that names the `subject`, if the text is damaged."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise StoreError(f"The stored {subject} is damaged: {error}. Restore the data directory from a backup.") from error


def row_of(event: UniversalEvent) -> EventRow:
    """One event as a row, its raw payload bounded. Raises StoreError if its payload is not JSON."""
    return event_rows((event,))[0]


def event_rows(events: Iterable[UniversalEvent]) -> list[EventRow]:
    """Events as rows, as `row_of` makes them, in one loop without further calls for pieces of text.

    The body is the JSON text of all fields except `NOT_IN_BODY`, in the model's order: the model's own output, in half the time.
    In the raw payload of a piece, NaN becomes null.
    """
    rows: list[EventRow] = []
    for event in events:
        data, raw = event.data, event.raw
        is_piece = type(data) is ItemDeltaData  # most events; all its fields are texts and small numbers
        try:
            if is_piece:
                text = encode(data.__dict__).decode()
            else:
                text = data.__pydantic_serializer__.to_json(data, by_alias=True).decode()
            synthetic = "true" if event.synthetic else "false"
            by = "" if event.by is None else f'"by":{_origin_json(event.by)},'
            body = f'{{"native_session_id":{_origin_json(event.native_session_id)},"synthetic":{synthetic},{by}"data":{text}}}'
        except (ValueError, TypeError):  # a lone surrogate
            body = dump(event.model_dump(by_alias=True, exclude=NOT_IN_BODY), _name(event))
        if raw is not None:
            try:  # four times as fast as `dump`. It would accept sets and bytes, which no agent's JSON has
                raw = encode(raw).decode() if is_piece else to_json(raw, inf_nan_mode="constants").decode()
            except (PydanticSerializationError, ValueError, TypeError):  # a lone surrogate, or a cycle
                raw = dump(raw, _name(event))
            if len(raw) > RAW_LIMIT_BYTES:
                raw = bound_raw(raw)
        type_, source = _NAMES[event.type], _NAMES[event.source]
        rows.append(EventRow(event.session_id, event.sequence, event.event_id, event.time, type_, source, body, raw))
    return rows


@lru_cache(maxsize=256)
def _origin_json(native_session_id: str | None) -> str:
    """The origin, or a person's name, as JSON. It is cached, because a session's events share it."""
    return to_json(native_session_id).decode()


def _name(event: UniversalEvent) -> str:
    return f"event {event.sequence} of session {event.session_id}"


def event_of(row: EventRow, *, with_raw: bool = True, body: Any = None) -> UniversalEvent:
    """The inverse of `row_of`. `raw` is None if the row was read without it. `body`: the parsed body, if there is one.

    Only the payload is validated, because `row_of` wrote the envelope. What a later version has added is left out. Raises
    StoreError if the row is damaged, or something is missing.
    """
    body = _load(row.body, row) if body is None else body
    raw = _load(row.raw, row) if with_raw and row.raw is not None else None
    try:
        kind, model = _TYPES[row.type]
        if not body.keys() >= _BODY:
            raise _unreadable(row, f"the event: it has {sorted(body)}, not {sorted(_BODY)}")
        return UniversalEvent.from_fields(
            {
                "event_id": row.event_id,
                "sequence": row.sequence,
                "time": row.time,
                "session_id": row.session_id,
                "native_session_id": body["native_session_id"],
                "source": _SOURCES[row.source],
                "synthetic": body["synthetic"],
                "by": body.get("by"),
                "type": kind,
                "data": _payload(model, body["data"]),
                "raw": raw,
            }
        )
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]  # without the content, because this text is logged
        where = ".".join(("data", *map(str, fault["loc"])))
        raise _unreadable(row, f"{where}: {fault['msg']}") from error
    except (KeyError, AttributeError) as error:
        raise _unreadable(row, f"{error} is unknown") from error


def _payload(model: type[Frozen], data: Any) -> Frozen:
    try:
        return model.__pydantic_validator__.validate_python(data)
    except ValidationError:
        return model.model_validate(data, extra="ignore")


def body_of(row: EventRow) -> Any:
    """The stored body as JSON, without validation. Raises StoreError if it is damaged."""
    return _load(row.body, row)


def wire_of(row: EventRow, session_id: str, *, include_raw: bool) -> bytes | None:
    """The event as JSON, from the stored texts without parsing them. `session_id`: the session's name on the wire.

    None if the texts must be parsed, because agents' values may be NaN or infinite, which JSON does not have.
    """
    raw = row.raw if include_raw and row.raw is not None else "null"
    if any(word in text for text in (row.body, raw) for word in _NO_JSON):
        return None
    return (
        f'{{"event_id":"{row.event_id}","sequence":{row.sequence},"time":"{row.time}","session_id":{json.dumps(session_id)},'
        f'"type":"{row.type}","source":"{row.source}",{row.body[1:-1]},"raw":{raw}}}'
    ).encode()


def _load(text: str, row: EventRow) -> Any:
    try:
        return from_json(text)
    except ValueError:  # a lone surrogate; or to find out which row is damaged
        return load(text, f"event {row.sequence} of session {row.session_id}")


def _unreadable(row: EventRow, why: str) -> StoreError:
    return StoreError(
        f"The stored event {row.sequence} of session {row.session_id} cannot be read, {why}. Was it written by another version?"
    )


def follow(last: Mapping[str, int], events: Iterable[UniversalEvent]) -> dict[str, int]:
    """The new last sequence of each session of `events`. In: `last`, the sequences before (absent: 0).

    Raises StoreError at the first event whose sequence does not follow the last one. A journal has no holes and no doubles, so
    the fault is refused where it is made.
    """
    new: dict[str, int] = {}
    for event in events:
        expected = new.get(event.session_id, last.get(event.session_id, 0)) + 1
        if event.sequence != expected:
            raise StoreError(
                f"The journal of session {event.session_id} goes on with event {expected}, not {event.sequence}. Nothing of this "
                f"call was stored; append the missing events first."
            )
        new[event.session_id] = expected
    return new


def need_whole(sequences: list[int], session_id: str, after: int, limit: int | None, last: int) -> None:
    """Raise StoreError for a hole, because SQLite does not notice if a damaged index returns too few rows.

    In: `sequences`, those that were read after `after`, at most `limit`; `last`, the journal's last sequence before and after
    the read (a session that was deleted meanwhile has none).
    """
    after = max(after, 0)
    missing = next((number for number, sequence in enumerate(sequences, after + 1) if sequence != number), None)
    if missing is None and (limit is None or len(sequences) < limit) and after + len(sequences) < last:
        missing = after + len(sequences) + 1
    if missing is not None:
        raise StoreError(
            f"Event {missing} of session {session_id} is not found. The file of the journal is damaged. Nothing was changed."
            " Restore it from a backup; `sqlite3 FILE .recover` may save what is left."
        )


# --- cells of SQLite -------------------------------------------------------------------------------------------


def bind(cells: Sequence[str | int | None]) -> list[str | bytes | int | None]:
    """Convert cells to SQLite's types."""
    bound: list[str | bytes | int | None] = []
    for cell in cells:
        bound.append(_encodable(cell) if isinstance(cell, str) and not cell.isascii() else cell)
    return bound


def text_of(cell: str | bytes) -> str:
    """The inverse of `bind` for one cell."""
    return cell.decode("utf-8", "surrogatepass") if isinstance(cell, bytes) else cell


def _encodable(text: str) -> str | bytes:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def session_row(cells: Sequence[Any]) -> SessionRow:
    """The row of a session from its cells, with the data last. Sessions share few directories."""
    row: Any = map(text_of, cells) if bytes in map(type, cells) else cells
    id_, directory, project_id, parent_id, created_ms, updated_ms, data = row
    return SessionRow(id_, intern(directory), intern(project_id), parent_id, created_ms, updated_ms, JsonText(data, id_))


class Kin(NamedTuple):
    """What of a session says whether it, and all that is below it, has been idle."""

    id: str
    parent_id: str | None
    updated_ms: int
    is_busy: bool


def idle_families(sessions: Iterable[Kin], before_ms: int) -> list[list[str]]:
    """Families of which none has changed since and none is busy: the id of one without a session above, then of all below it."""
    by_id = {one.id: one for one in sessions}
    below: defaultdict[str, list[Kin]] = defaultdict(list)
    for one in by_id.values():
        if one.parent_id in by_id and one.parent_id != one.id:
            below[one.parent_id].append(one)
    families: list[list[str]] = []
    for top in by_id.values():
        if top.parent_id in by_id and top.parent_id != top.id:
            continue
        family = [top]
        for one in family:  # it grows meanwhile
            family += below[one.id]
        if all(one.updated_ms < before_ms and not one.is_busy for one in family):
            families.append([one.id for one in family])
    return families
