"""Reads untrusted lines of JSON, and fields of the result; writes what others have made as JSON."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import orjson

from universal.items import Json
from universal.lib.jsonvalue import JsonObject, arr, obj

DEEPEST = 100
"""Maximum levels of nesting. A deeper value cannot be stored, and no agent means one."""
_ESCAPE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])"
_AROUND = re.compile(rf"^(?:{_ESCAPE}|[\ufeff\x00-\x20\x7f])+|(?:{_ESCAPE}|[\x00-\x20\x7f])+$")
"""What a terminal, a shell or a byte order mark adds before and after a line."""


encode: Callable[[Json], bytes] = orjson.dumps
"""The inverse of `parse`. NaN becomes null. Raises TypeError for lone surrogates, integers beyond 64 bits, and other values."""


def parse(line: bytes) -> Json:
    """Parse one line into JSON that can be stored again.

    Invalid UTF-8 and lone surrogates become U+FFFD; integers beyond 64 bits become floats, as they are in
    the agent itself (JavaScript). Escape sequences and a byte order mark around it are left out. Raises ValueError for what is no
    JSON or nested deeper than `DEEPEST`.
    """
    if line.count(b"[") + line.count(b"{") <= DEEPEST:
        try:
            return orjson.loads(line)
        except orjson.JSONDecodeError:  # the slow path below repairs the line, or says what is wrong with it
            pass
    text = _AROUND.sub("", line.decode("utf-8", errors="replace"))
    if text.count("[") + text.count("{") > DEEPEST and _depth(text) > DEEPEST:
        raise ValueError(f"nested deeper than {DEEPEST} levels")
    value = json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=_no_constant)
    return _without_surrogates(value) if "\\ud" in text or "\\uD" in text else value


def _integer(digits: str) -> int | float:
    if len(digits) < 19:
        return int(digits)
    return float(digits) if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64 else int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not abs(value) < float("inf"):
        raise ValueError(f"{digits[:20]} is too large")
    return value


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _depth(text: str) -> int:
    """Return an upper bound of the nesting. Unclosed brackets in strings count too."""
    deepest = level = 0
    for char in text:
        if char in "[{":
            level += 1
            deepest = max(deepest, level)
        elif char in "]}":
            level -= 1
    return deepest


def _replace_surrogates(text: str) -> str:
    """A text in which lone surrogates are U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _without_surrogates(value: Json) -> Json:
    if isinstance(value, str):
        return _replace_surrogates(value)
    if isinstance(value, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in obj(value).items()}
    if isinstance(value, list):
        return [_without_surrogates(v) for v in arr(value)]
    return value


def to_json(value: Any) -> bytes:
    """Encode JSON with orjson, or with the standard library if orjson refuses (lone surrogates, integers over 64 bits).

    Raises nothing: a lone surrogate becomes U+FFFD, and a value that is no JSON becomes its `str`.
    """
    try:
        return b"%b" % orjson.dumps(value)  # a copy: what orjson returns occupies 4 KiB, however short it is
    except TypeError:  # orjson.JSONEncodeError is one
        return json.dumps(_clean(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _clean(value: Any) -> Any:
    """A copy of `value` with valid UTF-8 and JSON values only."""
    if isinstance(value, str):
        return _replace_surrogates(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_clean(str(key)): _clean(inner) for key, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in cast("Sequence[Any]", value)]
    return _clean(str(value))


def get_text(msg: Mapping[str, Json], *keys: str) -> str:
    """Return the first of these fields that is a non-empty string, else ""."""
    for key in keys:
        value = msg.get(key)
        if value and isinstance(value, str):
            return value
    return ""


def get_int(msg: Mapping[str, Json], key: str) -> int:
    """Return the field as a whole number (floats are rounded), else 0."""
    value = msg.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 2**53:
        return 0
    return round(value)


def digest(line: bytes) -> str:
    """Return the sha256 of a raw line, for `agent.unparsed`."""
    return "sha256:" + hashlib.sha256(line).hexdigest()


def objects(data: bytes) -> Iterator[JsonObject]:
    """The JSON objects among lines, of which the first and the last may be cut."""
    for line in data.splitlines():
        with suppress(ValueError):
            row = parse(line)
            if isinstance(row, dict):
                yield obj(row)


def result_of(rows: Iterable[JsonObject], id_: int) -> JsonObject | None:
    """The result of the answer to a request of JSON-RPC; {} for an error, None without one."""
    answer = next((row for row in rows if row.get("id") == id_ and "method" not in row), None)
    return None if answer is None else obj(answer.get("result"))
