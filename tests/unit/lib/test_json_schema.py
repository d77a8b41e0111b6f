"""The check of JSON values against a schema, beside another implementation of the standard."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal.lib.json_schema import mismatch, schema_fault

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "a", "ab", 1.5, 2.0]))
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6
)
TYPES = st.sampled_from(["object", "array", "string", "boolean", "null", "number", "integer"])
BOUNDS = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "enum": st.lists(LEAVES, min_size=1, max_size=3),
        "minimum": st.integers(-2, 2),
        "exclusiveMaximum": st.integers(-2, 2),
        "minLength": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
        "pattern": st.sampled_from(["a", "^b"]),
        "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
    },
)


def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=2)
    more = st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "prefixItems": several,
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": inner,
        },
    )
    return st.builds(lambda bounds, rules: {**bounds, **rules}, BOUNDS, more)


SCHEMAS = st.recursive(BOUNDS, wider, max_leaves=4)


@given(SCHEMAS, VALUES)
def test_mismatch_says_what_another_implementation_says(schema: Any, value: Any) -> None:
    assert schema_fault(schema) is None
    why = mismatch(value, schema)
    assert (why == "") is jsonschema_rs.is_valid(schema, value), why


@pytest.mark.parametrize(
    ("value", "schema", "matches"),
    [
        (False, {"enum": [0]}, False),
        (1, {"const": True}, False),
        (1.0, {"const": 1}, True),
        ([{"a": True}], {"enum": [[{"a": 1}]]}, False),
        ([{"a": 1}], {"enum": [[{"a": 1}]]}, True),
    ],
)
def test_a_truth_value_is_no_number(value: Any, schema: Any, matches: bool) -> None:
    assert (mismatch(value, schema) == "") is jsonschema_rs.is_valid(schema, value) is matches


def test_a_mismatch_has_its_place() -> None:
    schema = {"properties": {"people": {"items": {"$ref": "#/$defs/person"}}}, "$defs": {"person": {"required": ["name"]}}}
    assert schema_fault(schema) is None
    assert mismatch({"people": [{"name": 1}, {}]}, schema) == "/people/1: name is missing"
    assert mismatch(3, {"type": ["string", "null"]}) == "/: it must be string or null"


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
        ({"$ref": "#/nowhere"}, ("$ref",)),
        ({"$ref": "https://example.org/schema"}, ("$ref",)),
    ],
)
def test_a_fault_of_a_schema_has_its_place(schema: Any, place: tuple[str | int, ...]) -> None:
    fault = schema_fault(schema)
    assert fault is not None
    assert fault[1] == place


def test_a_schema_that_names_itself_ends() -> None:
    assert mismatch(1, {"$ref": "#"}) == "/: it is too deep"
