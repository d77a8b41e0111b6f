"""Looking into JSON of unknown shape: each function gives the value if it has the type, else an empty one."""

from __future__ import annotations

from typing import Any, cast


def obj(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else {}."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def arr(value: Any) -> list[Any]:
    """The value if it is a JSON array, else []."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text(value: Any, default: str = "") -> str:
    """The value if it is a string, else the default."""
    return value if isinstance(value, str) else default


def whole(value: Any, default: int = 0) -> int:
    """The value if it is a number (not a boolean), as an int, else the default."""
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default
