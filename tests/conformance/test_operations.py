"""Every operation of OpenCode is decided, and what is generated from the decisions is current."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from shim.faces.opencode1 import routes as opencode1
from shim.faces.opencode1._generated.operations import OPENCODE_VERSION, OPERATIONS
from shim.faces.opencode1.unsupported_operations import SHARED, TABLE, UNSUPPORTED, render
from shim.faces.opencode2 import routes as opencode2
from shim.faces.opencode2._generated.operations import OPERATIONS as OPENCODE2_OPERATIONS
from shim.faces.opencode2.dialects import PREVIEW
from shim.http.operation import collect
from tests.support.oracle import FIXTURES, oracle
from tools import generate

SERVED = {one.id for one in collect((*opencode1.MODULES, *opencode2.MODULES)) if one.wire == 1}


def test_every_operation_is_decided() -> None:
    """A handler or a reason, never both, never none."""
    found = TABLE.faults(SERVED)
    assert not found.neither, f"write a handler, or a row in unsupported_operations.py: {sorted(found.neither)}"
    assert not found.both, f"delete the row in unsupported_operations.py: {sorted(found.both)}"
    assert not found.unknown, f"no operations of OpenCode: {sorted(found.unknown)}"


def test_undecided_sees_it() -> None:
    name = next(iter(UNSUPPORTED))
    assert TABLE.faults(SERVED - {"path.get"}).neither >= {"path.get"}
    assert TABLE.faults(SERVED | {name}).both == {name}


def test_an_undecided_operation_is_refused_all_the_same() -> None:
    assert TABLE.rows(set())["path.get"].status == 501


@pytest.mark.parametrize(("name", "row"), UNSUPPORTED.items())
def test_reasons_are_sentences(name: str, row: tuple[int, str]) -> None:
    status, reason = row
    assert (status, len(reason) > 20, reason.endswith(".")) == (501, True, False), name


def test_the_table_is_the_document() -> None:
    assert FIXTURES.name == OPENCODE_VERSION
    declared = oracle().operations
    assert {name: (row.method, row.path) for name, row in OPERATIONS.items()} == {
        name: (method, path) for name, (method, path, _) in declared.items()
    }
    assert len(OPERATIONS) == 188
    assert [name for name, row in OPERATIONS.items() if row.streams] == [
        "global.event",
        "event.subscribe",
        "v2.session.events",
        "v2.event.subscribe",
    ]


def test_the_preview_shares_operations_of_opencode2() -> None:
    def route(row: tuple[str, ...]) -> tuple[str, str]:
        return row[0], re.sub(r"\{\w+\}", "{}", row[1])

    second = {route(row) for row in OPENCODE2_OPERATIONS.values()} | {route((one.method, one.path)) for one in PREVIEW.aliases}
    assert {name for name, row in OPERATIONS.items() if route(row) in second} == SHARED


@pytest.mark.parametrize("path", [*generate.from_document(), *generate.from_routes()], ids=lambda path: path.name)
def test_generated_files_are_current(path: Path) -> None:
    text = (generate.from_document() | generate.from_routes())[path]
    assert path.read_text() == text, "run `make gen`"


def test_the_served_document_is_whole() -> None:
    """Every schema that it refers to is in it."""
    document = json.loads((generate.ROOT / "shim" / "faces" / "opencode1" / "openapi.json").read_text())
    schemas = document["components"]["schemas"]
    assert generate.reachable(document["paths"], schemas) == set(schemas)
    assert {tag["name"] for tag in document["tags"]} == {
        item["tags"][0] for methods in document["paths"].values() for item in methods.values()
    }


def test_the_served_document_is_opencodes() -> None:
    """For what is served it is the same, word for word; what is ours stands under `x-`."""
    native, ours = oracle().document, json.loads((generate.ROOT / "shim" / "faces" / "opencode1" / "openapi.json").read_text())
    assert {key for key in ours if key not in native} == {generate.EXTENSION}
    assert {key for key in native if key not in ours} == set()
    for path, item in ours["paths"].items():
        for method, operation in item.items():
            assert operation == native["paths"][path][method], f"{method} {path}"
    shown = {operation["operationId"] for item in ours["paths"].values() for operation in item.values()}
    assert shown == SERVED & set(OPERATIONS)
    assert all(schema == native["components"]["schemas"][name] for name, schema in ours["components"]["schemas"].items())
    assert ours["security"] == native["security"]
    routes = {(row["method"], row["path"]) for row in ours[generate.EXTENSION]["routes"]}
    assert ("POST", "/session/import") in routes
    assert all(row["summary"] for row in ours[generate.EXTENSION]["routes"])
    assert not {path for _, path in routes} & native["paths"].keys()


def test_the_page_names_every_operation() -> None:
    page = render(SERVED)
    assert all(f"| `{name}` |" in page for name in OPERATIONS)
    assert f"{len(SERVED & set(OPERATIONS) - SHARED)} of 188" in page


def test_the_generated_files_are_current() -> None:
    assert generate.main(["--check"]) == 0
