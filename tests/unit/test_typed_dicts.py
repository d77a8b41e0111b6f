"""The generator of TypedDicts from JSON Schemas."""

from __future__ import annotations

from typing import Any

from tools.typed_dicts import Module

STRING: dict[str, Any] = {"type": "string"}


def an_object(required: list[str], **members: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": required}


def text_of(schemas: dict[str, dict[str, Any]], *names: str, inner: dict[str, str] | None = None) -> str:
    module = Module(schemas, inner)
    for name in names:
        module.add(name)
    return module.take()[1]


def test_optional_member_is_not_required() -> None:
    text = text_of({"Todo": an_object(["id"], id=STRING, count={"type": "integer"})}, "Todo")
    assert 'class Todo(TypedDict):\n    """`Todo` of the document."""\n\n    id: str\n    count: NotRequired[int]' in text


def test_reference_brings_its_schema_and_nothing_else() -> None:
    schemas = {"Todo": an_object([], owner={"$ref": "#/components/schemas/Owner"}), "Owner": an_object([], id=STRING)}
    text = text_of(schemas | {"Other": an_object([], id=STRING)}, "Todo")
    assert "owner: NotRequired[Owner]" in text
    assert "class Owner(TypedDict)" in text
    assert "Other" not in text


def test_equal_inner_objects_are_one_class() -> None:
    cache = an_object(["read"], read={"type": "number", "minimum": 0})
    same = an_object(["read"], read={"type": "number", "description": "tokens"})
    schemas = {"Session": an_object(["cache"], cache=cache), "Message": an_object(["cache"], cache=same)}
    text = text_of(schemas, "Session", "Message", inner={"SessionCache": "Cache"})
    assert text.count("cache: Cache") == 2
    assert text.count("class ") == 3


def test_union_becomes_an_alias_of_named_alternatives() -> None:
    idle, retry = ({"type": {"enum": [word]}} for word in ("idle", "retry"))
    status = {"anyOf": [an_object(["type"], **idle), an_object(["type"], **retry)]}
    text = text_of({"Status": status}, "Status")
    assert "Status: TypeAlias = (StatusIdle | StatusRetry)" in text
    assert 'class StatusRetry(TypedDict):\n    """An alternative of `Status`."""\n\n    type: Literal["retry"]' in text


def test_member_that_is_no_identifier_is_written() -> None:
    text = text_of({"Row": an_object(["from", "a-b"], **{"from": STRING, "a-b": {"type": "boolean"}})}, "Row")
    assert '"from": "str",' in text
    assert '"a-b": "bool",' in text
