"""Events as messages: any events come back as they were, in messages of bounded size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.cluster.nats.batches import BATCH_EVENTS, ENVELOPE_BYTES, Batch, Reader, batches, claim, encode_event, envelope_of
from shim.lib.errors import StoreError
from shim.store.rows import EventRow

LIMIT = ENVELOPE_BYTES + 400


def event_row(sequence: int, body: str = "{}", raw: str | None = None) -> EventRow:
    return EventRow("ses_a", sequence, f"evt_{sequence}", "2026-11-21T20:43:04.083Z", "item.delta", "agent", body, raw)


def pack(rows: list[EventRow], limit: int = LIMIT) -> list[Batch]:
    return list(batches("srv", 1, rows[0].sequence, [encode_event(row) for row in rows], limit))


def unpack(messages: list[Batch], after: int = 0, *, with_raw: bool = True) -> list[EventRow]:
    reader = Reader("ses_a", with_raw=with_raw)
    return [row for message in messages for row in reader.rows(message.payload, after)]


texts = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=900)


@given(st.lists(st.tuples(texts, st.none() | texts.filter(bool)), min_size=1, max_size=12), st.integers(0, 14))
def test_events_come_back_whatever_their_size(contents: list[tuple[str, str | None]], after: int) -> None:
    rows = [event_row(number, body, raw) for number, (body, raw) in enumerate(contents, 1)]
    messages = pack(rows)
    assert all(len(message.payload) <= LIMIT for message in messages)
    assert unpack(messages, after) == rows[after:]
    assert unpack(messages, with_raw=False) == [row._replace(raw=None) for row in rows]
    assert envelope_of(messages[-1].payload).stored_last == len(rows)


def test_a_message_has_a_bounded_number_of_events() -> None:
    messages = pack([event_row(number) for number in range(1, 2 * BATCH_EVENTS + 2)], 2**20)
    assert [(one.envelope.first, one.envelope.last) for one in messages] == [(1, 256), (257, 512), (513, 513)]


def test_parts_of_a_server_that_died_are_ignored() -> None:
    """The owner before stored two of three parts. The new one claims the journal, and stores another event of that number."""
    parts = pack([event_row(2, "x" * 1000)])
    assert [part.envelope.parts for part in parts] == [3, 3, 3]
    assert [part.envelope.stored_last for part in parts] == [1, 1, 2]
    messages = [*pack([event_row(1)]), *parts[:2], claim("new", 2, 1), *pack([event_row(2, "y" * 1000)]), *pack([event_row(3)])]
    assert [row.body[:1] for row in unpack(messages)] == ["{", "y", "{"]
    again = [*parts[:2], *parts]
    assert [row.sequence for row in unpack(again)] == [2], "the same server has begun anew"


@pytest.mark.parametrize("damaged", [b"", b"{}", b"[1]", b'{"by":"s","epoch":1,"first":1,"last":1,"part":[0,1]}\n[1]\n{}\n'])
def test_a_damaged_message_is_named(damaged: bytes) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        unpack([Batch(claim("s", 1, 0).envelope, damaged)])
