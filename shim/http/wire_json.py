"""JSON in and out of HTTP bodies: orjson, and a slow path for what it refuses but clients and agents do send.

Broken halves of UTF-16 pairs (`"\\ud83d"`) become U+FFFD: JavaScript sends them as escapes, agents put them into texts.
"""

from __future__ import annotations

import json
from typing import Any, cast

import orjson
from pydantic import BaseModel


class Malformed(ValueError):
    """Not JSON; the text says what is wrong and where."""


def loads(raw: bytes) -> Any:
    """The value of a body. Raises Malformed."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return scrub(json.loads(raw.decode("utf-8-sig", "replace"), parse_constant=_refuse))
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error) if isinstance(error, ValueError) else "nested too deeply") from error


def dumps(value: object) -> bytes:
    """A body. pydantic models may stand anywhere in it; fields that are None are left out of them."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError:
        # Lone surrogates, or integers above 64 bits.
        return json.dumps(scrub(json.loads(json.dumps(value, default=_plain))), ensure_ascii=False).encode()


def scrub(value: Any) -> Any:
    """The same JSON value with lone surrogates replaced."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [scrub(inner) for inner in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {scrub(key): scrub(inner) for key, inner in cast("dict[str, Any]", value).items()}
    return value


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="python", by_alias=True, exclude_none=True)
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
