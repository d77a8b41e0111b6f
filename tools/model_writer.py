"""Writes JSON Schemas as pydantic models, for `tools.config_models` and `tools.request_models`.

    {"type": "object", "properties": {"id": {"type": "string"}}}  ->  class Session(Part): ...

Keys are optional but those that the schema requires. An object inside of another one becomes a class of its own, named by its
place. An object that forbids other keys is a `Part`, any other an `Open`: the module that is written defines or imports both.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Collection, Mapping

from tools.ts_types import Schema
from tools.typed_dicts import pascal

SCALARS = {"string": "str", "number": "int | float", "integer": "int", "boolean": "bool", "null": "None"}

CHOICES_LIMIT = 10
"""Maximum objects without a name at one place, and one more."""


class ModelWriter:
    """Writes objects as classes, each after those that it names.

    In: `schemas` by name; `instead`, a schema's name or `Class.key` -> the annotation to write; `prefixes` of ids that are
    checked; `nullable`, classes in whose fields null may stand for an entry, also of objects in it; `defaults`, `Class.key` ->
    what an absent field is.
    """

    def __init__(
        self,
        schemas: Mapping[str, Schema],
        *,
        instead: Mapping[str, str] | None = None,
        prefixes: Collection[str] | None = None,
        nullable: Collection[str] = (),
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self._schemas = schemas
        self._instead = instead or {}
        self._prefixes = prefixes
        self._nullable = nullable
        self._defaults = defaults or {}
        self.classes: dict[str, str] = {}
        self._written: dict[str, Schema] = {}

    def add(self, name: str, schema: Schema, about: str) -> str:
        """Write an object, and return its name: with a number, if another object has it (two choices at one place)."""
        names = (name, *(f"{name}{number}" for number in range(2, CHOICES_LIMIT)))
        name = next(free for free in names if self._written.setdefault(free, schema) == schema)
        if name not in self.classes:
            rows: list[str] = []
            for key, inner in schema["properties"].items():
                place = name + pascal(key.strip("$"))
                annotation = self._instead.get(f"{name}.{key}") or self.annotation(inner, place, nullable=name in self._nullable)
                field = f"{key.lstrip('$')}_" if key.startswith("$") or keyword.iskeyword(key) else key
                is_needed = key in schema.get("required", ())
                default = self._defaults.get(f"{name}.{key}", "None")
                if not is_needed and default == "None" and not annotation.endswith("| None"):
                    annotation += " | None"
                value = f'Field(default={default}, alias="{key}")' if field != key else default
                rows.append(f"    {field}: {annotation}{'' if is_needed else f' = {value}'}")
            base = "Part" if schema.get("additionalProperties") is False else "Open"
            self.classes[name] = "\n".join([f"class {name}({base}):", f'    """{about}"""', "", *rows])
        return name

    def annotation(self, schema: Schema, place: str, *, nullable: bool = False) -> str:
        """The annotation of a value. In: `nullable`, whether null may stand for an entry, also of objects in it."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            target = self._schemas[name]
            if name in self._instead:
                return self._instead[name]
            if target.get("properties") and not target.get("additionalProperties"):
                return self.add(name, target, f"`{name}` of the document.")
            return self.annotation(target, name, nullable=nullable)
        if "enum" in schema:
            return f"Literal[{', '.join(map(_literal, schema['enum']))}]"
        if choices := schema.get("anyOf"):
            types = dict.fromkeys(self.annotation(choice, place, nullable=nullable) for choice in choices)
            return " | ".join(type_ for type_ in types if not ("str" in types and type_.startswith('Literal["')))
        return self._plain(schema, place, nullable=nullable)

    def _plain(self, schema: Schema, place: str, *, nullable: bool) -> str:
        kind, more = schema.get("type"), schema.get("additionalProperties")
        if kind == "object" and (more or not schema.get("properties")):
            value = self.annotation(more, place, nullable=nullable) if more else "Any"
            return f"dict[str, {value}{' | None' if nullable and more else ''}]"
        if kind == "object":
            return self.add(place, schema, f"`{place}` has no name in the document.")
        if "prefixItems" in schema:
            items = ", ".join(self.annotation(item, place) for item in schema["prefixItems"])
            return f"Annotated[tuple[{items}], BeforeValidator(tuple_of)]"
        if kind == "array":
            rows = f"list[{self.annotation(schema['items'], place)}]"
            return f"Annotated[{rows}, Field(min_length={schema['minItems']})]" if "minItems" in schema else rows
        if "pattern" in schema and self._prefixes is None:
            return f"Annotated[str, Field(pattern=r{json.dumps(schema['pattern'])})]"
        if (prefix := schema.get("pattern", "").strip("^")) in (self._prefixes or ()):
            return f'Annotated[str, need_id("{prefix}")]'
        bounds = {"gt": schema.get("exclusiveMinimum"), "ge": schema.get("minimum"), "le": schema.get("maximum")}
        limits = ", ".join(f"{key}={value}" for key, value in bounds.items() if value is not None)
        scalar = SCALARS.get(str(kind), "Any")
        return f"Annotated[{scalar}, Field({limits})]" if limits else scalar


def _literal(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)
