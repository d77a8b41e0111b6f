"""Checks our answers and events against OpenCode 2's document (`v2_0`, 2.0.21), as `oracle` does for OpenCode 1.

    check_response(operation_id, status, body)    raises Violation
    check_event(event)                            one event of /api/event
    check_log_item(item)                          one item of a session's log
    check_type("SessionMessageInfo", value)       a value of a named type

Objects have exactly the members that the wire knows. Source: `shim/faces/opencode2/schema.json`,
made from compat_fixtures/opencode2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from tests.support.oracle import METHODS, Violation

SCHEMA = Path(__file__).resolve().parent.parent.parent / "shim" / "faces" / "opencode2" / "schema.json"
SHOWN_ERRORS = 5
SHOWN_LENGTH = 1500


class OpenCode2Oracle:
    """The wire's document. Make it with `oracle2()`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.schemas: dict[str, Any] = document["components"]["schemas"]
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
        # Fixed paths before those with placeholders: /api/session/active is no session.
        self._paths.sort(key=lambda row: row[1].pattern.count("[^/]+"))
        self._validators: dict[str, jsonschema_rs.Validator] = {}

    def operation_of(self, method: str, path: str) -> str | None:
        """The operation that a request is; None if the wire has none."""
        return next((name for verb, pattern, name in self._paths if verb == method and pattern.fullmatch(path)), None)

    def check_response(self, operation: str, status: int, body: Any, content_type: str = "application/json") -> None:
        """Raises Violation. In: the parsed JSON body, None for an empty one, a str for a text."""
        responses = self.operations[operation][2]["responses"]
        what = f"{operation} {status}"
        declared = responses.get(str(status)) or (responses["default"] if status >= 400 else None)
        if declared is None:
            raise Violation(f"{what}: clients take {[key for key in responses if key < '4']} alone for a success: {_short(body)}")
        content = declared.get("content")
        if content is None:
            if body is not None:
                raise Violation(f"{what} must be empty: {_short(body)}")
            return
        kind = content_type.split(";")[0]
        if kind not in content:
            raise Violation(f"{what} is {kind}, not {', '.join(content)}")
        if kind == "application/json":
            # A status may have other errors than those of the operation: what no operation declares is in `default`.
            schemas = [content[kind]["schema"]]
            if status >= 400:
                schemas += [responses["default"]["content"][kind]["schema"]]
            self._check(what, {"anyOf": schemas} if len(schemas) > 1 else schemas[0], body)

    def check_event(self, event: Mapping[str, Any]) -> None:
        """An event as on `/api/event`. Raises Violation."""
        kind = str(event.get("type"))
        name = f"Event.{kind}" if f"Event.{kind}" in self.schemas else "RpcEvent"
        self.check_type(name, event, f"event {kind}")

    def check_log_item(self, item: Mapping[str, Any]) -> None:
        """An item of a session's log: a durable event without a location, or the mark. Raises Violation."""
        if item.get("type") == "log.synced":
            self.check_type("LogSynced", item)
            return
        self.check_event(item)
        if "durable" not in item or "location" in item:
            raise Violation(f"the log has durable events without a location: {_short(item)}")

    def check_type(self, name: str, value: Any, what: str = "") -> None:
        """A value of a named type. Raises Violation."""
        self._check(what or name, {"$ref": f"#/components/schemas/{name}"}, value)

    def _check(self, what: str, schema: dict[str, Any], value: Any) -> None:
        key = json.dumps(schema)
        validator = self._validators.get(key)
        if validator is None:
            whole = {**schema, "components": {"schemas": self.schemas}}
            validator = self._validators.setdefault(key, jsonschema_rs.Draft202012Validator(whole))
        wrong = [f"  {''.join(f'/{s}' for s in e.instance_path) or '/'}: {e.message[:300]}" for e in validator.iter_errors(value)]
        if wrong:
            raise Violation(
                f"{what} is not as OpenCode 2 has it:\n" + "\n".join(wrong[:SHOWN_ERRORS]) + f"\n  in {_short(value)}"
            )


@cache
def opencode2_oracle() -> OpenCode2Oracle:
    """The judge for `v2_0`."""
    return OpenCode2Oracle(json.loads(SCHEMA.read_text()))


def check_response(operation: str, status: int, body: Any, content_type: str = "application/json") -> None:
    """See `Oracle2.check_response`."""
    opencode2_oracle().check_response(operation, status, body, content_type)


def check_event(event: Mapping[str, Any]) -> None:
    """See `Oracle2.check_event`."""
    opencode2_oracle().check_event(event)


def check_log_item(item: Mapping[str, Any]) -> None:
    """See `Oracle2.check_log_item`."""
    opencode2_oracle().check_log_item(item)


def check_type(name: str, value: Any) -> None:
    """See `Oracle2.check_type`."""
    opencode2_oracle().check_type(name, value)


def _short(body: Any) -> str:
    text = json.dumps(body, ensure_ascii=False, default=str)
    return text if len(text) < SHOWN_LENGTH else text[:SHOWN_LENGTH] + "..."
