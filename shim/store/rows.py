"""What all stores share: JSON text, events as rows, and the rule that a journal has no holes. Pure.

JSON here is what Python's `json` reads: lone surrogates, NaN and integers of any size survive, as agents
do send them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from shim.errors import StoreError
from universal.events import EVENT_DATA, Source, UniversalEvent

COLUMNS = ("session_id", "sequence", "event_id", "time", "type", "source")
"""Fields of an event that have a column of their own; `raw` has one too, and the rest is the `body`."""

RAW_LIMIT_BYTES = 2**20
"""Of what an agent said, beside an event, so much is kept. The event itself has all that is shown."""
RAW_HEAD = 4096
"""Characters of one that is longer that are kept, to say what it was."""

NOT_IN_BODY = {"raw", *COLUMNS}
_BODY = frozenset(UniversalEvent.model_fields) - NOT_IN_BODY
_TYPES = {kind.value: (kind, model) for kind, model in EVENT_DATA.items()}
_SOURCES = {source.value: source for source in Source}
_NO_JSON = ("NaN", "Infinity")
"""What stored texts may hold and the wire may not."""


class EventRow(NamedTuple):
    """One event as a table has it: `COLUMNS`, then two JSON texts. `raw` is None when the event has none."""

    session_id: str
    sequence: int
    event_id: str
    time: str
    type: str
    source: str
    body: str
    raw: str | None


def dump(value: Any, what: str = "a value") -> str:
    """JSON text that any UTF-8 store takes.

    Raises: StoreError that names `what`, if it is not JSON.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate: has no UTF-8, but an escape
        return json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"Cannot store {what}, it is not JSON: {error}. This is a bug of the server.") from error
    return text


def _dump_raw(event: UniversalEvent) -> str:
    """The same for what codecs read: four times as fast, and no agent's JSON has sets or bytes, which this would take."""
    try:
        return to_json(event.raw, inf_nan_mode="constants").decode()
    except (PydanticSerializationError, ValueError):  # a lone surrogate, or a loop
        return dump(event.raw, _name(event))


_CUT = f'{{"dropped":"over the limit of {RAW_LIMIT_BYTES} bytes",'


def bound_raw(text: str) -> str:
    """A raw payload's JSON text; in the place of one over RAW_LIMIT_BYTES an object that says so, with its beginning."""
    if len(text) <= RAW_LIMIT_BYTES:
        return text
    return _CUT + dump({"size": len(text), "head": text[:RAW_HEAD]}, "a payload")[1:]


def is_cut(text: str) -> bool:
    """Whether it is what stands in the place of a raw payload."""
    return text.startswith(_CUT)


def load(text: str, what: str) -> Any:
    """The inverse of `dump`. Raises StoreError that names `what`, if the text is damaged."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise StoreError(f"The stored {what} is damaged: {error}. Restore the data directory from a backup.") from error


def row_of(event: UniversalEvent) -> EventRow:
    """One event as a row, its raw payload bounded. Raises StoreError if its payload is not JSON."""
    try:
        body = _body(event)
    except ValueError:  # a lone surrogate
        body = dump(event.model_dump(by_alias=True, exclude=NOT_IN_BODY), _name(event))
    return EventRow(
        event.session_id,
        event.sequence,
        event.event_id,
        event.time,
        f"{event.type}",
        f"{event.source}",
        body,
        None if event.raw is None else bound_raw(_dump_raw(event)),
    )


def _body(event: UniversalEvent) -> str:
    """All but `NOT_IN_BODY`, in the order of the model. Raises ValueError for a lone surrogate.

    As the model would write it, in half the time: it looks at each field that is left out.
    """
    data = event.data.__pydantic_serializer__.to_json(event.data, by_alias=True).decode()
    synthetic = "true" if event.synthetic else "false"
    return f'{{"native_session_id":{_origin_json(event.native_session_id)},"synthetic":{synthetic},"data":{data}}}'


@lru_cache(maxsize=256)
def _origin_json(native_session_id: str | None) -> str:
    """As JSON; kept, since a session's events share it."""
    return to_json(native_session_id).decode()


def _name(event: UniversalEvent) -> str:
    return f"event {event.sequence} of session {event.session_id}"


def event_of(row: EventRow, *, with_raw: bool = True, body: Any = None) -> UniversalEvent:
    """The inverse of `row_of`; without its raw payload, for who needs none, `raw` is None. `body` is its body, if that was read.

    Only the payload is held against its model: the envelope is what `row_of` wrote. Raises StoreError if the row is damaged, or
    from another version's schema.
    """
    body = _load(row.body, row) if body is None else body
    raw = _load(row.raw, row) if with_raw and row.raw is not None else None
    try:
        kind, model = _TYPES[row.type]
        if body.keys() != _BODY:
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
                "type": kind,
                "data": model.__pydantic_validator__.validate_python(body["data"]),
                "raw": raw,
            }
        )
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]  # without the content: this text is logged
        where = ".".join(("data", *map(str, fault["loc"])))
        raise _unreadable(row, f"{where}: {fault['msg']}") from error
    except (KeyError, AttributeError) as error:
        raise _unreadable(row, f"{error} is unknown") from error


def body_of(row: EventRow) -> Any:
    """The stored body as JSON, held against nothing. Raises StoreError if it is damaged."""
    return _load(row.body, row)


def wire_of(row: EventRow, session_id: str, *, include_raw: bool) -> bytes | None:
    """The event as JSON, put together from the stored texts, which are not read again; `session_id` is what it is called there.

    None if it must be read: JSON has no NaN and no infinity, what agents send has.
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
    except ValueError:  # a lone surrogate, which it does not take; or to say which one is damaged
        return load(text, f"event {row.sequence} of session {row.session_id}")


def _unreadable(row: EventRow, why: str) -> StoreError:
    return StoreError(
        f"The stored event {row.sequence} of session {row.session_id} cannot be read, {why}. Was it written by another version?"
    )


def follow(last: Mapping[str, int], events: Iterable[UniversalEvent]) -> dict[str, int]:
    """The new last sequence of each session that `events` belong to, given the `last` ones (absent: 0).

    Raises: StoreError at the first event whose sequence is not the one after the last: a journal has no holes and no
    doubles, so the fault is refused where it is made and not found when the journal is read.
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


def need_whole(found: list[int], session_id: str, after: int, limit: int | None, last: int) -> None:
    """Raises StoreError for a hole: an index that is damaged gives less than there is, and SQLite does not notice.

    In: `found`, the sequences that were read after `after`, at most `limit`; `last`, the journal's last one, as far as it was
    there before and after the reading (who was deleted meanwhile has none).
    """
    after = max(after, 0)
    missing = next((wanted for wanted, one in enumerate(found, after + 1) if one != wanted), None)
    if missing is None and (limit is None or len(found) < limit) and after + len(found) < last:
        missing = after + len(found) + 1
    if missing is not None:
        raise StoreError(
            f"Event {missing} of session {session_id} is not found. The file of the journal is damaged. Nothing was changed."
            " Restore it from a backup; `sqlite3 FILE .recover` may save what is left."
        )
