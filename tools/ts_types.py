"""Converts TypeScript types to JSON Schema (2020-12). Pure.

    schema('{ id: SessionID; files?: (A | B)[] } & Base', types)  ->  {"type": "object", ...}

It reads the types of compat_fixtures/opencode2: objects, unions, intersections of objects, arrays, tuples that are not empty,
Record, literals, names, and three additions (`int`, `string ^prefix`, `base64 string`). A schema of an object forbids other
members, so an intersection becomes one object for each choice from its unions. A name becomes a $ref.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\.\.\.|[A-Za-z_$][\w$]*|\d+|[{}()\[\]<>|&;,:?])')
WORDS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "number": {"type": "number"},
    "int": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "object": {"type": "object"},
    "binary": {"type": "string", "format": "binary"},
    "base64": {"type": "string", "contentEncoding": "base64"},
    "true": {"const": True},
    "false": {"const": False},
}
PREFIXED = re.compile(r"string (\^\S+)")
Schema = dict[str, Any]


class Members(NamedTuple):
    """An object: its members and whether each is required, and the schema of all other members (None: there are none)."""

    properties: dict[str, tuple[Schema, bool]]
    additional: Schema | None = None


def schema(text: str, types: Mapping[str, str]) -> Schema:
    """The schema of a type. Raises ValueError for a text that is no type, KeyError for a name that `types` does not have."""
    prefixed = PREFIXED.fullmatch(text.strip())
    if text.strip() == "string holding a number":
        return {"type": "string", "pattern": r"^-?\d+(\.\d+)?$"}
    if text.strip() in WORDS:
        return dict(WORDS[text.strip()])
    if prefixed:
        return {"type": "string", "pattern": prefixed[1]}
    parser = _Parser(text.replace("base64 string", "base64"), types)
    result = parser.union()
    parser.end()
    return result


class _Parser:
    def __init__(self, text: str, types: Mapping[str, str]) -> None:
        self.text = text
        self.types = types
        self.tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"no token of a type at {text[at : at + 40]!r} in {text[:200]!r}")
            self.tokens.append(match[1])
            at = match.end()
        self.at = 0

    # --- tokens

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise ValueError(f"{expected or 'more'} expected, got {token!r} (token {self.at}) in {self.text[:200]!r}")
        self.at += 1
        return token

    def has(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def end(self) -> None:
        if self.peek():
            raise ValueError(f"what does {self.peek()!r} mean in {self.text[:200]!r}?")

    # --- types

    def union(self) -> Schema:
        self.has("|")
        parts = [self.intersection()]
        while self.has("|"):
            parts.append(self.intersection())
        return any_of(parts)

    def intersection(self) -> Schema:
        parts = [self.postfix()]
        while self.has("&"):
            parts.append(self.postfix())
        if len(parts) == 1:
            return parts[0]
        ways = [Members({})]
        for part in parts:
            ways = [_merge(way, right) for way in ways for right in self.ways(part)]
        return any_of([_object(way) for way in ways])

    def ways(self, part: Schema) -> list[Members]:
        """The objects that a part of an intersection stands for, one for each choice from its unions."""
        if "$ref" in part:
            name = part["$ref"].rsplit("/", 1)[-1]
            return self.ways(schema(self.types[name], self.types))
        if "anyOf" in part:
            return [way for alternative in part["anyOf"] for way in self.ways(alternative)]
        if part.get("type") != "object":
            raise ValueError(f"only objects can be joined by &, not {part} in {self.text[:200]!r}")
        required = part.get("required", [])
        additional = part["additionalProperties"]
        properties = {name: (value, name in required) for name, value in part.get("properties", {}).items()}
        return [Members(properties, None if additional is False else additional)]

    def postfix(self) -> Schema:
        result = self.primary()
        while self.peek() == "[" and self.tokens[self.at + 1 : self.at + 2] == ["]"]:
            self.at += 2
            result = {"type": "array", "items": result}
        return result

    def primary(self) -> Schema:
        if self.has("("):
            result = self.union()
            self.take(")")
            return result
        if self.has("{"):
            return self.members()
        if self.has("["):  # [A, ...A[]]
            first = self.union()
            for token in (",", "..."):
                self.take(token)
            self.postfix()
            self.take("]")
            return {"type": "array", "items": first, "minItems": 1}
        if self.has("Record"):
            if not self.has("<"):
                return {"type": "object", "additionalProperties": {}}
            self.union()
            self.take(",")
            value = self.union()
            self.take(">")
            return {"type": "object", "additionalProperties": value}
        return self.reference(self.take())

    def reference(self, word: str) -> Schema:
        if word.startswith('"') or word.isdigit():
            return {"const": json.loads(word)}
        if word in WORDS:
            return dict(WORDS[word])
        if not word.isidentifier():
            raise ValueError(f"a type expected, got {word!r} in {self.text[:200]!r}")
        if word not in self.types:
            raise KeyError(f"no type {word} in {self.text[:200]!r}")
        return {"$ref": f"#/components/schemas/{word}"}

    def members(self) -> Schema:
        properties: dict[str, tuple[Schema, bool]] = {}
        while not self.has("}"):
            name = self.take()
            optional = self.has("?")
            properties[name] = (self.union() if self.has(":") else {}, not optional)
            if not (self.has(";") or self.has(",")) and self.peek() != "}":
                raise ValueError(f"; expected after {name} in {self.text[:200]!r}")
        return _object(Members(properties))


def any_of(alternatives: list[Schema]) -> Schema:
    """The union of these schemas. Literals become one enum."""
    if len(alternatives) == 1:
        return alternatives[0]
    flat = [
        inner
        for alternative in alternatives
        for inner in (alternative["anyOf"] if set(alternative) == {"anyOf"} else [alternative])
    ]
    literals = [value for alternative in flat for value in _values(alternative)]
    rest = [alternative for alternative in flat if not _values(alternative)]
    kinds = {"type": "string"} if all(isinstance(value, str) for value in literals) else {}
    enum: list[Schema] = [{**kinds, "enum": literals}] if literals else []
    return enum[0] if not rest else {"anyOf": [*rest, *enum]}


def _values(literal: Schema) -> list[Any]:
    return [literal["const"]] if set(literal) == {"const"} else literal.get("enum", [])


def _merge(left: Members, right: Members) -> Members:
    return Members({**left.properties, **right.properties}, left.additional if right.additional is None else right.additional)


def _object(members: Members) -> Schema:
    required = [name for name, (_, needed) in members.properties.items() if needed]
    return {
        "type": "object",
        **({"properties": {name: value for name, (value, _) in members.properties.items()}} if members.properties else {}),
        **({"required": required} if required else {}),
        "additionalProperties": False if members.additional is None else members.additional,
    }
