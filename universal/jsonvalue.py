"""Looking into JSON of unknown shape: each function gives the value if it has the type, else an empty one."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object. Whoever uses a value of it checks its type."""

MAX_DEPTH = 100
"""How deep `whole_numbers` looks."""


def obj(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else {}."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def arr(value: Any) -> list[Any]:
    """The value if it is a JSON array, else []."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text(value: Any, default: str = "") -> str:
    """The value if it is a string, else the default."""
    return value if isinstance(value, str) else default


def whole_number(value: Any) -> Any:
    """A float without a fraction as an int (JSON has one kind of number: `5.0` is `5`); any other value as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def whole_numbers(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A JSON value with `whole_number` in place of each of its numbers; what is deeper than `depth` stays as it is."""
    if depth == 0:
        return value
    if isinstance(value, dict):
        return {key: whole_numbers(inner, depth - 1) for key, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [whole_numbers(inner, depth - 1) for inner in cast("list[Any]", value)]
    return whole_number(value)


def whole(value: Any, default: int = 0) -> int:
    """The value if it is a number (not a boolean), as an int, else the default."""
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default
