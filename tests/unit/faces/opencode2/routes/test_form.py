"""Fields of forms: what they may say, and what is wrong with an answer."""

from __future__ import annotations

from typing import Any

import pytest

from shim.faces.opencode2.routes.form import fields_of, invalid
from shim.lib.errors import InvalidRequest

COLOURS = [{"value": "red", "label": "Red"}, {"value": "blue", "label": "Blue"}]


def field(type_: str, **more: Any) -> dict[str, Any]:
    return {"key": "f", "type": type_, **more}


@pytest.mark.parametrize(
    ("one", "value", "wrong"),
    [
        (field("string"), "anything", None),
        (field("string"), 1, "Expected string"),
        (field("string", options=COLOURS), "green", None),
        (field("string", options=COLOURS, custom=False), "green", "Expected one of red, blue"),
        (field("string", options=COLOURS, custom=False), "red", None),
        (field("string", minLength=2, maxLength=3), "a", "Expected 2 to 3 characters"),
        (field("string", minLength=2, maxLength=3), "abcd", "Expected 2 to 3 characters"),
        (field("string", pattern="^(a+)+$"), "b", None),
        (field("string", format="email"), "a@b", None),
        (field("string", format="email"), "a b", "format email"),
        (field("string", format="uri"), "https://a", None),
        (field("string", format="uri"), "a", "format uri"),
        (field("string", format="date"), "2026-11-22", None),
        (field("string", format="date"), "22.11.", "format date"),
        (field("string", format="date-time"), "2026-11-22T10:00:00Z", None),
        (field("number"), 1.5, None),
        (field("number"), "1", "Expected number"),
        (field("number"), True, "Expected number"),
        (field("number", minimum=2, maximum=3), 4, "Expected number from 2 to 3"),
        (field("integer"), 2.0, None),
        (field("integer"), 2.5, "Expected integer"),
        (field("boolean"), False, None),
        (field("boolean"), "yes", "Expected boolean"),
        (field("multiselect", options=COLOURS), ["red", "green"], None),
        (field("multiselect", options=COLOURS, custom=False), ["green"], "Expected one of red, blue"),
        (field("multiselect", options=COLOURS), "red", "Expected string[]"),
        (field("multiselect", options=COLOURS, minItems=1, maxItems=1), [], "Expected 1 to 1 items"),
        (field("external", url="https://a"), "x", "a page to open"),
    ],
)
def test_a_value_is_checked_against_its_field(one: dict[str, Any], value: Any, wrong: str | None) -> None:
    said = invalid([one], {"f": value})
    assert said == wrong if wrong is None else wrong in (said or "")


def test_required_hidden_and_unknown_fields() -> None:
    fields = [
        {"key": "kind", "type": "string", "required": True},
        {"key": "name", "type": "string", "required": True, "when": [{"key": "kind", "op": "eq", "value": "other"}]},
        {"key": "why", "type": "string", "when": [{"key": "kind", "op": "neq", "value": "other"}]},
    ]
    assert invalid(fields, {}) == "Missing form field: kind"
    assert invalid(fields, {"kind": "other"}) == "Missing form field: name"
    assert invalid(fields, {"kind": "a"}) is None
    assert invalid(fields, {"kind": "a", "name": "b"}) == "Form field is not shown for these answers: name"
    assert invalid(fields, {"kind": "a", "why": "b"}) is None
    assert invalid(fields, {"kind": "a", "none": "b"}) == "Unknown form field: none"


def test_a_new_forms_fields_say_what_their_type_has() -> None:
    given = field("boolean", minimum=1, options=COLOURS, default=True, title=None)
    assert fields_of([given]) == [{"key": "f", "type": "boolean", "default": True}]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([field("string"), field("string")], 'two fields "f"'),
        ([field("multiselect")], "options"),
        ([field("external")], "url"),
        ([field("string", when=[{"key": "later", "op": "eq", "value": 1}])], '"later"'),
    ],
)
def test_malformed_forms_are_refused(fields: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        fields_of(fields)
