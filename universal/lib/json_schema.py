"""Checks JSON values against a JSON schema, and the schema itself. Pure.

It knows the keywords that describe data of agents and tools. Others are ignored, as the standard says for unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from universal.lib.jsonvalue import arr, obj, text

TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
}
DEPTH = 60
"""How deep schemas and values may be, and how many `$ref` may follow each other."""
_BOUNDS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("number", lambda value, bound: value >= bound),
    "maximum": ("number", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("number", lambda value, bound: value > bound),
    "exclusiveMaximum": ("number", lambda value, bound: value < bound),
    "minLength": ("string", lambda value, bound: len(value) >= bound),
    "maxLength": ("string", lambda value, bound: len(value) <= bound),
    "minItems": ("array", lambda value, bound: len(value) >= bound),
    "maxItems": ("array", lambda value, bound: len(value) <= bound),
    "pattern": ("string", lambda value, bound: re.search(bound, value) is not None),
}
"""Keyword -> (type that it is about, what must hold of value and bound)."""
_LISTS, _MAPS, _ONES = ("anyOf", "oneOf", "allOf", "prefixItems"), ("properties", "$defs", "definitions"), ("items", "not")


def schema_fault(schema: Any, root: Any = None, path: tuple[str | int, ...] = ()) -> tuple[str, tuple[str | int, ...]] | None:
    """What is wrong with a schema, and where; None if nothing is."""
    root = schema if root is None else root
    if isinstance(schema, bool) and path:
        return None
    if not isinstance(schema, dict) or len(path) > DEPTH:
        return ("a schema has to be an object" if len(path) <= DEPTH else "it is too deep"), path
    for key, value in obj(schema).items():
        place = (*path, key)
        if reason := _keyword_fault(key, value, root):
            return reason, place
        inner = [((*place, at), each) for at, each in enumerate(arr(value))] if key in _LISTS else []
        inner += [((*place, name), each) for name, each in obj(value).items()] if key in _MAPS else []
        inner += [(place, value)] if key in _ONES or key == "additionalProperties" else []
        for at, each in inner:
            if (found := schema_fault(each, root, at)) is not None:
                return found
    return None


def _keyword_fault(key: str, value: Any, root: Any) -> str:
    if key == "type" and not (value and all(each in TYPES for each in (arr(value) if isinstance(value, list) else [str(value)]))):
        return f"a type is one of {', '.join(TYPES)}"
    if key in ("enum", "required", *_LISTS) and not isinstance(value, list):
        return "it has to be a list"
    if key in _MAPS and not isinstance(value, dict):
        return "it has to be an object"
    if key == "$ref" and _target(value, root) is None:
        return "there is nothing at this place of the schema"
    if key in _BOUNDS and not (isinstance(value, str) if key == "pattern" else TYPES["number"](value)):
        return "it has to be a regular expression" if key == "pattern" else "it has to be a number"
    try:
        re.compile(text(value) if key == "pattern" else "")
    except re.error as error:
        return f"it is no regular expression ({error})"
    return ""


def _target(ref: Any, root: Any) -> Any:
    """The schema that a `$ref` within the document names, or None."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    found: Any = root
    for step in filter(None, ref[1:].split("/")):
        found = obj(found).get(step.replace("~1", "/").replace("~0", "~"))
    return cast("Any", found) if isinstance(found, (dict, bool)) else None


def mismatch(value: Any, schema: Any, root: Any = None, place: str = "", depth: int = 0) -> str:
    """Why a value does not match, with its place ("/age: ..."), or "". In: a schema without a fault (`schema_fault`)."""
    root, here = (schema if root is None else root), f"{place or '/'}: "
    if schema is True or schema == {}:
        return ""
    if schema is False or depth > DEPTH:
        return f"{here}it is too deep" if schema else f"{here}nothing may stand here"
    rules, deeper = obj(schema), depth + 1
    if "$ref" in rules and (why := mismatch(value, _target(rules["$ref"], root), root, place, deeper)):
        return why
    kinds = rules.get("type")
    kinds = arr(kinds) if isinstance(kinds, list) else [kinds] if kinds else []
    if kinds and not any(TYPES[kind](value) for kind in kinds):
        return f"{here}it must be {' or '.join(kinds)}"
    if "enum" in rules and not any(_is_same(value, each) for each in arr(rules["enum"])):
        return f"{here}it must be one of {arr(rules['enum'])}"
    if "const" in rules and not _is_same(value, rules["const"]):
        return f"{here}it must be {rules['const']!r}"
    for key, (kind, holds) in _BOUNDS.items():
        if key in rules and TYPES[kind](value) and not holds(value, rules[key]):
            return f"{here}{key} is {rules[key]}"
    for inner, rule, at in _inner(value, rules, place):
        if why := mismatch(inner, rule, root, at, deeper):
            return why
    missing = [name for name in arr(rules.get("required")) if isinstance(value, dict) and name not in value]
    if missing:
        return f"{here}{missing[0]} is missing"
    return _alternatives(value, rules, root, place, deeper)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal. In Python 0 is False and 1 is True."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(arr(one)) == len(arr(other)) and all(map(_is_same, arr(one), arr(other)))
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = obj(one), obj(other)
        return left.keys() == right.keys() and all(_is_same(left[key], right[key]) for key in left)
    return one == other


def _inner(value: Any, rules: Mapping[str, Any], place: str) -> list[tuple[Any, Any, str]]:
    if isinstance(value, list):
        first = arr(rules.get("prefixItems"))
        schemas = [*first, *[rules.get("items", True)] * max(len(arr(value)) - len(first), 0)]
        return [(each, schema, f"{place}/{at}") for at, (each, schema) in enumerate(zip(arr(value), schemas, strict=False))]
    known, more = obj(rules.get("properties")), rules.get("additionalProperties", True)
    return [(each, known.get(name, more), f"{place}/{name}") for name, each in obj(value).items()]


def _alternatives(value: Any, rules: Mapping[str, Any], root: Any, place: str, depth: int) -> str:
    here = f"{place or '/'}: "

    def whys(key: str) -> list[str]:
        return [mismatch(value, rule, root, place, depth) for rule in arr(rules.get(key))]

    every, some, one = whys("allOf"), whys("anyOf"), whys("oneOf")
    if any(every):
        return next(filter(None, every))
    for key, faults in (("anyOf", some), ("oneOf", one)):
        if faults and all(faults):
            tagged = [why for rule, why in zip(arr(rules[key]), faults, strict=True) if _has_tag(value, rule, root)]
            return (tagged or faults)[0]
    if one.count("") > 1:
        return f"{here}it matches more than one of oneOf"
    is_excluded = "not" in rules and not mismatch(value, rules["not"], root, place, depth)
    return f"{here}it may not match what `not` has" if is_excluded else ""


def _has_tag(value: Any, rule: Any, root: Any) -> bool:
    """Whether an alternative is meant, by the `type`, `role` or `status` of the value."""
    rules = obj(_target(obj(rule)["$ref"], root) if "$ref" in obj(rule) else rule)
    kinds = {key: obj(obj(rules.get("properties")).get(key)) for key in ("type", "role", "status")}
    tags = {key: kind.get("enum", [kind.get("const")]) for key, kind in kinds.items() if kind.keys() & {"enum", "const"}}
    return bool(tags) and all(obj(value).get(key) in arr(allowed) for key, allowed in tags.items())
