"""Which face answers for a request, and that each face can say every error."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest

import shim.faces.opencode1.errors
import shim.faces.opencode2.errors
import shim.faces.v1.errors
import shim.lib.errors
from shim.http.faces import Face
from shim.http.operation import collect
from shim.lib.errors import HttpRefused, InvalidRequest, MessageNotFound, NotFound, RequestError, SessionNotFound, row_of
from shim.routes import FACES, modules

OPENCODE1, (OPENCODE2, V1, *_) = FACES.root, FACES.folder_faces

TABLES: Mapping[str, tuple[ModuleType, Mapping[type[RequestError], Any]]] = {
    "opencode1": (shim.faces.opencode1.errors, shim.faces.opencode1.errors.ERRORS),
    "opencode2": (shim.faces.opencode2.errors, shim.faces.opencode2.errors.ERRORS),
    "v1": (shim.faces.v1.errors, shim.faces.v1.errors.ERRORS),
}


VALUES: Mapping[str, Any] = {
    "str": "x",
    "object": "x",
    "str | None": "x",
    "int": 400,
    "int | None": 1,
    "float": 1.5,
    "Iterable[str]": ("x", "y"),
    "Iterable[object]": ("x", "y"),
    "Sequence[str]": ("x", "y"),
    "Literal['non-git', 'not-clean']": "non-git",
    'Literal["non-git", "not-clean"]': "non-git",
}
"""Type of a field -> a value for it."""


def errors_of(module: ModuleType) -> Iterator[type[RequestError]]:
    """The kinds of refusals that a module defines."""
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, RequestError) and value.__module__ == module.__name__:
            yield value


@pytest.mark.parametrize("name", TABLES)
def test_a_face_has_a_row_for_every_error_of_the_core_and_its_own(name: str) -> None:
    module, table = TABLES[name]
    fallback = table[RequestError]
    for kind in (*errors_of(shim.lib.errors), *errors_of(module)):
        rows = [table[base] for base in kind.__mro__ if base in table]
        assert rows[0] is not fallback or kind in (RequestError, HttpRefused), kind.__name__


@pytest.mark.parametrize("name", TABLES)
def test_a_face_says_every_error_with_its_message_and_status(name: str) -> None:
    module, _ = TABLES[name]
    for kind in (*errors_of(shim.lib.errors), *errors_of(module)):
        status, body = module.render(example(kind))
        assert 400 <= status < 600, kind.__name__
        assert {"name", "_tag", "type"} & set(body), kind.__name__


def example(kind: type[RequestError]) -> RequestError:
    """An error of this kind, with a value of the right type for each field."""
    needed = [one for one in inspect.signature(kind).parameters.values() if one.default is inspect.Parameter.empty]
    return kind(*(VALUES[str(one.annotation)] for one in needed))


def test_the_nearest_base_class_has_the_row() -> None:
    table = {RequestError: "any", NotFound: "not found", SessionNotFound: "no session"}
    assert row_of(table, SessionNotFound("ses_1")) == "no session"
    assert row_of(table, MessageNotFound("ses_1", "msg_1")) == "not found"
    assert row_of(table, InvalidRequest("no")) == "any"


def test_every_route_has_the_face_of_its_folder() -> None:
    """So a path without a route gets errors of the same form as the routes beside it."""
    apart = {one.id for one in collect(modules()) if one.face is not FACES.owner_of(one.operation.path)}
    assert apart == {
        "v1.get_metrics",
        "server.openapi",
        "acp.connect",
        "acp.end",
        "acp.message",
    }  # Prometheus looks for /metrics, clients of 2.x for /openapi.json


@pytest.mark.parametrize(
    ("path", "face"),
    [
        ("/", OPENCODE1),
        ("/session", OPENCODE1),
        ("/api", OPENCODE1),
        ("/api/session", OPENCODE2),
        ("/auth/connect/x", OPENCODE2),
        ("/auth/anthropic", OPENCODE1),
        ("/v1/sessions", V1),
        ("/inspector/api/x", V1),
        ("/inspector", OPENCODE1),
        ("/session/v1/x", OPENCODE1),
    ],
)
def test_a_path_belongs_to_the_face_of_its_folder(path: str, face: Face) -> None:
    assert FACES.owner_of(path) is face


def test_a_fault_names_its_field_and_its_place() -> None:
    fault = InvalidRequest("Expected string, got 5", path=("parts", 0, "text"))
    assert (fault.field, fault.message) == ("parts", 'Expected string, got 5\n  at ["parts"][0]["text"]')
    assert (InvalidRequest("no").field, InvalidRequest("no").message) == (None, "no")
