"""The shape of JSON, which is its keys and types without the values. Two servers are compared by it.

shape({"id": "a", "n": 1})            {"id": "str", "n": "num"}
shape([{"type": "text", "t": "x"}])   {"[]": {"text": {"type": "str", "t": "str"}}}: elements by `type` or `role`, merged
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

OPEN = frozenset(
    {"metadata", "input", "structured", "options", "env", "headers", "provider", "agent", "command", "mcp"}
    | {"models", "parameters", "variants", "default"}
)
"""Objects whose keys are names of things, or the tool's own: only that they are objects counts."""
SCALARS: dict[type, str] = {str: "str", bool: "bool", int: "num", float: "num", type(None): "null"}


def shape(value: Any, key: str = "") -> Any:
    """See the module."""
    if isinstance(value, dict):
        if key in OPEN:
            return "object"
        return {_name_of(name): shape(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        merged: dict[str, Any] = {}
        for inner in value:
            kind = _kind(inner)
            merged[kind] = merge(merged[kind], shape(inner)) if kind in merged else shape(inner)
        return {"[]": merged}
    return SCALARS[type(value)]


def merge(one: Any, two: Any) -> Any:
    """The keys of both; where types differ, the first."""
    if isinstance(one, dict) and isinstance(two, dict):
        return {**two, **{key: merge(inner, two[key]) if key in two else inner for key, inner in one.items()}}
    return one


def differences(native: Any, ours: Any, at: str = "") -> Iterator[str]:
    """`-POINTER` for what we lack, `+POINTER` for what native has not, `!POINTER NATIVE OURS` for another type.

    Elements of lists are compared where both have their kind: what is in a list is the agent's.
    """
    if not isinstance(native, dict) or not isinstance(ours, dict):
        if native != ours:
            yield f"!{at or '/'} {_name(native)} {_name(ours)}"
        return
    if "[]" in native and "[]" in ours:
        for kind in native["[]"].keys() & ours["[]"].keys():
            yield from differences(native["[]"][kind], ours["[]"][kind], f"{at}/{kind}")
        return
    yield from (f"-{at}/{key}" for key in native if key not in ours)
    yield from (f"+{at}/{key}" for key in ours if key not in native)
    for key in native:
        if key in ours:
            yield from differences(native[key], ours[key], f"{at}/{key}")


def _name_of(key: str) -> str:
    """Of a key that is an id: which kind of id."""
    return f"{key[:4]}*" if key.startswith(("ses_", "msg_")) else key


def _kind(value: Any) -> str:
    if not isinstance(value, dict):
        return SCALARS.get(type(value), "list")
    info = value.get("info")
    found = value.get("type") or value.get("role") or (info.get("role") if isinstance(info, dict) else None)
    return found if isinstance(found, str) else "*"


def _name(value: Any) -> str:
    return value if isinstance(value, str) else "list" if "[]" in value else "object"
