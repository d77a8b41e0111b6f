"""Validates imported values against the schemas of OpenCode's API document. Pure.

It supports the keywords of that document: $ref, anyOf, type, required, properties, additionalProperties, items, enum, pattern.
Keys outside of a schema are allowed, because newer versions add some. Numbers may be integers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, cast

from universal.lib.jsonvalue import arr, obj

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "number": (int, float),
    "integer": (int,),
    "null": (type(None),),
}


@cache
def _schemas() -> dict[str, Any]:
    document = json.loads(resources.files("shim.faces.opencode1").joinpath("openapi.json").read_bytes())
    return obj(obj(document.get("components")).get("schemas"))


def problem(schema: str, value: Any, where: str = "") -> str | None:
    """Describe the first fault of `value` and its place; None if it is valid. `schema`: a name in the document."""
    return _fault({"$ref": f"#/components/schemas/{schema}"}, value, where)


def _fault(schema: dict[str, Any], value: Any, where: str) -> str | None:
    if "$ref" in schema:
        return _fault(obj(_schemas().get(str(schema["$ref"]).rpartition("/")[2])), value, where)
    if "anyOf" in schema:
        return _alternative_fault([obj(s) for s in arr(schema["anyOf"])], value, where)
    kinds = _TYPES.get(str(schema.get("type")))
    if kinds is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
        return f"{where or 'it'} is {_name(value)}, not {schema['type']}"
    if "enum" in schema and value not in arr(schema["enum"]):
        return f"{where or 'it'} is {json.dumps(value)[:80]}, not one of {json.dumps(schema['enum'])[:200]}"
    if isinstance(value, str) and "pattern" in schema and not re.search(str(schema["pattern"]), value):
        return f"{where or 'it'} is {json.dumps(value)[:80]}, which does not match {schema['pattern']}"
    if isinstance(value, list):
        items = obj(schema.get("items"))
        faults = (_fault(items, inner, f"{where}[{i}]") for i, inner in enumerate(cast("list[Any]", value)) if items)
        return next((fault for fault in faults if fault), None)
    return _fault_of_keys(schema, cast("dict[str, Any]", value), where) if isinstance(value, dict) else None


def _fault_of_keys(schema: dict[str, Any], value: dict[str, Any], where: str) -> str | None:
    for key in arr(schema.get("required")):
        if key not in value:
            return f'{where or "it"} has no "{key}"'
    properties, additional = obj(schema.get("properties")), obj(schema.get("additionalProperties"))
    for key, inner in value.items():
        member = obj(properties.get(key)) or additional
        wrong = _fault(member, inner, f"{where}.{key}" if where else key) if member else None
        if wrong:
            return wrong
    return None


def _alternative_fault(schemas: list[dict[str, Any]], value: Any, where: str) -> str | None:
    """Return the fault in the alternative that matches the value's `type`, `role` or `status`; else in the last one."""
    wrong = [(schema, _fault(schema, value, where)) for schema in schemas]
    if any(complaint is None for _, complaint in wrong):
        return None
    complaints = [complaint for schema, complaint in wrong if _has_tag(schema, value)]
    return (complaints or [complaint for _, complaint in wrong])[-1]


def _has_tag(schema: dict[str, Any], value: Any) -> bool:
    while "$ref" in schema:
        schema = obj(_schemas().get(str(schema["$ref"]).rpartition("/")[2]))
    properties, members = obj(schema.get("properties")), obj(value)
    tags = [key for key in ("type", "role", "status") if "enum" in obj(properties.get(key))]
    return bool(tags) and all(members.get(key) in arr(obj(properties[key])["enum"]) for key in tags)


def _name(value: Any) -> str:
    return next((name for name, kinds in _TYPES.items() if isinstance(value, kinds) and type(value) in kinds), "something else")
