"""Parses markdown files with a front matter of `key: value` lines between `---`, such as commands and skills. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

HEAD = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
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


def _block(lines: list[str], *, folded: bool) -> str:
    block: list[str] = []
    for line in lines:
        if line.strip() and not line.startswith((" ", "\t")):
            break
        block.append(line.strip())
    return (" " if folded else "\n").join(block).strip()


def _unquote(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
