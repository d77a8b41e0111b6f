"""Parses markdown files with a front matter between `---`, such as commands, skills and agents. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from universal.lib.jsonvalue import obj

HEAD_LIMIT = 64 * 1024
"""Maximum characters of a head that is parsed as YAML."""

HEAD = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
OPEN_HEAD = re.compile(r"---[ \t]*(?:\r?\n|\Z)")
LINE = re.compile(r"^([A-Za-z_][\w-]*):[ \t]*(.*)$")
BLOCK = re.compile(r"[|>][+-]?")


class Document(NamedTuple):
    """The front matter's values (texts and booleans; nested values are left out) and the stripped body."""

    head: dict[str, str | bool]
    body: str


def parse(text: str) -> Document:
    """Split a file into head and body. It reads only the part of YAML that commands use."""
    text = text.removeprefix("\ufeff")
    match = HEAD.match(text)
    if match is None:
        return Document({}, text.strip())
    head: dict[str, str | bool] = {}
    lines = match[1].splitlines()
    for index, line in enumerate(lines):
        pair = LINE.match(line)
        if pair is None:
            continue
        value = pair[2].rstrip(" \t")
        if BLOCK.fullmatch(value):
            value = _block(lines[index + 1 :], folded=value.startswith(">"))
        elif not value:
            continue
        head[pair[1]] = {"true": True, "false": False}.get(value, _unquote(value))
    return Document(head, text[match.end() :].strip())


def nested_head(text: str) -> tuple[dict[str, Any], str]:
    """The front matter as YAML, with nested values, and the stripped body, such as of an agent.

    Raises ValueError for a head that is no YAML, that is too long, or that has an anchor: it may become any number of values.
    """
    text = text.removeprefix("\ufeff")
    match = HEAD.match(text)
    if match is None and OPEN_HEAD.match(text):  # OpenCode reads all of such a file as the head
        raise ValueError("its head has no end: write `---` on a line below it")
    if match is None:
        return {}, text.strip()
    if len(match[1]) > HEAD_LIMIT:
        raise ValueError(f"its head is longer than {HEAD_LIMIT} characters")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(match[1], Loader=yaml.SafeLoader)):
            raise ValueError("its head has an alias (`*name`): write the value out")
        value: Any = yaml.load(match[1], Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, OverflowError) as error:
        raise ValueError(f"its head is no YAML: {' '.join(str(error).split())[:200]}") from error
    if value is not None and not isinstance(value, dict):
        raise ValueError("its head has no `key: value` lines")
    return obj(value), text[match.end() :].strip()


def line_of(text: str, path: Sequence[str | int]) -> int:
    """Return the line, from 1, where a path of keys stands in the head. 0 if its first key is not there.

    If a later key is missing, it is the line of the one before.
    """
    match = HEAD.match(text.removeprefix("\ufeff"))
    try:
        node: Any = yaml.compose(match[1], Loader=yaml.SafeLoader) if match is not None else None
    except (yaml.YAMLError, RecursionError):
        return 0
    line = 0
    for key in path:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        name, node = next(((name, value) for name, value in pairs if name.value == str(key)), (None, None))
        if name is None:
            break
        line = name.start_mark.line + 2  # after the line that opens the head
    return line


def _block(lines: list[str], *, folded: bool) -> str:
    block: list[str] = []
    for line in lines:
        if line.strip() and not line.startswith((" ", "\t")):
            break
        block.append(line.strip())
    return (" " if folded else "\n").join(block).strip()


def _unquote(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
