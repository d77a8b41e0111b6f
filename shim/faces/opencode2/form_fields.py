"""Validates the fields of a form, and the answer to a form. Pure. Source: `FormFields`, `FormAnswer` of 2.0.21.

An answer has a value for each visible field. A field with `when` is visible if all its conditions hold for the other answers.
A field that is not `required` may be left out. `external` is a page to open and takes no value. A `pattern` is a JavaScript
pattern, which clients check and the server only passes on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from shim.faces.opencode2.events import ReadOnlyWire
from shim.lib.errors import InvalidRequest
from universal.lib.jsonvalue import arr, obj, text

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import types

EVERY = ("key", "type", "title", "description")
BASE = (*EVERY, "required", "hidden", "when")
KEYS: Mapping[str, Sequence[str]] = {
    "string": (*BASE, "format", "minLength", "maxLength", "pattern", "placeholder", "default", "options", "custom"),
    "number": (*BASE, "minimum", "maximum", "default"),
    "integer": (*BASE, "minimum", "maximum", "default"),
    "boolean": (*BASE, "default"),
    "multiselect": (*BASE, "options", "minItems", "maxItems", "custom", "default"),
    "external": (*EVERY, "url"),
}
"""Type of a field -> its keys. Other keys are left out."""


def fields_of(rows: Sequence[ReadOnlyWire]) -> list[types.FormField]:
    """Validate the fields of a new form. Raises InvalidRequest."""
    fields: list[types.FormField] = []
    for number, row in enumerate(rows):
        field = {key: row[key] for key in KEYS[row["type"]] if row.get(key) is not None}
        why = _field_fault(field, {earlier["key"] for earlier in fields})
        if why:
            raise InvalidRequest(why, path=("fields", number))
        fields.append(cast("types.FormField", field))  # the request body and `KEYS` hold its shape
    return fields


def _field_fault(field: ReadOnlyWire, earlier_keys: set[str]) -> str:
    if field["key"] in earlier_keys:
        return f'There are two fields "{field["key"]}"'
    if field["type"] == "multiselect" and not field.get("options"):
        return "A multiselect has options"
    if field["type"] == "external" and not field.get("url"):
        return "An external field has a url"
    unknown = [obj(condition)["key"] for condition in arr(field.get("when")) if obj(condition)["key"] not in earlier_keys]
    if unknown:
        return f'`when` names a field before it, not "{unknown[0]}"'
    return ""


def invalid(fields: Sequence[ReadOnlyWire], answer: Mapping[str, Any]) -> str | None:
    """Why an answer is invalid, in OpenCode's words where known, or None if it is valid."""
    by_key = {field["key"]: field for field in fields}
    for key in answer:
        if key not in by_key:
            return f"Unknown form field: {key}"
    for key, field in by_key.items():
        visible = all(_holds(obj(condition), answer) for condition in arr(field.get("when")))
        if key not in answer:
            if field.get("required") is True and visible:
                return f"Missing form field: {key}"
            continue
        if not visible:
            return f"Form field is not shown for these answers: {key}"
        if (wrong := _CHECKS[field["type"]](field, answer[key])) is not None:
            return f"{wrong} for form field: {key}"
    return None


def _holds(when: ReadOnlyWire, answer: Mapping[str, Any]) -> bool:
    return (answer.get(when["key"]) == when["value"]) == (when["op"] == "eq")


def _string(field: ReadOnlyWire, value: Any) -> str | None:
    if not isinstance(value, str):
        return "Expected string"
    options = _options(field)
    if options and field.get("custom") is False and value not in options:
        return f"Expected one of {', '.join(options)}"
    if len(value) < field.get("minLength", 0) or len(value) > field.get("maxLength", len(value)):
        return f"Expected {field.get('minLength', 0)} to {field.get('maxLength', 'any number of')} characters"
    if not _FORMATS[field.get("format", "")](value):
        return f"Expected a string of the format {field['format']}"
    return None


def _number(field: ReadOnlyWire, value: Any) -> str | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return f"Expected {field['type']}"
    if field["type"] == "integer" and value != int(value):
        return "Expected integer"
    if value < field.get("minimum", value) or value > field.get("maximum", value):
        return f"Expected {field['type']} from {field.get('minimum', 'any')} to {field.get('maximum', 'any')}"
    return None


def _boolean(_field: ReadOnlyWire, value: Any) -> str | None:
    return None if isinstance(value, bool) else "Expected boolean"


def _list_fault(field: ReadOnlyWire, value: Any) -> str | None:
    choices: list[Any] = arr(value)
    if not isinstance(value, list) or not all(isinstance(choice, str) for choice in choices):
        return "Expected string[]"
    options = _options(field)
    if field.get("custom") is False and not set(choices) <= set(options):
        return f"Expected one of {', '.join(options)}"
    if len(choices) < field.get("minItems", 0) or len(choices) > field.get("maxItems", len(choices)):
        return f"Expected {field.get('minItems', 0)} to {field.get('maxItems', 'any number of')} items"
    return None


def _external(_field: ReadOnlyWire, _value: Any) -> str | None:
    return "Expected nothing, it is a page to open,"


def _options(field: ReadOnlyWire) -> list[str]:
    return [text(obj(option).get("value")) for option in arr(field.get("options"))]


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return check


_CHECKS: Mapping[str, Callable[[ReadOnlyWire, Any], str | None]] = {
    "string": _string,
    "number": _number,
    "integer": _number,
    "boolean": _boolean,
    "multiselect": _list_fault,
    "external": _external,
}
_FORMATS: Mapping[str, Callable[[str], bool]] = {
    "": lambda _: True,
    "email": lambda value: re.fullmatch(r"[^@\s]+@[^@\s]+", value) is not None,
    "uri": lambda value: bool(urlsplit(value).scheme) if _parses(urlsplit)(value) else False,
    "date": _parses(date.fromisoformat),
    "date-time": _parses(datetime.fromisoformat),
}
