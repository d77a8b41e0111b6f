"""Describes faults of a request in OpenCode's words: `Expected array, got "Red"\\n  at ["answers"]`. Pure.

Source: recordings of OpenCode 1.18.33 (`endpoints`, `tui`, `misc`). Like native OpenCode, it names only the first fault.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from shim.lib.errors import place_text

EXCERPT_CHARS = 200

EXPECTED_TYPES = {
    "string_type": "string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "number",
    "float_parsing": "number",
    "bool_type": "boolean",
    "bool_parsing": "boolean",
    "list_type": "array",
    "tuple_type": "array",
    "dict_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
    "none_required": "null",
}
"""pydantic's type of error -> the type that OpenCode says it expected."""


class Fault(NamedTuple):
    """A fault of a request, and the keys and indices that lead to it."""

    reason: str
    path: list[str | int]

    @property
    def message(self) -> str:
        return self.reason + place_text(self.path)


Located: TypeAlias = tuple[ErrorDetails, list[str | int]]
"""A pydantic error and the path to it."""


def fault(error: ValidationError, value: Any) -> Fault:
    """Return the first fault of a validation. In: the validated value, to tell keys from names of union members."""
    return fault_of(located_errors(error, value))


def located_errors(error: ValidationError, value: Any) -> list[Located]:
    """List pydantic's errors, each with the path of keys and indices to it."""
    return [(details, place(details, value)) for details in error.errors(include_url=False, include_context=True)]


def fault_of(errors: list[Located]) -> Fault:
    """Return the first fault. Each member of a union reports one; the one with the longest path matched best."""
    start = errors[0][1]
    details, path = max((error for error in errors if error[1][: len(start)] == start), key=lambda error: len(error[1]))
    return Fault(_describe(details), path)


def place(error: ErrorDetails, value: Any) -> list[str | int]:
    """Return the path of keys and indices to a fault, without the model names and union tags in pydantic's path."""
    path: list[str | int] = []
    for step in error["loc"]:
        if isinstance(value, dict) and isinstance(step, str):
            members = cast("dict[str, Any]", value)
            if step not in members and (error["type"] != "missing" or step is not error["loc"][-1]):
                continue
            path.append(step)
            value = members.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            items = cast("list[Any]", value)
            path.append(step)
            value = items[step] if step < len(items) else None
    return path


def _describe(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "Missing key"
        case "literal_error" | "union_tag_invalid" | "enum":
            expected = _choices(str(context.get("expected") or context.get("expected_tags")))
        case "string_pattern_mismatch":
            expected = _pattern(str(context.get("pattern")))
        case "id_form":
            expected = str(context.get("expected"))
        case "greater_than_equal":
            return f"Expected a value greater than or equal to {context.get('ge')}, got {error['input']}"
        case "greater_than":
            return f"Expected a value greater than {context.get('gt')}, got {error['input']}"
        case "less_than_equal":
            return f"Expected a value less than or equal to {context.get('le')}, got {error['input']}"
        case "union_tag_not_found":
            expected = f"an object with {context.get('discriminator')}"
        case kind:
            expected = EXPECTED_TYPES.get(kind, "")
    excerpt = _excerpt(error["input"])
    return f"Expected {expected}, got {excerpt}" if expected else f"{error['msg']}, got {excerpt}"


def _choices(text: str) -> str:
    """`'a', 'b' or 'c'` -> `"a" | "b" | "c"`."""
    return " | ".join(json.dumps(name) for name in re.findall(r"'([^']*)'", text)) or text


def _pattern(pattern: str) -> str:
    plain = re.fullmatch(r"\^([A-Za-z0-9_]+)", pattern)
    return f'a string starting with "{plain[1]}"' if plain else f"a string matching {pattern}"


def _excerpt(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text if len(text) <= EXCERPT_CHARS else text[:EXCERPT_CHARS] + "..."
