"""The generator of TypedDicts from JSON Schemas."""

from __future__ import annotations

from typing import Any

from tools.ts_types import Schema
from tools.typed_dicts import TypedDictWriter, pascal

STRING: Schema = {"type": "string"}


def an_object(required: list[str], **members: Schema) -> Schema:
    return {"type": "object", "properties": members, "required": required}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def text_of(schemas: dict[str, Schema], *names: str, inner: dict[str, str] | None = None, **options: Any) -> str:
    writer = TypedDictWriter(schemas, "face", names=inner or {}, **options)
    writer.add(*names)
    return writer.finish("types", "a test", "Types of a test.")


def test_optional_member_is_not_required() -> None:
    text = text_of({"Todo": an_object(["id"], id=STRING, count={"type": "integer"})}, "Todo")
    assert 'class Todo(TypedDict):\n    """`Todo` of the document."""\n\n    id: str\n    count: NotRequired[int]' in text


def test_a_field_that_an_answer_may_lack_is_not_required() -> None:
    todo = an_object(["id", "count"], id=STRING, count={"type": "integer"})
    assert "    id: str\n    count: NotRequired[int]" in text_of({"Todo": todo}, "Todo", left_out={"Todo": ["count"]})


def test_reference_brings_its_schema_and_nothing_else() -> None:
    schemas = {"Todo": an_object([], owner=ref("Owner")), "Owner": an_object([], id=STRING)}
    text = text_of(schemas | {"Other": an_object([], id=STRING)}, "Todo")
    assert "owner: NotRequired[Owner]" in text
    assert "class Owner(TypedDict)" in text
    assert "Other" not in text


def test_another_type_is_written_instead() -> None:
    schemas = {"Todo": an_object([], owner=ref("Owner")), "Owner": an_object([], id=STRING), "Name": an_object([], name=STRING)}
    text = text_of(schemas, "Todo", instead={"Owner": "Name"})
    assert "owner: NotRequired[Name]" in text
    assert "Owner" not in text


def test_a_plain_type_has_an_alias_only_if_it_is_asked_for() -> None:
    schemas = {"Todo": an_object(["ids"], ids=ref("Ids")), "Ids": {"type": "array", "items": STRING}}
    assert "ids: list[str]" in text_of(schemas, "Todo")
    asked = text_of(schemas, "Todo", "Ids", array="Sequence")
    assert "ids: Ids" in asked
    assert "Ids: TypeAlias = Sequence[str]" in asked


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
    assert "Status: TypeAlias = StatusIdle | StatusRetry" in text
    assert 'class StatusRetry(TypedDict):\n    """An alternative of `Status`."""\n\n    type: Literal["retry"]' in text


def test_enum_of_several_places_is_one_alias_if_it_has_a_name() -> None:
    effect: Schema = {"type": "string", "enum": ["allow", "deny"]}
    schemas = {"Rule": an_object(["effect"], effect=effect), "Answer": an_object(["effect"], effect=effect)}
    assert text_of(schemas, "Rule", "Answer").count('effect: Literal["allow", "deny"]') == 2
    text = text_of(schemas, "Rule", "Answer", inner={"RuleEffect": "Effect"})
    assert text.count("effect: Effect") == 2
    assert 'Effect: TypeAlias = Literal["allow", "deny"]' in text


def test_values_beside_any_text_are_text() -> None:
    command: Schema = {"anyOf": [{"enum": ["undo"]}, STRING]}
    assert "    name: str\n" in text_of({"Command": an_object(["name"], name=command)}, "Command")


def test_member_that_is_no_identifier_is_written() -> None:
    text = text_of({"Row": an_object(["from", "a-b"], **{"from": STRING, "a-b": {"type": "boolean"}})}, "Row")
    assert '"from": "str",' in text
    assert '"a-b": "bool",' in text


def test_a_later_module_imports_types_of_an_earlier_one() -> None:
    schemas = {"Todo": an_object(["id"], id=STRING), "List": an_object(["todos"], todos={"type": "array", "items": ref("Todo")})}
    writer = TypedDictWriter(schemas, "face", names={})
    writer.add("Todo")
    assert "import" not in writer.finish("types", "a test", "Types.").partition("from typing")[2].partition("TypedDict")[2]
    writer.add("List")
    text = writer.finish("list_types", "a test", "Lists.")
    assert "from face.types import Todo\n" in text
    assert "class Todo" not in text


def test_events_are_pairs_of_type_and_data() -> None:
    writer = TypedDictWriter({"Todo": an_object(["id"], id=STRING)}, "face", names={})
    writer.add("Todo")
    writer.add_events("Event", [("todo.added", "Todo"), ("todo.gone", "Mapping[str, Any]")])
    text = writer.finish("types", "a test", "Types.")
    assert 'Event: TypeAlias = tuple[Literal["todo.added"], Todo] | tuple[Literal["todo.gone"], Mapping[str, Any]]' in text


def test_a_name_of_the_wire_becomes_a_part_of_a_class_name() -> None:
    assert pascal("file.path-changed") == "FilePathChanged"
    assert pascal("sessionID") == "SessionID"


def test_a_long_module_says_why_it_is_long() -> None:
    schemas = {f"Row{number}": an_object(["id"], id=STRING) for number in range(150)}
    note = "# over 700 lines: generated"
    assert note in text_of(schemas, *schemas)
    assert note not in text_of(schemas, "Row1")
