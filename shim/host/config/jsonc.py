"""Reads and edits JSON with comments and trailing commas (OpenCode's config files), and keeps the comments. Pure.

`parse` returns a tree whose nodes hold their positions in the text. `edit` replaces, adds and removes members at these
positions. The `json` module reads numbers, strings and literals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from universal.lib.jsonvalue import obj

SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
SCALAR = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
REST_OF_LINE = re.compile(r"[ \t]*(//[^\n]*|/\*[^\n]*?\*/[ \t]*)?(?=\n)")
DEPTH_LIMIT = 200
VALUES_LIMIT = 20_000
"""Maximum values in one text. Validating a hostile text with more would take seconds and hundreds of megabytes."""


class JsoncError(ValueError):
    """The text is not valid JSONC. The message says what the parser expected, and where (line and column from 1)."""

    def __init__(self, expected: str, text: str, at: int) -> None:
        line = text.count("\n", 0, at) + 1
        column = at - (text.rfind("\n", 0, at) + 1) + 1
        actual = f"found {text[at : at + 20]!r}" if at < len(text) else "the file ends"
        super().__init__(f"line {line}, column {column}: expected {expected}, {actual}")


@dataclass(frozen=True, slots=True)
class Member:
    """A `"key": value` of an object. The key begins at `start`."""

    key: str
    start: int
    node: Node


@dataclass(frozen=True, slots=True)
class Node:
    """A value at `start` up to, not including, `end`. An object keeps its `members`; of equal keys the last wins."""

    start: int
    end: int
    value: Any
    members: list[Member] = field(default_factory=list["Member"])
    comma: bool = False
    """Whether a comma follows the last member."""


def parse(text: str) -> Node:
    """Parse a text into a tree. Raises JsoncError. A byte order mark is skipped."""
    start = _skip(text, 1 if text.startswith("\ufeff") else 0)
    node = _value(text, start, 0, iter(range(VALUES_LIMIT)))
    end = _skip(text, node.end)
    if end != len(text):
        raise JsoncError("the end of the file", text, end)
    return node


def loads(text: str) -> Any:
    """Parse a text into a value. Raises JsoncError."""
    return parse(text).value


def lines_of(text: str, paths: Sequence[Sequence[str | int]]) -> list[int]:
    """Return the line, from 1, of the value at each path of keys, or of the last key of it that is there. Raises JsoncError."""
    root = parse(text) if paths else None
    lines: list[int] = []
    for path in paths:
        node, start = root, 0
        for key in path:
            member = next((m for m in reversed(node.members) if m.key == key), None) if node is not None else None
            if member is None:
                break
            node, start = member.node, member.start
        lines.append(text.count("\n", 0, start) + 1)
    return lines


def edit(text: str, changes: Mapping[str, Any]) -> str:
    """Apply changes to a text: objects are merged, None removes a key, other values replace. Raises JsoncError."""
    if not text.strip():
        text = "{}"
    for path, value in _leaves(changes):
        text = _set(text, path, value)
    return text


# --- reading -----------------------------------------------------------------------------------------


def _skip(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int, depth: int, budget: Iterator[int]) -> Node:
    """Parse the value at a position. In: `left`, which ends after VALUES_LIMIT values."""
    if next(budget, None) is None:
        raise JsoncError(f"at most {VALUES_LIMIT} values", text, at)
    if depth > DEPTH_LIMIT:
        raise JsoncError("less nesting", text, at)
    match text[at : at + 1]:
        case "{":
            return _object(text, at, depth, budget)
        case "[":
            return _array(text, at, depth, budget)
        case '"':
            end = _string_end(text, at)
            return Node(at, end, json.loads(text[at:end], strict=False))
        case _:
            scalar = SCALAR.match(text, at)
            if scalar is None:
                raise JsoncError("a value", text, at)
            try:
                return Node(at, scalar.end(), json.loads(scalar[0]))
            except ValueError:  # Python refuses integers of more than 4300 digits
                raise JsoncError("a shorter number", text, at) from None


def _string_end(text: str, at: int) -> int:
    match = STRING.match(text, at)
    if match is None:
        raise JsoncError("a string", text, at)
    return match.end()


def _object(text: str, start: int, depth: int, budget: Iterator[int]) -> Node:
    members: list[Member] = []
    at, comma = _skip(text, start + 1), False
    while text[at : at + 1] != "}":
        end = _string_end(text, at)
        colon = _skip(text, end)
        if text[colon : colon + 1] != ":":
            raise JsoncError("a colon", text, colon)
        node = _value(text, _skip(text, colon + 1), depth + 1, budget)
        members.append(Member(json.loads(text[at:end], strict=False), at, node))
        at, comma = _next(text, node.end, "}")
    return Node(start, at + 1, {member.key: member.node.value for member in members}, members, comma)


def _array(text: str, start: int, depth: int, budget: Iterator[int]) -> Node:
    values: list[Any] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        node = _value(text, at, depth + 1, budget)
        values.append(node.value)
        at, _ = _next(text, node.end, "]")
    return Node(start, at + 1, values)


def _next(text: str, at: int, closing: str) -> tuple[int, bool]:
    """After a member: the position of the next one or of the closing bracket, and whether there was a comma."""
    at = _skip(text, at)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1), True
    if text[at : at + 1] != closing:
        raise JsoncError(f"a comma or {closing}", text, at)
    return at, False


# --- changing ----------------------------------------------------------------------------------------


def _leaves(changes: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    leaves: list[tuple[tuple[str, ...], Any]] = []
    for key, value in changes.items():
        inner = obj(value)
        leaves += _leaves(inner, (*path, key)) if inner else [((*path, key), value)]
    return leaves


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
        # Insert after the opening bracket, not before the closing one: a comment may stand between them.
        return text[: node.start + 1] + line + "\n" + "  " * (depth - 1) + text[node.start + 1 :].lstrip()
    last = node.members[-1].node.end
    behind = text.index(",", _skip(text, last)) + 1 if node.comma else last
    # A comment at the end of the last member's line belongs to that member.
    comment = REST_OF_LINE.match(text, behind)
    place = comment.end() if comment else behind
    return f"{text[:last]}{'' if node.comma else ','}{text[last:place]}{line}{',' if node.comma else ''}{text[place:]}"


def _remove(text: str, node: Node, member: Member) -> str:
    """Remove a member with its comma, and with the comment at the end of its line."""
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
