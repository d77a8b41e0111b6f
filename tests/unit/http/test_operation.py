"""How handlers get what a request says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from shim.http.operation import collect
from shim.routes import modules

JSON_TYPES = {"any", "bool", "dict", "float", "int", "list", "literal", "model", "none", "str", "tagged-union", "union"}
"""Kinds of pydantic's schemas that take the same values from Python, strictly, as from JSON."""
INNER = {"default", "definition-ref", "definitions", "function-after", "model-field", "model-fields", "nullable"}
"""Kinds that hold another one, and take nothing by themselves."""
FUNCTIONS = {"no-info", "with-info"}


def kinds(schema: Any) -> Iterator[str]:
    """The kinds of all schemas inside of one."""
    if isinstance(schema, Mapping):  # pydantic builds some when they are read
        members = cast("Mapping[str, Any]", schema)
        if members.get("type") == "function-before":  # it makes what the inner one takes
            return
        if isinstance(kind := members.get("type"), str):
            yield kind
        for inner in members.values():
            yield from kinds(inner)
    elif isinstance(schema, (list, tuple)):
        for inner in cast("list[Any]", schema):
            yield from kinds(inner)


def test_bodies_have_types_of_json_alone() -> None:
    """A strict tuple or enum would refuse what JSON can say of it, since bodies are validated as Python values."""
    for one in collect(modules()):
        if one.body is not None:
            assert set(kinds(one.body.core_schema)) <= JSON_TYPES | INNER | FUNCTIONS, one.id


def test_a_tuple_of_a_body_is_a_list_of_json() -> None:
    update = next(one for one in collect(modules()) if one.id == "config.update")
    assert update.body is not None
    assert update.body.validate_python({"plugin": ["a", ["b", {"c": 1}]]}, strict=True).plugin == ["a", ("b", {"c": 1})]
