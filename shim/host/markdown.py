"""Markdown files with a head of `key: value` lines between `---`, as commands are written. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

HEAD = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
LINE = re.compile(r"^([A-Za-z_][\w-]*):[ \t]*(.*)$")
BLOCK = re.compile(r"[|>][+-]?")


class Document(NamedTuple):
    """The head's values (texts, true and false; nested ones are left out) and the body without blank ends."""

    head: dict[str, str | bool]
    body: str


def parse(text: str) -> Document:
    """A file without a head is all body. Not YAML: what commands use of it, no more."""
    text = text.removeprefix("\ufeff")
    found = HEAD.match(text)
    if found is None:
        return Document({}, text.strip())
    head: dict[str, str | bool] = {}
    lines = found[1].splitlines()
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
    return Document(head, text[found.end() :].strip())


def _block(lines: list[str], *, folded: bool) -> str:
    kept: list[str] = []
    for line in lines:
        if line.strip() and not line.startswith((" ", "\t")):
            break
        kept.append(line.strip())
    return (" " if folded else "\n").join(kept).strip()


def _unquote(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
