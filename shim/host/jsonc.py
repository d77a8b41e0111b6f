"""JSON with comments and trailing commas, as in OpenCode's config files: read, and changed without losing a comment. Pure.

`parse` gives a tree whose nodes know where they stand in the text; `edit` replaces, adds and removes members by cutting
exactly there. Numbers, strings and literals are read by the `json` module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from universal.jsonvalue import obj

SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
SCALAR = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
REST_OF_LINE = re.compile(r"[ \t]*(//[^\n]*|/\*[^\n]*?\*/[ \t]*)?(?=\n)")
DEPTH_LIMIT = 200
VALUES_LIMIT = 20_000
"""Of one text. No configuration comes near; checking the values of a hostile one would take seconds and hundreds of megabytes."""


class JsoncError(ValueError):
    """The text is no JSONC; says what was expected, and where (line and column from 1)."""

    def __init__(self, expected: str, text: str, at: int) -> None:
        line = text.count("\n", 0, at) + 1
        column = at - (text.rfind("\n", 0, at) + 1) + 1
        found = f"found {text[at : at + 20]!r}" if at < len(text) else "the file ends"
        super().__init__(f"line {line}, column {column}: expected {expected}, {found}")


@dataclass(frozen=True, slots=True)
class Member:
    """`"key": value` of an object; `start` is where the key begins."""

    key: str
    start: int
    node: Node


@dataclass(frozen=True, slots=True)
class Node:
    """A value from `start` to before `end`. Of an object `members` are kept with their places, the last of a key wins."""

    start: int
    end: int
    value: Any
    members: list[Member] = field(default_factory=list["Member"])
    comma: bool = False
    """The last member has a comma behind it."""


def parse(text: str) -> Node:
    """The tree. Raises JsoncError. A byte order mark is skipped."""
    start = _skip(text, 1 if text.startswith("\ufeff") else 0)
    node = _value(text, start, 0, iter(range(VALUES_LIMIT)))
    end = _skip(text, node.end)
    if end != len(text):
        raise JsoncError("the end of the file", text, end)
    return node


def loads(text: str) -> Any:
    """The value. Raises JsoncError."""
    return parse(text).value


def edit(text: str, changes: Mapping[str, Any]) -> str:
    """The text with changes made: objects are merged, None removes, all else replaces. Raises JsoncError."""
    if not text.strip():
        text = "{}"
    for path, value in _leaves(changes):
        text = _set(text, path, value)
    return text


# --- reading -----------------------------------------------------------------------------------------


def _skip(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int, left: Iterator[int]) -> Node:
    """In: `left`, which runs out after VALUES_LIMIT values."""
    if next(left, None) is None:
        raise JsoncError(f"at most {VALUES_LIMIT} values", text, at)
    if depth > DEPTH_LIMIT:
        raise JsoncError("less nesting", text, at)
    match text[at : at + 1]:
        case "{":
            return _object(text, at, depth, left)
        case "[":
            return _array(text, at, depth, left)
        case '"':
            end = _string_end(text, at)
            return Node(at, end, json.loads(text[at:end], strict=False))
        case _:
            found = SCALAR.match(text, at)
            if found is None:
                raise JsoncError("a value", text, at)
            try:
                return Node(at, found.end(), json.loads(found[0]))
            except ValueError:  # Python reads no integer of more than 4300 digits
                raise JsoncError("a shorter number", text, at) from None


def _string_end(text: str, at: int) -> int:
    found = STRING.match(text, at)
    if found is None:
        raise JsoncError("a string", text, at)
    return found.end()


def _object(text: str, start: int, depth: int, left: Iterator[int]) -> Node:
    members: list[Member] = []
    at, comma = _skip(text, start + 1), False
    while text[at : at + 1] != "}":
        end = _string_end(text, at)
        colon = _skip(text, end)
        if text[colon : colon + 1] != ":":
            raise JsoncError("a colon", text, colon)
        node = _value(text, _skip(text, colon + 1), depth + 1, left)
        members.append(Member(json.loads(text[at:end], strict=False), at, node))
        at, comma = _next(text, node.end, "}")
    return Node(start, at + 1, {member.key: member.node.value for member in members}, members, comma)


def _array(text: str, start: int, depth: int, left: Iterator[int]) -> Node:
    values: list[Any] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        node = _value(text, at, depth + 1, left)
        values.append(node.value)
        at, _ = _next(text, node.end, "]")
    return Node(start, at + 1, values)


def _next(text: str, at: int, closing: str) -> tuple[int, bool]:
    """Behind a member: the place of the next one or of the closing bracket, and whether there was a comma."""
    at = _skip(text, at)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1), True
    if text[at : at + 1] != closing:
        raise JsoncError(f"a comma or {closing}", text, at)
    return at, False


# --- changing ----------------------------------------------------------------------------------------


def _leaves(changes: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for key, value in changes.items():
        inner = obj(value)
        found += _leaves(inner, (*path, key)) if inner else [((*path, key), value)]
    return found


def _set(text: str, path: tuple[str, ...], value: Any) -> str:
    node = parse(text)
    if not isinstance(node.value, dict):
        raise JsoncError("an object", text, node.start)
    for depth, key in enumerate(path):
        member = next((m for m in reversed(node.members) if m.key == key), None)
        rest = path[depth + 1 :]
        if member is None:
            return text if value is None else _add(text, node, key, _nest(rest, value), depth + 1)
        if not rest and value == {} and isinstance(member.node.value, dict):
            return text
        if not rest:
            return _remove(text, node, member) if value is None else _replace(text, member.node, value, depth + 1)
        if not isinstance(member.node.value, dict):
            return text if value is None else _replace(text, member.node, _nest(rest, value), depth + 1)
        node = member.node
    return text


def _nest(path: tuple[str, ...], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _dump(value: Any, depth: int) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n" + "  " * depth)


def _replace(text: str, node: Node, value: Any, depth: int) -> str:
    return text[: node.start] + _dump(value, depth) + text[node.end :]


def _add(text: str, node: Node, key: str, value: Any, depth: int) -> str:
    line = f"\n{'  ' * depth}{json.dumps(key, ensure_ascii=False)}: {_dump(value, depth)}"
    if not node.members:
        # Behind the bracket and not before the closing one: a comment may stand between them.
        return text[: node.start + 1] + line + "\n" + "  " * (depth - 1) + text[node.start + 1 :].lstrip()
    last = node.members[-1].node.end
    behind = text.index(",", _skip(text, last)) + 1 if node.comma else last
    # A comment at the end of the last member's line belongs to that member.
    comment = REST_OF_LINE.match(text, behind)
    place = comment.end() if comment else behind
    return f"{text[:last]}{'' if node.comma else ','}{text[last:place]}{line}{',' if node.comma else ''}{text[place:]}"


def _remove(text: str, node: Node, member: Member) -> str:
    """With its comma, and with the comment at the end of its line."""
    index = node.members.index(member)
    before, end = text[: member.start], member.node.end
    if node.comma or member is not node.members[-1]:
        end = _skip(text, end) + 1
    elif index:
        comma = _skip(text, node.members[index - 1].node.end)
        before = before[:comma] + before[comma + 1 :]
    comment = REST_OF_LINE.match(text, end)
    if comment is not None:
        return before.rstrip() + text[comment.end() :]
    return before + text[end:].lstrip(" \t")
