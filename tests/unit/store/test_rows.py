"""Rows: nothing of an event is lost, damage is named without showing what was said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.lib.errors import StoreError
from shim.store.memory import MemoryStore
from shim.store.rows import (
    NOT_IN_BODY,
    RAW_LIMIT_BYTES,
    EventRow,
    Kin,
    dump,
    event_of,
    follow,
    idle_families,
    load,
    row_of,
    wire_of,
)
from tests.unit.store.store_contract import event
from universal.events import ErrorData, UniversalEvent

CHARACTERS = st.characters(codec=None) | st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF, categories=["Cs"])
TEXT = st.text(CHARACTERS)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def join_surrogates(value: Any) -> Any:
    """`value` as JSON can tell it: two surrogates that happen to be a pair are one character."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        case list():
            return [join_surrogates(inner) for inner in value]
        case dict():
            return {join_surrogates(key): join_surrogates(inner) for key, inner in value.items()}
        case _:
            return value


@given(JSON)
def test_dump_and_load(value: Any) -> None:
    text = dump(value)
    text.encode()
    assert join_surrogates(load(text, "it")) == join_surrogates(value)


def test_dump_is_readable_where_it_can_be() -> None:
    assert dump({"a": "ünï\u2028"}) == '{"a":"ünï\u2028"}'
    assert dump("ü\ud800") == '"\\u00fc\\ud800"'


@given(JSON, TEXT)
def test_an_event_survives(raw: Any, message: str) -> None:
    before = event(
        3, data=ErrorData(message=join_surrogates(message), details={"raw": join_surrogates(raw)}), raw=join_surrogates(raw)
    )
    row = row_of(before)
    assert '"raw":' not in row.body.split('"details"', maxsplit=1)[0]
    after = event_of(row)
    assert after == before == UniversalEvent.model_validate(after.model_dump(by_alias=True))
    assert event_of(row, with_raw=False) == before.model_copy(update={"raw": None})


@given(JSON, TEXT, st.integers(1, 6))
def test_a_body_is_as_the_model_writes_it(details: Any, message: str, sequence: int) -> None:
    made = event(sequence, data=ErrorData(message=join_surrogates(message), details={"raw": join_surrogates(details)}))
    made = made.model_copy(update={"native_session_id": None if sequence % 2 else join_surrogates(message)})
    try:
        text = made.model_dump_json(by_alias=True, exclude=NOT_IN_BODY)
    except ValueError:  # a lone surrogate
        text = dump(made.model_dump(by_alias=True, exclude=NOT_IN_BODY))
    assert row_of(made).body == text


@given(JSON, TEXT, TEXT)
def test_a_row_sent_unread_equals_the_event(raw: Any, message: str, name: str) -> None:
    made = event(
        3, data=ErrorData(message=join_surrogates(message), details={"raw": join_surrogates(raw)}), raw=join_surrogates(raw)
    )
    for include_raw in (True, False):
        sent = wire_of(row_of(made), join_surrogates(name), include_raw=include_raw)
        expected = made.model_dump(by_alias=True) | {"session_id": join_surrogates(name)} | ({} if include_raw else {"raw": None})
        assert sent is None or (b"\n" not in sent and json.loads(sent) == expected)
        words = ("NaN", "Infinity")
        assert sent is not None or any(word in json.dumps(expected, ensure_ascii=False) for word in words)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_no_json_is_not_sent_unread(number: float) -> None:
    row = row_of(event(1, data=ErrorData(message=""), raw={"a": [number]}))
    assert wire_of(row, "s", include_raw=True) is None
    assert row_of(event(1, raw={"a": [number]})).raw == '{"a":[null]}'  # of a piece of text
    assert wire_of(row, "s", include_raw=False) is not None
    assert wire_of(row_of(event(1, data=ErrorData(message="", details={"a": number}))), "s", include_raw=False) is None


def test_a_damaged_event_is_named_but_not_shown() -> None:
    row = row_of(event(1, data=ErrorData(message="secret prompt")))
    with pytest.raises(StoreError) as found:
        event_of(row._replace(body=row.body.replace('"message"', '"massage"')))
    assert str(found.value).startswith("The stored event 1 of session ses_a cannot be read, ")
    assert "secret" not in str(found.value)
    with pytest.raises(StoreError, match="event 1 of session ses_a is damaged"):
        event_of(row._replace(raw="{"))
    for broken in (
        row._replace(type="item.exploded"),
        row._replace(source="nobody"),
        row._replace(body="[]"),
        row._replace(body="{}"),
    ):
        with pytest.raises(StoreError, match="event 1 of session ses_a cannot be read"):
            event_of(broken)


def test_columns_and_body_share_nothing() -> None:
    row = row_of(event(2))
    assert row == EventRow(
        session_id="ses_a",
        sequence=2,
        event_id="evt_ses_a_2",
        time="2026-11-21T20:43:04.083Z",
        type="item.delta",
        source="agent",
        body='{"native_session_id":null,"synthetic":false,"data":{"item_id":"itm_1","native_item_id":null,"delta":"piece 2",'
        '"part_index":0,"part_type":"text"}}',
        raw=None,
    )


def test_follow_returns_what_changed() -> None:
    assert follow({"ses_a": 4, "ses_b": 1}, [event(5), event(6), event(1, "ses_c")]) == {"ses_a": 6, "ses_c": 1}
    assert follow({}, []) == {}
    with pytest.raises(StoreError, match="event 5, not 4"):
        follow({"ses_a": 4}, [event(4)])


@pytest.mark.parametrize("character", ["x", '"', "\ud83d"])
async def test_raw_payloads_are_bounded(character: str) -> None:
    """The event itself is whole; what the agent said beside it says that it was cut."""
    long = event(1, raw={"output": character * RAW_LIMIT_BYTES})
    row = row_of(long)
    assert row.raw is not None
    assert len(row.raw) < 40_000
    again = event_of(row)
    assert again.raw["dropped"] == f"over the limit of {RAW_LIMIT_BYTES} bytes"
    assert again.raw["size"] > RAW_LIMIT_BYTES
    assert again.raw["head"].startswith('{"output":"')
    assert again.model_copy(update={"raw": None}) == long.model_copy(update={"raw": None})
    store = MemoryStore()
    await store.open()
    store.append([long, event(2, raw={"output": character * 1000})])
    assert [one.raw for one in await store.events("ses_a")] == [again.raw, {"output": character * 1000}]
    await store.close()


# --- families -----------------------------------------------------------------------------------------------------

NOW_MS = 1_000


def kin(id_: str, parent_id: str | None = None, updated_ms: int = 1, *, is_busy: bool = False) -> Kin:
    return Kin(id_, parent_id, updated_ms, is_busy)


def test_a_family_is_idle_if_all_of_it_is() -> None:
    old, child, grandchild = kin("old"), kin("child", "old"), kin("grandchild", "child")
    assert idle_families([grandchild, child, old, kin("new", updated_ms=NOW_MS)], NOW_MS) == [["old", "child", "grandchild"]]
    assert idle_families([old, child, kin("grandchild", "child", NOW_MS)], NOW_MS) == []
    assert idle_families([old, kin("child", "old", is_busy=True)], NOW_MS) == []


def test_a_family_without_a_first_one_ends() -> None:
    """An import may say anything."""
    assert idle_families([kin("a", "a"), kin("b", "gone")], NOW_MS) == [["a"], ["b"]]
    assert idle_families([kin("a", "b"), kin("b", "a")], NOW_MS) == []
