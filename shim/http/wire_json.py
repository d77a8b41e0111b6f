"""JSON in and out of HTTP bodies: orjson, and a slow path for what it refuses but clients and agents do send.

Broken halves of UTF-16 pairs (`"\\ud83d"`) become U+FFFD: JavaScript sends them as escapes, agents put them into texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, cast

import orjson
from pydantic import BaseModel

DEPTH_LIMIT = 128
"""Lists and objects inside of each other in a body. Every parser and writer on our way takes this much; some not twice that."""


class MalformedJson(ValueError):
    """Not JSON; the text says what is wrong and where."""


TOO_DEEP = f"it is nested too deeply, at most {DEPTH_LIMIT} levels are taken"


def loads(raw: bytes) -> Any:
    """The value of a body. Raises Malformed."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = _slowly(raw)
    # Most bodies have so few that they cannot be too deep.
    if raw.count(b"[") + raw.count(b"{") > DEPTH_LIMIT and _is_deep(value):
        raise MalformedJson(TOO_DEEP)
    return value


def _slowly(raw: bytes) -> Any:
    try:
        value = json.loads(raw.decode("utf-8-sig", "replace"), parse_constant=_refuse)
        if _is_deep(value):
            raise MalformedJson(TOO_DEEP)
        return scrub(value)
    except RecursionError as error:
        raise MalformedJson(TOO_DEEP) from error
    except ValueError as error:
        raise MalformedJson(str(error)) from error


def _is_deep(value: Any) -> bool:
    """Level by level, so that no depth is too much for us."""
    level: list[Any] = [value]
    for _ in range(DEPTH_LIMIT):
        level = [inner for outer in level for inner in _inner(outer) if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def dumps(value: object) -> bytes:
    """A body. pydantic models may stand anywhere in it; fields that are None are left out of them."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError:
        # Lone surrogates, or integers above 64 bits.
        return json.dumps(scrub(json.loads(json.dumps(value, default=_plain))), ensure_ascii=False).encode()


def exact(value: object) -> bytes:
    """A JSON text of the same value, whatever agents send: lone surrogates as escapes, integers of any size. NaN is null."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in cast("dict[str, Any]", value).items()}
    return value


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
