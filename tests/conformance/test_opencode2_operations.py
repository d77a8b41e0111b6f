"""Every operation of OpenCode 2 is decided, and what is generated is current, whole, and tells right from wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from shim.faces.opencode2 import routes as opencode2
from shim.faces.opencode2._generated.operations import OPERATIONS
from shim.faces.opencode2.unsupported_operations import CONSTANT, TABLE, UNSUPPORTED, render
from shim.http.operation import collect
from tests.support.opencode2_oracle import check_event, check_log_item, check_response, check_type, opencode2_oracle
from tests.support.oracle import Violation
from tools import generate_opencode2
from tools.ts_types import schema

SERVED = {one.id for one in collect(opencode2.MODULES) if one.wire == 2}
SESSION = "ses_0000000000000000000000000"
MESSAGE = "msg_0000000000000000000000000"
EVENT = {"id": "evt_1", "created": 1}


def test_every_operation_is_decided() -> None:
    """A handler or a reason, never both, never none."""
    found = TABLE.faults(SERVED)
    assert not found.neither, f"write a handler, or a row in unsupported_operations.py: {sorted(found.neither)}"
    assert not found.both, f"delete the row in unsupported_operations.py: {sorted(found.both)}"
    assert not found.unknown, f"no operations of OpenCode 2: {sorted(found.unknown)}"


def test_undecided_sees_it() -> None:
    assert TABLE.faults(frozenset()).neither >= {"session.list"}
    for name in list(UNSUPPORTED)[:1]:
        assert TABLE.faults(SERVED | {name}).both == {name}


def test_an_undecided_operation_is_refused_all_the_same() -> None:
    assert TABLE.rows(set())["session.list"].status == 501


@pytest.mark.parametrize(("name", "row"), UNSUPPORTED.items())
def test_reasons_are_sentences(name: str, row: tuple[int, str]) -> None:
    status, reason = row
    assert (status, len(reason) > 20, reason.endswith(".")) == (501, True, False), name


def test_constant_answers_are_served() -> None:
    assert set(CONSTANT) <= SERVED


def test_the_table_is_the_document() -> None:
    declared = opencode2_oracle().operations
    assert {name: (row.method, row.path) for name, row in OPERATIONS.items()} == {
        name: (method, path) for name, (method, path, _) in declared.items()
    }
    assert len(OPERATIONS) == 145
    assert [name for name, row in OPERATIONS.items() if row.streams] == ["session.log", "event.subscribe"]
    assert {row.status for row in OPERATIONS.values()} == {200, 204, 101}


@pytest.mark.parametrize(
    "path", [*generate_opencode2.from_sources(), *generate_opencode2.from_routes()], ids=lambda path: path.name
)
def test_generated_files_are_current(path: Path) -> None:
    text = (generate_opencode2.from_sources() | generate_opencode2.from_routes())[path]
    assert path.read_text() == text, "run `make gen`"


def test_the_page_names_every_operation() -> None:
    page = render(SERVED)
    assert all(f"| `{name}` |" in page for name in OPERATIONS)
    assert f"{len(SERVED)} of 145" in page


# --- the schema -----------------------------------------------------------------------------------------------


def test_every_name_is_there() -> None:
    known = opencode2_oracle().schemas
    assert _references(opencode2_oracle().document) <= set(known)
    assert sum(name.startswith("Event.") for name in known) == len(generate_opencode2.load("events.json")["events"]) - 1


def _references(value: object) -> set[str]:
    if isinstance(value, dict):
        found = {str(value["$ref"]).rsplit("/", 1)[-1]} if "$ref" in value else set()
        return found.union(*(_references(inner) for inner in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(inner) for inner in value))
    return set()


def test_the_document_is_valid_openapi() -> None:
    """Every schema is one, every parameter of a path stands in it, and the other way round."""
    for name, one in opencode2_oracle().schemas.items():
        assert jsonschema_rs.meta.is_valid({"$schema": "https://json-schema.org/draft/2020-12/schema", **one}), name
    for path, item in opencode2_oracle().document["paths"].items():
        for operation in item.values():
            declared = [row["name"] for row in operation["parameters"] if row["in"] == "path"]
            assert sorted(declared) == sorted(re.findall(r"\{(\w+)\}", path)), path


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("int", [1], [1.5, "1", True]),
        ("string ^msg_", ["msg_1"], ["evt_1", 1]),
        ('"a" | "b" | null', ["a", None], ["c"]),
        ("[A, ...A[]]", [[{"a": 1}]], [[], [1]]),
        ("{ a: int; b?: string }", [{"a": 1}, {"a": 1, "b": ""}], [{}, {"a": 1, "c": 1}, {"a": 1, "b": None}]),
        ("A & { b: string }", [{"a": 1, "b": ""}], [{"a": 1}, {"b": ""}, {"a": 1, "b": "", "c": 1}]),
        ("A & ({ b: string } | { c: int })", [{"a": 1, "b": ""}, {"a": 1, "c": 1}], [{"a": 1}, {"a": 1, "b": "", "c": 1}]),
        ("{ a: int } & Record<string, int>", [{"a": 1, "z": 1}], [{"z": 1}, {"a": 1, "z": ""}]),
        ("(A | int)[]", [[1, {"a": 1}], []], [["a"]]),
        ("Record<string, string[]>", [{"x": []}], [{"x": ""}, []]),
        ("number | false", [1, False], [True]),
        ("{}", [{}], [{"a": 1}, []]),
    ],
)
def test_types(text: str, right: list[Any], wrong: list[Any]) -> None:
    known = {"A": "{ a: int }"}
    judge = opencode2_oracle().__class__(
        {"paths": {}, "components": {"schemas": {"A": schema(known["A"], known), "T": schema(text, known)}}}
    )
    for value in right:
        judge.check_type("T", value)
    for value in wrong:
        with pytest.raises(Violation):
            judge.check_type("T", value)


@pytest.mark.parametrize(
    ("text", "error"), [("{ a: }", ValueError), ("Nothing", KeyError), ("int int", ValueError), ("§", ValueError)]
)
def test_text_that_is_no_type_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        schema(text, {})


# --- the judge ------------------------------------------------------------------------------------------------


def test_statuses_are_exact() -> None:
    check_response("session.remove", 204, None)
    check_response("session.remove", 404, {"_tag": "SessionNotFoundError", "sessionID": SESSION, "message": "m"})
    for status, body in ((200, True), (204, {}), (404, {"_tag": "ShellNotFoundError", "id": "sh_1", "message": "m"}), (400, {})):
        with pytest.raises(Violation):
            check_response("session.remove", status, body)
    with pytest.raises(Violation):
        check_response("session.active", 201, {"data": {}})
    with pytest.raises(Violation):
        check_response("session.active", 200, "text", "text/plain")


def test_events_are_exact() -> None:
    durable = {"aggregateID": SESSION, "seq": 0, "version": 1}
    right = {**EVENT, "type": "session.execution.started", "data": {"sessionID": SESSION}, "durable": durable}
    check_event(right)
    check_log_item(right)
    check_log_item({"type": "log.synced", "aggregateID": SESSION, "seq": 3})
    check_event({"id": "evt_1", "type": "server.connected", "data": {}})
    for wrong in (
        {**right, "durable": {**durable, "version": 2}},
        {key: value for key, value in right.items() if key != "durable"},
        {**right, "data": {}},
        {**right, "properties": {}},
        {**EVENT, "type": "session.nonsense", "data": {}},
    ):
        with pytest.raises(Violation):
            check_event(wrong)
    with pytest.raises(Violation):
        check_log_item({**right, "location": {"directory": "/x"}})


def test_messages_are_exact() -> None:
    base = {"id": MESSAGE, "time": {"created": 1}}
    check_type("SessionMessageInfo", {**base, "type": "idle", "outcome": "succeeded"})
    check_type("SessionMessageInfo", {**base, "type": "user", "text": "hello"})
    for wrong in (
        {**base, "type": "user"},
        {**base, "type": "idle", "outcome": "done"},
        {**base, "type": "user", "text": "", "parts": []},
    ):
        with pytest.raises(Violation):
            check_type("SessionMessageInfo", wrong)
