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
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.oracle import OpenApi, Violation, short, violation

SCHEMA = Path(__file__).resolve().parent.parent.parent / "shim" / "faces" / "opencode2" / "schema.json"


class OpenCode2Oracle(OpenApi):
    """The wire's document. Make it with `opencode2_oracle()`."""

    def check_response(self, operation: str, status: int, body: Any, content_type: str = "application/json") -> None:
        """Raises Violation. In: the parsed JSON body, None for an empty one, a str for a text."""
        responses = self.operations[operation][2]["responses"]
        what = f"{operation} {status}"
        declared = responses.get(str(status)) or (responses["default"] if status >= 400 else None)
        if declared is None:
            raise Violation(f"{what}: clients take {[key for key in responses if key < '4']} alone for a success: {short(body)}")
        content = declared.get("content")
        if content is None:
            if body is not None:
                raise Violation(f"{what} must be empty: {short(body)}")
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
            raise Violation(f"the log has durable events without a location: {short(item)}")

    def check_type(self, name: str, value: Any, what: str = "") -> None:
        """A value of a named type. Raises Violation."""
        self._check(what or name, {"$ref": f"#/components/schemas/{name}"}, value)

    def _check(self, what: str, schema: dict[str, Any], value: Any) -> None:
        wrong = list(self.errors(schema, value, key=json.dumps(schema)))
        if wrong:
            raise violation(what, wrong, value)


@cache
def opencode2_oracle() -> OpenCode2Oracle:
    """The judge for `v2_0`."""
    return OpenCode2Oracle(json.loads(SCHEMA.read_text()))


def check_response(operation: str, status: int, body: Any, content_type: str = "application/json") -> None:
    """See `OpenCode2Oracle.check_response`."""
    opencode2_oracle().check_response(operation, status, body, content_type)


def check_event(event: Mapping[str, Any]) -> None:
    """See `OpenCode2Oracle.check_event`."""
    opencode2_oracle().check_event(event)


def check_log_item(item: Mapping[str, Any]) -> None:
    """See `OpenCode2Oracle.check_log_item`."""
    opencode2_oracle().check_log_item(item)


def check_type(name: str, value: Any) -> None:
    """See `OpenCode2Oracle.check_type`."""
    opencode2_oracle().check_type(name, value)
