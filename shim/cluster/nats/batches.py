"""Messages of a journal: a batch of events, or the claim of a new owner, as lines of text. Pure.

    {"by": SERVER, "epoch": 2, "first": 5, "last": 6, "part": [0, 1]}     the envelope
    ["evt_5", 5, TIME, TYPE, SOURCE]                                      an event: its columns,
    {"data": ...}                                                         its body,
                                                                          its raw payload, or an empty line

A claim has an envelope alone: `first` is `last` + 1. An event that is larger than a message is cut into parts, in messages that
follow each other. Parts without their last one belong to a server that died; they are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shim.lib.errors import StoreError
from shim.store.rows import EventRow

ENVELOPE_BYTES = 512
"""Maximum bytes of an envelope."""
BATCH_EVENTS = 256
"""Maximum events of one message."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """Who wrote a message, as owner of which epoch, and which events are in it.

    In: `part`, its number, and `parts`, their number, of an event that is larger than a message.
    """

    by: str
    epoch: int
    first: int
    last: int
    part: int = 0
    parts: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether all events of the message have been stored with it."""
        return self.part == self.parts - 1

    @property
    def stored_last(self) -> int:
        """The last event that is complete with this message."""
        return self.last if self.is_whole else self.first - 1


@dataclass(frozen=True, slots=True)
class Events:
    """Encoded events of one session to append. `first`: the sequence of the first one."""

    first: int
    encoded: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A message to append."""

    envelope: Envelope
    payload: bytes


def encode_event(row: EventRow) -> bytes:
    """An event as three lines."""
    columns = json.dumps(row[1:6], separators=(",", ":"))
    return f"{columns}\n{row.body}\n{row.raw or ''}".encode()


def batches(by: str, epoch: int, first: int, events: Sequence[bytes], limit: int) -> Iterator[Batch]:
    """Pack encoded events into messages of at most `limit` bytes, in order. In: `first`, the sequence of the first event."""
    room = limit - ENVELOPE_BYTES
    held: list[bytes] = []
    size = 0
    for sequence, event in enumerate(events, first):
        if held and (size + len(event) >= room or len(held) >= BATCH_EVENTS):
            yield _batch(Envelope(by, epoch, sequence - len(held), sequence - 1), held)
            held, size = [], 0
        if len(event) >= room:
            pieces = [event[at : at + room] for at in range(0, len(event), room)]
            for number, piece in enumerate(pieces):
                yield _batch(Envelope(by, epoch, sequence, sequence, number, len(pieces)), [piece])
        else:
            held.append(event)
            size += len(event) + 1
    if held:
        last = first + len(events) - 1
        yield _batch(Envelope(by, epoch, last - len(held) + 1, last), held)


def claim(by: str, epoch: int, last: int) -> Batch:
    """The message by which a new owner refuses later appends of the owner before. In: `last`, the journal's last event."""
    return _batch(Envelope(by, epoch, last + 1, last), [])


def _batch(envelope: Envelope, events: Iterable[bytes]) -> Batch:
    value = {
        "by": envelope.by,
        "epoch": envelope.epoch,
        "first": envelope.first,
        "last": envelope.last,
        "part": [envelope.part, envelope.parts],
    }
    return Batch(envelope, b"\n".join([json.dumps(value, separators=(",", ":")).encode(), *events]))


def envelope_of(payload: bytes) -> Envelope:
    """The envelope of a message. Raises StoreError if it is damaged."""
    try:
        value = json.loads(payload.partition(b"\n")[0])
        part, parts = value["part"]
        return Envelope(str(value["by"]), int(value["epoch"]), int(value["first"]), int(value["last"]), int(part), int(parts))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"A message of a journal cannot be read: {error}. Was it written by another version?") from error


class Reader:
    """Reads the messages of one journal, in order."""

    def __init__(self, session_id: str, *, with_raw: bool) -> None:
        self._session_id = session_id
        self._with_raw = with_raw
        self._parts: list[bytes] = []

    def rows(self, payload: bytes, after: int) -> list[EventRow]:
        """The events of the next message with a sequence > `after`. Raises StoreError if it is damaged."""
        envelope = envelope_of(payload)
        if envelope.part != len(self._parts):
            self._parts.clear()  # their writer died before the last one
        if envelope.last < envelope.first or envelope.part > len(self._parts):
            return []
        content = payload.partition(b"\n")[2]
        if not envelope.is_whole:
            self._parts.append(content)
            return []
        if self._parts:
            content = b"".join((*self._parts, content))
            self._parts.clear()
        return list(self._events(envelope, content, after))

    def _events(self, envelope: Envelope, content: bytes, after: int) -> Iterator[EventRow]:
        if envelope.last <= after:
            return
        lines = content.split(b"\n")
        try:
            for at in range(3 * max(0, after + 1 - envelope.first), len(lines), 3):
                sequence, event_id, time, type_, source, *_ = json.loads(lines[at])
                raw = lines[at + 2].decode() if self._with_raw and lines[at + 2] else None
                yield EventRow(self._session_id, sequence, event_id, time, type_, source, lines[at + 1].decode(), raw)
        except (ValueError, TypeError, IndexError) as error:
            raise StoreError(
                f"Events {envelope.first} to {envelope.last} of session {self._session_id} cannot be read: {error}. "
                "Was it written by another version?"
            ) from error
