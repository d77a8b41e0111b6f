"""The check of JSON values against a schema: places, alternatives, and what cannot be checked."""

from __future__ import annotations

from typing import Any

import pytest

from universal.lib.json_schema import MESSAGE_LIMIT, mismatch, schema_fault, validator


def test_a_mismatch_has_its_place() -> None:
    schema = {"properties": {"people": {"items": {"$ref": "#/$defs/person"}}}, "$defs": {"person": {"required": ["name"]}}}
    assert schema_fault(schema) is None
    assert mismatch({"people": [{"name": 1}, {}]}, validator(schema)) == '/people/1: "name" is a required property'
    assert mismatch({"people": [{"name": 1}]}, validator(schema)) == ""
    assert mismatch(3, validator({"type": ["string", "null"]})) == '/: 3 is not of types "null", "string"'
    assert mismatch({"a": 1}, validator({"properties": {"a": {"type": "null"}}}), "info") == 'info/a: 1 is not of type "null"'


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"type": "b"}, '/: "y" is a required property'),
        ({"type": "b", "y": "s"}, '/y: "s" is not of type "integer"'),
        ({"type": "c"}, '/: "x" is a required property'),
        ({"type": "a", "x": {}}, '/x: {} is not of type "integer"'),
    ],
)
def test_a_mismatch_of_alternatives_is_that_of_the_one_that_is_meant(value: Any, why: str) -> None:
    kinds = {"a": "x", "b": "y"}
    rules = [
        {"type": "object", "properties": {"type": {"const": kind}, name: {"type": "integer"}}, "required": ["type", name]}
        for kind, name in kinds.items()
    ]
    assert mismatch(value, validator({"anyOf": rules})) == why


def test_a_message_does_not_repeat_a_long_value() -> None:
    why = mismatch("long " * 1000, validator({"type": "integer"}))
    assert len(why) < MESSAGE_LIMIT + 10
    assert why.endswith('is not of type "integer"')


def test_text_that_is_no_utf_8_does_not_match() -> None:
    assert "utf-8" in mismatch("\ud800", validator({"type": "object"}))


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (3, ()),
        (None, ()),
        ({"type": "text"}, ("type",)),
        ({"properties": {"age": {"type": []}}}, ("properties", "age", "type")),
        ({"items": {"enum": "a"}}, ("items", "enum")),
        ({"anyOf": [{}, {"pattern": "("}]}, ("anyOf", 1, "pattern")),
        ({"minimum": "1"}, ("minimum",)),
        ({"properties": []}, ("properties",)),
        ({"$ref": "#/nowhere"}, ()),
        ({"$ref": "https://example.org/schema"}, ()),
        ({"const": "\ud800"}, ()),
    ],
)
def test_a_fault_of_a_schema_has_its_place(schema: Any, place: tuple[str | int, ...]) -> None:
    fault = schema_fault(schema)
    assert fault is not None
    assert fault[1] == place


def test_a_schema_that_names_itself_ends() -> None:
    assert mismatch(1, validator({"$ref": "#"})) == ""


def test_all_allowed_values_are_named() -> None:
    """The agent is asked again with these words."""
    check = validator({"properties": {"state": {"enum": ["open", "closed", "merged", None]}}})
    assert mismatch({"state": "odd"}, check) == '/state: "odd" is not one of "open", "closed", "merged", null'
    told = schema_fault({"properties": {"a": {"type": "strin"}}})
    assert told is not None
    assert told[0].startswith('"strin" is not one of "array", "boolean", "integer", "null"')
