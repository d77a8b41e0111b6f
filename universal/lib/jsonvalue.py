"""Typed access to JSON of unknown shape. Each function returns the value if it has the type, else an empty one."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object. Callers must check the types of its values."""

MAX_DEPTH = 100
"""Levels of nesting that `whole_numbers` converts."""


def obj(value: Any) -> dict[str, Any]:
    """Return the value if it is a JSON object, else {}."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def arr(value: Any) -> list[Any]:
    """Return the value if it is a JSON array, else []."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text(value: Any, default: str = "") -> str:
    """Return the value if it is a string, else the default."""
    return value if isinstance(value, str) else default


def present(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {key: value for key, value in fields.items() if value is not None}


def whole_number(value: Any) -> Any:
    """Return a float without a fraction as an int (in JSON `5.0` is `5`), and any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def whole_numbers(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Apply `whole_number` to all numbers of a JSON value, down to `depth` levels."""
    if depth == 0:
        return value
    if isinstance(value, dict):
        return {key: whole_numbers(inner, depth - 1) for key, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [whole_numbers(inner, depth - 1) for inner in cast("list[Any]", value)]
    return whole_number(value)


def whole(value: Any, default: int = 0) -> int:
    """Return a number (not a boolean) as an int, else the default."""
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default
