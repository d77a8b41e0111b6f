"""Parses and writes JSON bodies with orjson, and with a slower path for values that orjson refuses.

Lone surrogates (`"\\ud83d"`) become U+FFFD: JavaScript sends them as escapes, and agents put them into texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, cast

import orjson
from pydantic import BaseModel

DEPTH_LIMIT = 128
"""Maximum nesting of lists and objects in a body. All our parsers and writers support it; some do not support twice that."""


class MalformedJson(ValueError):
    """The text is not JSON. The message says what is wrong and where."""


TOO_DEEP = f"it is nested too deeply, at most {DEPTH_LIMIT} levels are taken"


def loads(raw: bytes) -> Any:
    """Parse a body. Raises MalformedJson."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = _slowly(raw)
    # Most bodies have so few brackets that they cannot be too deep.
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
    """Whether a value exceeds DEPTH_LIMIT. It goes level by level, without recursion."""
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
    """Write a body. It may contain pydantic models, whose None fields are left out."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError:
        # orjson refuses lone surrogates and integers above 64 bits.
        return json.dumps(scrub(json.loads(json.dumps(value, default=_plain))), ensure_ascii=False).encode()


def fragment(body: bytes) -> object:
    """A value for `dumps` that was written already. Use it for no other function."""
    return orjson.Fragment(body)


def exact(value: object) -> bytes:
    """Write exactly the same value: lone surrogates as escapes, integers of any size. Only NaN becomes null."""
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
    """Replace lone surrogates in a JSON value."""
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
