"""Checks every response and event against the schemas of OpenCode 1's own document.

    check_response(operation_id, status, body)    raises Violation
    check_event(event)                            one event of /event
    check_global_event(item)                      one item of /global/event

Where we differ on purpose, `divergences.toml` says so with a reason; a difference that is not there is a fault, and an
entry that is no difference any more is stale (`stale`). Validators are built when they are needed and kept.
Source: compat_fixtures/opencode/<version>/openapi.json.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import jsonschema_rs

from tools.generate import DOCUMENT

FIXTURES = DOCUMENT.parent
METHODS = frozenset({"get", "put", "post", "delete", "patch"})
REFERENCE = "#/components/schemas/"
SHOWN_ERRORS = 5
SHOWN_LENGTH = 1500


class Violation(AssertionError):
    """An answer or event that OpenCode's document does not allow; says where and what."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A difference on purpose.

    operation  operationId or `event:TYPE`, with `*`; status: of the answer, 0 for events
    pointer    JSON pointer (with `*`) in the answer that may be wrong, `/` for the answer itself
    instead    name of the schema that holds instead, of the document or of `[schemas]`
    example    an answer that only the divergence allows: what keeps the entry from going stale
    """

    operation: str
    status: int
    reason: str
    example: Any
    pointer: str = ""
    instead: str = ""

    def covers(self, operation: str, status: int) -> bool:
        return self.status == status and fnmatchcase(operation, self.operation)


def schemas_below(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a document's schemas that one needs. A validator copies all that it is given: a document takes megabytes."""
    found: dict[str, Any] = {}
    left = list(_references(schema))
    while left:
        name = left.pop()
        if name not in found:
            found[name] = schemas[name]
            left += _references(schemas[name])
    return found


def _references(schema: Any) -> frozenset[str]:
    """The names of the document's schemas that a schema names itself."""
    if isinstance(schema, Mapping):
        own = schema.get("$ref")
        inner = frozenset[str]().union(*map(_references, schema.values()))
        return inner | {own.removeprefix(REFERENCE)} if isinstance(own, str) else inner
    if isinstance(schema, list):
        return frozenset[str]().union(*map(_references, schema))
    return frozenset()


class OpenApi:
    """An OpenAPI document: its operations, and which values its schemas allow."""

    def __init__(self, document: Mapping[str, Any], more_schemas: Mapping[str, Any] | None = None) -> None:
        self.document = document
        self.schemas: dict[str, Any] = {**document["components"]["schemas"], **(more_schemas or {})}
        self.operations = {
            operation["operationId"]: (method.upper(), path, operation)
            for path, item in document["paths"].items()
            for method, operation in item.items()
            if method in METHODS
        }
        self._paths = [
            (method, re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)).replace(r"/\*", "/.*") + "/?"), name)
            for name, (method, path, _) in self.operations.items()
        ]
        # Fixed paths before those with placeholders: /session/status is no session.
        self._paths.sort(key=lambda row: row[1].pattern.count("[^/]+"))
        self._validators: dict[str, jsonschema_rs.Validator] = {}

    def operation_of(self, method: str, path: str) -> str | None:
        """The operation that a request is; None if the document has none."""
        return next((name for verb, pattern, name in self._paths if verb == method and pattern.fullmatch(path)), None)

    def errors(self, schema: Mapping[str, Any], value: Any, *, key: str) -> Iterator[tuple[str, str]]:
        """(JSON pointer, message) of each error. `key` names the schema: its validator is kept."""
        validator = self._validators.get(key)
        if validator is None:
            whole = {**schema, "components": {"schemas": schemas_below(schema, self.schemas)}}
            validator = self._validators.setdefault(key, jsonschema_rs.Draft202012Validator(whole))
        for error in validator.iter_errors(value):
            yield "".join(f"/{step}" for step in error.instance_path) or "/", error.message


class Oracle(OpenApi):
    """One version's document and divergences. Make it with `oracle()`."""

    def __init__(self, document: Mapping[str, Any], divergences: Mapping[str, Any]) -> None:
        super().__init__(document, divergences.get("schemas", {}))
        self.divergences = tuple(Divergence(**row) for row in divergences.get("divergence", ()))
        self._events = self._by_type(self.schemas["Event"])
        self._global_events = self._by_type(self.schemas["GlobalEvent"]["properties"]["payload"])
        self._preview_events = self._by_type(self.schemas["V2Event"])

    def check_response(self, operation: str, status: int, body: Any, content_type: str = "application/json") -> None:
        """Raises Violation. In: the parsed JSON body, None for an empty one, a str for a text."""
        covering = [one for one in self.divergences if one.covers(operation, status)]
        schema = self.response_schema(operation, status, content_type)
        if schema is None:
            self._instead(f"{operation} {status} {content_type}", body, covering)
            return
        wrong = [] if schema == {} else list(self.errors(schema, body, key=f"{operation} {status} {content_type}"))
        left = [(pointer, message) for pointer, message in wrong if not _is_covered(pointer, covering)]
        if left and any(one.instead for one in covering):
            self._instead(f"{operation} {status}", body, covering)
        elif left:
            raise violation(f"{operation} {status}", left, body)

    def check_event(self, event: Mapping[str, Any]) -> None:
        """An event as on `/event`. Raises Violation."""
        self._check_event(event, self._events)

    def check_preview_event(self, event: Mapping[str, Any]) -> None:
        """An event of the preview's `/api/event`. Raises Violation."""
        self._check_event(event, self._preview_events)

    def check_global_event(self, item: Mapping[str, Any]) -> None:
        """An item of `/global/event`: directory, project, payload. Raises Violation."""
        payload = item.get("payload")
        if not isinstance(payload, dict):
            raise Violation(f"an item of /global/event without a payload: {item}")
        self._check_event(payload, self._global_events)
        kind = str(payload.get("type"))
        covering = [one for one in self.divergences if one.covers(f"global:{kind}", 0)]
        wrapper = {**self.schemas["GlobalEvent"], "properties": {**self.schemas["GlobalEvent"]["properties"], "payload": {}}}
        wrong = [row for row in self.errors(wrapper, item, key="GlobalEvent") if not _is_covered(row[0], covering)]
        if wrong:
            raise violation(f"/global/event {kind}", wrong, item)

    def stale(self) -> list[str]:
        """Entries that the document allows by now, or that no operation or event needs."""
        found: list[str] = []
        for one in self.divergences:
            plain = Oracle(self.document, {"schemas": self.schemas})
            names = list(self._examples_for(one))
            if not names:
                found.append(f"{one.operation} {one.status}: there is no such operation or event")
            for name in names[:1]:
                if not _refuses(plain, name, one):
                    found.append(f"{name} {one.status}: the document allows its example")
                if _refuses(self, name, one):
                    found.append(f"{name} {one.status}: the entry does not allow its own example")
        return found

    def response_schema(self, operation: str, status: int, content_type: str) -> dict[str, Any] | None:
        """The declared schema; {} for a declared text or empty answer, None if the document has no such answer."""
        declared = self.operations[operation][2]["responses"].get(str(status))
        if declared is None:
            return None
        content = declared.get("content")
        if content is None:
            return {}
        for kind, entry in content.items():
            if kind.split(";")[0] == content_type.split(";")[0]:
                return entry.get("schema", {}) if kind == "application/json" else {}
        return None

    # --- inside

    def _examples_for(self, one: Divergence) -> Iterator[str]:
        if one.status:
            yield from (name for name in self.operations if fnmatchcase(name, one.operation))
        else:
            kind = one.operation.partition(":")[2]
            yield one.operation if "*" not in kind else one.operation.replace("*", "server.connected")

    def _check_event(self, event: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        kind = str(event.get("type"))
        covering = [one for one in self.divergences if one.covers(f"event:{kind}", 0)]
        schema = known.get(kind)
        if schema is None:
            self._instead(f"event {kind}", event, covering)
            return
        wrong = [row for row in self.errors(schema, event, key=f"{id(known)} {kind}") if not _is_covered(row[0], covering)]
        if wrong:
            raise violation(f"event {kind}", wrong, event)

    def _instead(self, what: str, body: Any, covering: Iterable[Divergence]) -> None:
        names = [one.instead for one in covering if one.instead]
        if not names:
            raise Violation(f"{what} is not declared by OpenCode's document, nor listed in divergences.toml: {short(body)}")
        for name in names:
            if not list(self.errors({"$ref": f"#/components/schemas/{name}"}, body, key=name)):
                return
        raise Violation(f"{what} is none of {', '.join(names)}: {short(body)}")

    def _by_type(self, union: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for branch in union["anyOf"]:
            schema = self.schemas[branch["$ref"].rsplit("/", 1)[-1]] if "$ref" in branch else branch
            for name in schema["properties"]["type"]["enum"]:
                told = schema["properties"].get("syncEvent", {}).get("properties", {}).get("type", {}).get("enum", [])
                found |= {f"sync {kind}": branch for kind in told} or {name: branch}
        return found


@cache
def oracle() -> Oracle:
    """The judge for the version that we speak."""
    document = json.loads((FIXTURES / "openapi.json").read_text())
    return Oracle(document, tomllib.loads((FIXTURES / "divergences.toml").read_text()))


def check_response(operation: str, status: int, body: Any, content_type: str = "application/json") -> None:
    """See `Oracle.check_response`."""
    oracle().check_response(operation, status, body, content_type)


def check_event(event: Mapping[str, Any]) -> None:
    """See `Oracle.check_event`."""
    oracle().check_event(event)


def check_preview_event(event: Mapping[str, Any]) -> None:
    """See `Oracle.check_preview_event`."""
    oracle().check_preview_event(event)


def check_global_event(item: Mapping[str, Any]) -> None:
    """See `Oracle.check_global_event`."""
    oracle().check_global_event(item)


def _is_covered(pointer: str, covering: Iterable[Divergence]) -> bool:
    return any(one.pointer and fnmatchcase(pointer, one.pointer) for one in covering)


def _refuses(judge: Oracle, name: str, one: Divergence) -> bool:
    try:
        if one.status:
            judge.check_response(name, one.status, one.example)
        elif name.startswith("global:"):
            judge.check_global_event(one.example)
        else:
            judge.check_event(one.example)
    except Violation:
        return True
    return False


def violation(what: str, wrong: Sequence[tuple[str, str]], body: Any) -> Violation:
    """The error for an answer or event with these errors of its schema."""
    lines = [f"  {pointer}: {message[:300]}" for pointer, message in wrong[:SHOWN_ERRORS]]
    return Violation(f"{what} is not as OpenCode's document says:\n" + "\n".join(lines) + f"\n  in {short(body)}")


def short(body: Any) -> str:
    """The beginning of a value as JSON, for people."""
    text = json.dumps(body, ensure_ascii=False, default=str)
    return text if len(text) < SHOWN_LENGTH else text[:SHOWN_LENGTH] + "..."
