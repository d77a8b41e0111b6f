"""Writes JSON Schemas as a Python module of TypedDicts. Pure.

    {"type": "object", "properties": {"id": {"type": "string"}}}  ->  class Session(TypedDict): ...

An object inside of another one becomes a class of its own. It is named by its place (`SessionTime`); a shape of several places
is one class, named by its first place. A free object is a `Mapping[str, Any]`. Unions become aliases.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterable, Mapping
from typing import Any

SCALARS = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}
SHAPE = ("type", "properties", "required", "items", "additionalProperties", "anyOf", "oneOf", "enum", "const", "$ref")
"""Keys that decide the type of a value. Others restrict or describe it."""

Schema = dict[str, Any]


class Module:
    """The classes and aliases of one module. `add` writes a schema and all that it refers to."""

    def __init__(self, schemas: Mapping[str, Schema], names: Mapping[str, str] | None = None) -> None:
        """In: `schemas` by name; `names` of inner objects and unions that need another name than that of their place."""
        self._schemas = schemas
        self._names = names or {}
        self._by_shape: dict[str, str] = {}
        self._classes: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._begun: set[str] = set()

    def add(self, name: str) -> None:
        """Write the schema of this name, once."""
        if name not in self._begun:
            self._begun.add(name)
            self._define(name, self._schemas[name])

    def add_event(self, name: str, *, key: str = "properties") -> tuple[str, str]:
        """Write the content of an event. Out: the type of the event, and the class of its content."""
        members = self._schemas[name]["properties"]
        content = f"{name.removeprefix('Event')}Properties"
        return members["type"]["enum"][0], self._type(members[key], content, f"The content of `{name}`.")

    def add_alias(self, name: str, alternatives: Iterable[str]) -> None:
        """Write a union of these types."""
        self._aliases[name] = _alias(name, list(alternatives))

    def take(self) -> tuple[set[str], str]:
        """Names and text of what was added since the last call: the classes, then the aliases."""
        text = "\n\n\n".join(self._classes.values()) + "\n\n\n" + "\n".join(self._aliases.values()) + "\n"
        names = {*self._classes, *self._aliases}
        self._classes, self._aliases = {}, {}
        return names, text

    def _define(self, name: str, schema: Schema) -> None:
        if schema.get("type") == "object" and "properties" in schema:
            self._by_shape.setdefault(_shape(schema), name)
            self._class(name, schema, f"`{name}` of the document.")
        else:
            alternatives = schema.get("anyOf") or schema.get("oneOf")
            types = [
                self._type(choice, f"{name}{_label(choice)}", f"An alternative of `{name}`.") for choice in alternatives or ()
            ]
            self.add_alias(name, types or [self._type(schema, f"{name}Value", f"`{name}` of the document.")])

    def _class(self, name: str, schema: Schema, about: str) -> None:
        self._classes[name] = ""  # its place in the module is before the classes that it refers to
        required = set(schema.get("required", ()))
        fields: dict[str, str] = {}
        for key, inner in schema["properties"].items():
            kind = self._type(inner, name + _capital(key), f"`{key}` of `{name}`.")
            fields[key] = kind if key in required else f"NotRequired[{kind}]"
        if all(key.isidentifier() and not keyword.iskeyword(key) for key in fields):
            rows = [f"    {key}: {kind}" for key, kind in fields.items()]
            self._classes[name] = "\n".join([f"class {name}(TypedDict):", f'    """{about}"""', "", *rows])
        else:
            rows = [f"        {json.dumps(key)}: {json.dumps(kind)}," for key, kind in fields.items()]
            self._classes[name] = "\n".join([f"{name} = TypedDict(", f'    "{name}",', "    {", *rows, "    },", ")"])

    def _type(self, schema: Schema, name: str, about: str) -> str:
        """The type of a value. An object gets the `name` and the docstring unless another place has the same shape."""
        if "$ref" in schema:
            target = schema["$ref"].rsplit("/", 1)[-1]
            self.add(target)
            return target
        if "enum" in schema:
            return f"Literal[{', '.join(map(json.dumps, schema['enum']))}]"
        if alternatives := schema.get("anyOf") or schema.get("oneOf"):
            return self._union(schema, [self._type(choice, f"{name}{_label(choice)}", about) for choice in alternatives], name)
        kind = schema.get("type")
        if kind == "array":
            return f"list[{self._type(schema.get('items', {}), f'{name}Item', about)}]"
        if kind == "object":
            return self._object(schema, name, about)
        return SCALARS.get(str(kind), "Any")

    def _union(self, schema: Schema, types: list[str], name: str) -> str:
        """The alternatives, or an alias of them if `names` has this place or one of the same shape."""
        shape = _shape(schema)
        if name in self._names and shape not in self._by_shape:
            self._by_shape[shape] = self._names[name]
            self.add_alias(self._names[name], types)
        return self._by_shape.get(shape, " | ".join(dict.fromkeys(types)))

    def _object(self, schema: Schema, name: str, about: str) -> str:
        if not schema.get("properties"):
            others: Schema | bool | None = schema.get("additionalProperties")
            return f"Mapping[str, {self._type(others, name, about) if isinstance(others, dict) else 'Any'}]"
        shape = _shape(schema)
        if shape not in self._by_shape:
            self._by_shape[shape] = self._names.get(name, name)
            self._class(self._by_shape[shape], schema, about)
        return self._by_shape[shape]


def _label(schema: Schema) -> str:
    """The name of an alternative: that of its `type`, `status` or `name` if it has one."""
    members = schema.get("properties", {})
    values = next((members[key]["enum"] for key in ("type", "status", "name") if "enum" in members.get(key, {})), [""])
    return "".join(map(_capital, str(values[0]).replace(".", "-").split("-")))


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]


def _shape(schema: Schema) -> str:
    return json.dumps(_bare(schema), sort_keys=True)


def _bare(schema: Schema) -> Schema:
    """The schema without what does not decide the type."""
    bare = {key: schema[key] for key in SHAPE if key in schema}
    for key in ("anyOf", "oneOf"):
        if key in bare:
            bare[key] = [_bare(choice) for choice in bare[key]]
    if "properties" in bare:
        bare["properties"] = {key: _bare(inner) for key, inner in bare["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(bare.get(key), dict):
            bare[key] = _bare(bare[key])
    return bare | ({"required": sorted(bare["required"])} if "required" in bare else {})


def _alias(name: str, alternatives: list[str]) -> str:
    return f"{name}: TypeAlias = ({' | '.join(dict.fromkeys(alternatives))})"
