"""Finds commands and paths in a shell line that is not proved, so that a deny still holds. Pure.

It proves nothing: it walks the tree of tree-sitter-bash, wherever that is right, and cuts the line at everything that may
separate commands. So it finds too much rather than too little.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from universal.shell import tables

if TYPE_CHECKING:
    from tree_sitter import Language, Node

LENGTH_LIMIT = 100_000
"""Maximum characters of a line that the grammar reads."""
HEAVY_LIMIT = 600
"""Characters that may open or separate something. The grammar's time grows with the square of those that it cannot place."""
COMMANDS_LIMIT = 300
NESTING_LIMIT = 5
"""Maximum depth of texts that are evaluated, and of wrappers."""

_SEPARATOR = re.compile(r"&&|\|\||[;|\n`()]|(?<![<>&])&(?![>&])|\$\(")
_EVALUATING = frozenset({"eval", "trap"})
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=")


@dataclass(slots=True)
class Findings:
    """Commands, paths and written files of a line, as far as they can be seen."""

    line: str
    texts: dict[str, None] = field(default_factory=dict[str, None])
    names: dict[str, None] = field(default_factory=dict[str, None])
    written: dict[str, None] = field(default_factory=dict[str, None])
    directories: list[str] = field(default_factory=lambda: [""])

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands, the line itself first."""
        return tuple(self.texts) or (self.line.strip(),)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths, each from every directory that the line enters."""
        return tuple(dict.fromkeys(self._locate(self.names)))

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._locate(self.written)))

    @property
    def has_redirection(self) -> bool:
        """Whether the line may write a file that is not among `writes`."""
        return ">" in re.sub(r"[0-9]?>&[0-9-]|[0-9&]?>>?\s*/dev/null\b|[-=]>", "", self.line)

    def _locate(self, names: dict[str, None]) -> Iterator[str]:
        for name in names:
            if name.startswith(("/", "~")):
                yield name
            else:
                yield from (posixpath.join(directory, name) for directory in self.directories)

    def add(self, text: str) -> None:
        if text and len(self.texts) < COMMANDS_LIMIT:
            self.texts[text] = None


def find(line: str) -> Findings:
    """Find what a line may run."""
    found = Findings(line)
    found.add(line.strip())
    for piece in _SEPARATOR.split(line, COMMANDS_LIMIT):
        found.add(piece.strip())
    _parse(line, found, 0)
    return found


@cache
def _language() -> Language:
    """Load the grammar, with the first line that needs it."""
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def _parse(text: str, found: Findings, depth: int) -> None:
    if depth > NESTING_LIMIT or len(text) > LENGTH_LIMIT or sum(map(text.count, "(`{;&|<>[")) + text.count("case ") > HEAVY_LIMIT:
        return
    import tree_sitter

    source = text.encode("utf-8", "replace")
    nodes = [tree_sitter.Parser(_language()).parse(source).root_node]
    while nodes:
        node = nodes.pop()
        nodes += reversed(node.children)
        if node.type in ("command", "declaration_command", "test_command", "unset_command"):
            _command(node, source, found, depth)
        elif node.type == "file_redirect":
            _redirect(node, source, found)


def _text(node: Node, source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _command(node: Node, source: bytes, found: Findings, depth: int) -> None:
    words = [
        _text(child, source)
        for child in node.children
        if child.type not in ("file_redirect", "herestring_redirect", "heredoc_redirect")
    ]
    redirects = [_text(child, source) for child in node.children if child.type in ("file_redirect", "herestring_redirect")]
    if node.parent is not None and node.parent.type == "redirected_statement":
        redirects += [_text(child, source) for child in node.parent.children if child.type == "file_redirect"]
    found.add(" ".join([*words, *redirects]))
    while words and _ASSIGNED.match(words[0]):
        words.pop(0)
    _words(words, redirects, found, depth)


def _words(words: list[str], redirects: list[str], found: Findings, depth: int) -> None:
    """Note a command in the spellings that a rule may have, and what it runs."""
    plain = [_remove_quotes(word) for word in words]
    if not plain or depth > NESTING_LIMIT:
        return
    found.add(" ".join([*words, *redirects]))
    found.add(" ".join([*plain[:3], *words[3:], *redirects]))
    program = posixpath.basename(plain[0])
    if program in ("cd", "pushd") and len(plain) > 1:
        found.names[plain[-1].rstrip("/") + "/"] = None
        found.directories = list(
            dict.fromkeys([*found.directories, *(posixpath.join(base, plain[-1]) for base in found.directories)])
        )[:8]
    elif program in tables.PATH_COMMANDS:
        found.names.update(
            dict.fromkeys(word for word in plain[1:] if word and not word.startswith("-") and not re.search(r"[$`*?]", word))
        )
    if program in _EVALUATING or (program in tables.SHELLS and len(plain) > 2):
        for text in plain[1:]:
            _parse(text, found, depth + 1)
            for piece in _SEPARATOR.split(text, COMMANDS_LIMIT):
                found.add(piece.strip())
    if program in tables.RUNNERS or program in tables.WRAPPERS:
        for start in range(1, min(len(words), 12)):
            _words(words[start:], redirects, found, depth + 2)


def _redirect(node: Node, source: bytes, found: Findings) -> None:
    operator = next((_text(child, source) for child in node.children if not child.is_named), "")
    target = next(
        (_remove_quotes(_text(child, source)) for child in node.children if child.type != "file_descriptor" and child.is_named),
        "",
    )
    if not target or target.isdigit() or tables.DEVICES.fullmatch(target) or re.search(r"[$`*?]", target):
        return
    found.names[target] = None
    if ">" in operator:
        found.written[target] = None


def _remove_quotes(word: str) -> str:
    """A word without its quotes, as far as that is plain to see."""
    return re.sub(r"""'([^']*)'|"([^"]*)"|\\(.)""", lambda match: match[1] or match[2] or match[3] or "", word)
