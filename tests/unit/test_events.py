"""Values that are made without being looked at: they are the same as those that were."""

from __future__ import annotations

from universal.events import EventType, ItemDeltaData, Source, UniversalEvent, delta_data

ENVELOPE = {
    "event_id": "evt_1",
    "sequence": 1,
    "time": "2026-11-22T12:00:00.000Z",
    "session_id": "ses_1",
    "native_session_id": None,
    "source": Source.AGENT,
    "synthetic": False,
    "raw": {"a": [1]},
}


def test_a_piece_of_text_is_what_its_class_makes() -> None:
    made = delta_data("itm_1", None, "word ", 2, "reasoning")
    called = ItemDeltaData(item_id="itm_1", delta="word ", part_index=2, part_type="reasoning")
    assert (made, hash(made), repr(made)) == (called, hash(called), repr(called))
    assert made.model_dump_json() == called.model_dump_json()
    assert delta_data("itm_1", None, "x") == ItemDeltaData(item_id="itm_1", delta="x")


def test_a_stamped_event_is_what_its_class_makes() -> None:
    given = {**ENVELOPE, "by": None, "type": EventType.ITEM_DELTA, "data": delta_data("itm_1", None, "word ")}
    fields = {name: given[name] for name in UniversalEvent.model_fields}
    made, called = UniversalEvent.from_fields(fields), UniversalEvent(**fields)
    assert made == called
    assert made.model_dump_json(by_alias=True) == called.model_dump_json(by_alias=True)
    assert UniversalEvent.model_validate_json(made.model_dump_json()) == called


def test_a_copy_leaves_the_others_as_they_were() -> None:
    first, second = delta_data("itm_1", None, "a"), delta_data("itm_1", None, "b")
    copy = first.model_copy(update={"delta": "c"})
    assert [value.delta for value in (first, second, copy)] == ["a", "b", "c"]
    assert first.model_fields_set == second.model_fields_set == set(ItemDeltaData.model_fields)
    assert copy.model_fields_set is not first.model_fields_set
