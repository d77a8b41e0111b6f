"""What all stores share: JSON text, events as rows, and the rule that a journal has no holes. Pure.

JSON here is what Python's `json` reads: lone surrogates, NaN and integers of any size survive, as agents
do send them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from shim.errors import StoreError
from universal.events import UniversalEvent

COLUMNS = ("session_id", "sequence", "event_id", "time", "type", "source")
"""Fields of an event that have a column of their own; `raw` has one too, and the rest is the `body`."""

RAW_LIMIT_BYTES = 2**20
"""Of what an agent said, beside an event, so much is kept. The event itself has all that is shown."""
RAW_HEAD = 4096
"""Characters of one that is longer that are kept, to say what it was."""

NOT_IN_BODY = {"raw", *COLUMNS}


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


def _dump_raw(value: Any, what: str) -> str:
    """The same for what codecs read: four times as fast, and no agent's JSON has sets or bytes, which this would take."""
    try:
        return to_json(value, inf_nan_mode="constants").decode()
    except (PydanticSerializationError, ValueError):  # a lone surrogate, or a loop
        return dump(value, what)


_CUT = f'{{"dropped":"over the limit of {RAW_LIMIT_BYTES} bytes",'


def bounded(text: str) -> str:
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
    what = f"event {event.sequence} of session {event.session_id}"
    try:
        body = event.model_dump_json(by_alias=True, exclude=NOT_IN_BODY)
    except ValueError:  # a lone surrogate
        body = dump(event.model_dump(by_alias=True, exclude=NOT_IN_BODY), what)
    return EventRow(
        event.session_id,
        event.sequence,
        event.event_id,
        event.time,
        event.type.value,
        event.source.value,
        body,
        None if event.raw is None else bounded(_dump_raw(event.raw, what)),
    )


def event_of(row: EventRow) -> UniversalEvent:
    """The inverse of `row_of`. Raises StoreError if the row is damaged, or from another version's schema."""
    what = f"event {row.sequence} of session {row.session_id}"
    raw = None if row.raw is None else load(row.raw, what)
    try:
        return UniversalEvent.model_validate(
            {**load(row.body, what), **dict(zip(COLUMNS, row[: len(COLUMNS)], strict=True)), "raw": raw}
        )
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]  # without the content: this text is logged
        where = ".".join(str(step) for step in fault["loc"]) or "the event"
        raise StoreError(
            f"The stored {what} cannot be read, {where}: {fault['msg']}. Was it written by another version?"
        ) from error


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
