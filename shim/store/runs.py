"""Pieces of one text that were said together, as one row of the journal, and back. Pure.

    piece, piece, ... piece of one part  ->  one row of the table `event`, from `first` to `sequence`

An agent that writes fast says dozens of pieces in one read. As one row they cost less than half (docs/adr/0024). Each piece keeps
its id, its time, its text and its raw payload, so a reader gets the same events as if each had a row.

A run has the columns of its last piece. `body` has what all pieces share, and `[event_id, time, delta]` of each. `raw` is the
array of their raw payloads, or None if no piece has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic_core import from_json

from shim.lib.errors import StoreError
from shim.store.rows import RAW_LIMIT_BYTES, EventRow, event_rows
from universal.events import ItemDeltaData, UniversalEvent
from universal.lib.jsonline import encode

SHORTEST = 4
"""Minimum pieces of a run."""
LONGEST = 256
"""Maximum pieces of a run, since a reader of one of them reads them all."""
JOINED = ("text", "reasoning")
"""Kinds of parts whose pieces may be joined. Pieces of a tool's output are changes of their own."""


def journal_rows(events: Iterable[UniversalEvent]) -> list[EventRow]:
    """Events as rows, runs of pieces joined. Raises StoreError if a payload is not JSON."""
    rows: list[EventRow] = []
    for run in _runs(events):
        joined = _join(run) if len(run) >= SHORTEST else None
        rows += event_rows(run) if joined is None else (joined,)
    return rows


def _runs(events: Iterable[UniversalEvent]) -> Iterator[list[UniversalEvent]]:
    """Adjacent events that one row can hold: pieces of one part, in one list; any other event alone."""
    run: list[UniversalEvent] = []
    before: Any = None
    for event in events:
        data = event.data
        if type(data) is not ItemDeltaData:
            data = None
        elif (
            before is not None
            and data.item_id == before.item_id
            and data.part_index == before.part_index
            and data.part_type == before.part_type
            and data.native_item_id == before.native_item_id
            and event.session_id == run[0].session_id
            and event.native_session_id == run[0].native_session_id
            and event.source is run[0].source
            and event.synthetic is run[0].synthetic
            and len(run) < LONGEST
        ):
            run.append(event)
            continue
        if run:
            yield run
        run, before = [event], data
    if run:
        yield run


def _join(run: Sequence[UniversalEvent]) -> EventRow | None:
    """The row of a run, or None if its pieces have to stand alone: a lone surrogate, or too much of raw payloads."""
    first, last = run[0], run[-1]
    shared = {
        "native_session_id": first.native_session_id,
        "synthetic": first.synthetic,
        "data": {**first.data.__dict__, "delta": ""},
        "pieces": [(event.event_id, event.time, event.data.__dict__["delta"]) for event in run],
    }
    raws = [event.raw for event in run]
    try:
        body = encode(shared).decode()
        raw = None if raws.count(None) == len(raws) else encode(raws).decode()
    except (TypeError, ValueError):
        return None
    if raw is not None and len(raw) > RAW_LIMIT_BYTES:
        return None
    return EventRow(
        last.session_id, last.sequence, last.event_id, last.time, last.type.value, last.source.value, body, raw, first.sequence
    )


def rows_of(row: EventRow) -> list[EventRow]:
    """The rows of the events that a row holds. Raises StoreError if it is damaged."""
    if row.first is None:
        return [row]
    try:
        shared, data, pieces = _parse(row)
        raws = [None] * len(pieces) if row.raw is None else [None if raw is None else _text(raw) for raw in from_json(row.raw)]
        return [
            _event_row(row, sequence, shared, {**data, "delta": delta}, event_id, time, raw)
            for sequence, (event_id, time, delta), raw in zip(range(row.first, row.sequence + 1), pieces, raws, strict=True)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise _damage(row, error) from error


def brief_rows_of(row: EventRow, after: int) -> list[EventRow]:
    """The rows behind the event `after` for a reader that needs only the whole text: of a run, the first piece and the rest.

    The first stands alone, since its time may be that of the part. They have no raw payload. Raises StoreError if it is damaged.
    """
    if row.first is None:
        return [row]
    try:
        shared, data, pieces = _parse(row)
        if data["part_type"] not in JOINED:
            return [one for one in rows_of(row._replace(raw=None)) if one.sequence > after]
        at = max(row.first, after + 1)
        (event_id, time, delta), *rest = pieces[at - row.first :]
        rows = [_event_row(row, at, shared, {**data, "delta": delta}, event_id, time, None)]
        if rest:
            text = "".join([piece[2] for piece in rest])
            rows.append(_event_row(row, row.sequence, shared, {**data, "delta": text}, row.event_id, row.time, None))
    except (KeyError, TypeError, ValueError) as error:
        raise _damage(row, error) from error
    return rows


def _parse(row: EventRow) -> tuple[dict[str, Any], dict[str, Any], list[list[str]]]:
    """What the pieces share: the envelope and the data. And the pieces."""
    body = from_json(row.body)
    data, pieces = body.pop("data"), body.pop("pieces")
    return body, data, pieces


def _event_row(
    row: EventRow, sequence: int, shared: dict[str, Any], data: dict[str, Any], event_id: str, time: str, raw: str | None
) -> EventRow:
    return EventRow(row.session_id, sequence, event_id, time, row.type, row.source, _text({**shared, "data": data}), raw)


def _text(value: Any) -> str:
    return encode(value).decode()


def _damage(row: EventRow, error: Exception) -> StoreError:
    return StoreError(
        f"The stored events {row.first} to {row.sequence} of session {row.session_id} cannot be read: {error}. "
        "Restore the data directory from a backup."
    )
