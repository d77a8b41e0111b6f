"""Parses a shell line and checks its text and bounds, before other modules read its meaning. Pure."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from universal.shell.values import Outcome, State, reject

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Parser

LENGTH_LIMIT = 100_000
"""Maximum characters of a line. A longer line is not understood."""
NESTING_LIMIT = 30
"""Maximum nesting of statements and words."""
OPENINGS_LIMIT = 600
"""Characters that may open something. The grammar's time grows with the square of those that nothing closes."""
SEPARATORS_LIMIT = 4000
"""Characters that may separate commands or words. The grammar's time grows with the square of those that separate nothing."""
VISITS_LIMIT = 20_000
"""Maximum number of nodes that are read."""

BLANK = re.compile(r"[ \t]*")
CONTINUED = re.compile(r"(?:\\\n)*[ \t](?:[ \t]|\\\n)*")
SPACE = re.compile(r"(?:[ \t\n]|\\\n)*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\ud800-\udfff]")
_UNUSUAL_BLANK = re.compile(r"[^\S \t\n]")


@cache
def _language() -> Language:
    """Load the grammar, with the first line and not at the server's start."""
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def _parser() -> Parser:
    """A parser for one line, since lines are read in several threads. It takes 0.3 microseconds."""
    import tree_sitter

    return tree_sitter.Parser(_language())


OPERATORS = frozenset({";", "&", "&&", "||", "|", "|&", "\n"})


class Source:
    """Access to the text of the current line, with bounds on its size and nesting."""

    def __init__(self) -> None:
        self.commands: list[tuple[int, str]] = []
        self.paths: list[str] = []
        self.paths_known = True
        self._source = b""
        self._depth: int = 0
        self._visits: int = 0
        self._changes_directory = False
        self._place: int = 0
        self._dashes: set[int] = set()
        self._pending: dict[int, list[Node]] = {}

    def read(self, line: str, state: State) -> Outcome:
        """Read a text, in the state of the shell that evaluates it. Raises NotUnderstoodError."""
        self._guard(line)
        outer = self._source
        self._changes_directory |= re.search(r"\b(cd|pushd|popd)\b", line) is not None
        source = line.encode()
        root = _parser().parse(source).root_node
        if root.has_error:
            raise reject("it does not parse")
        self._source = source
        try:
            if SPACE.fullmatch(self._text(0, root.start_byte)) is None or SPACE.fullmatch(self._text(root.end_byte)) is None:
                raise reject("text outside of the grammar")
            return self._statements(root, state)
        finally:
            self._source = outer

    def _guard(self, line: str) -> None:
        if len(line) > LENGTH_LIMIT:
            raise reject("it is too long")
        if _CONTROL.search(line) or _UNUSUAL_BLANK.search(line):
            raise reject("it has control characters or unusual blanks")
        if sum(map(line.count, "(`{")) + line.count("<<") + line.count("case ") > OPENINGS_LIMIT:
            raise reject("it is nested too deeply")
        if sum(map(line.count, ";&|<>[")) > SEPARATORS_LIMIT:
            raise reject("it is too long")
        if line.endswith("\\"):
            raise reject("it ends with a backslash")

    def _text(self, start: int, end: int | None = None) -> str:
        return self._source[start:end].decode(errors="replace")

    def _of(self, node: Node) -> str:
        return self._text(node.start_byte, node.end_byte)

    def _enter(self) -> None:
        self._depth += 1
        self._visits += 1
        if self._depth > NESTING_LIMIT:
            raise reject("it is nested too deeply")
        if self._visits > VISITS_LIMIT:
            raise reject("it is too long")

    def _gap(self, before: Node | None, after: Node, pattern: re.Pattern[str] = SPACE, start: int = 0) -> str:
        """The text between two nodes; only blanks may stand there."""
        begin = before.end_byte if before is not None else start
        gap = self._text(begin, after.start_byte)
        if gap and pattern.fullmatch(gap) is None:
            raise reject("text outside of the grammar")
        if "\\\n" in gap and " " not in gap and "\t" not in gap:
            previous, following = self._text(begin - 1, begin), self._text(after.start_byte, after.start_byte + 1)
            if previous not in ("&", "|", ";") or following in "&|;<>(":
                raise reject("a line is continued inside of a word")
        return gap

    def _comment(self, node: Node) -> None:
        before = self._text(max(node.start_byte - 1, 0), node.start_byte)
        after = self._text(node.end_byte, node.end_byte + 1)
        if self._source[max(node.start_byte - 2, 0) : node.start_byte] == b"\\\n":
            raise reject("a comment behind a continued line")
        if before not in ("", " ", "\t", "\n", ";", "&", "|") or after not in ("", "\n") or "\n" in self._of(node):
            raise reject("a comment in an unusual place")
        parent = node.parent
        while parent is not None:
            if parent.type in ("command_substitution", "process_substitution"):
                raise reject("a comment inside of a substitution")
            parent = parent.parent

    def _with_blanks(self, node: Node) -> list[Node]:
        """The children, with a blank between each two."""
        before: Node | None = None
        for child in node.children:
            if not self._gap(before, child, CONTINUED, start=node.start_byte) and before is not None:
                raise reject("two words without a blank between")
            before = child
        return node.children

    def _statements(self, node: Node, state: State, words: frozenset[str] = frozenset()) -> Outcome:
        raise NotImplementedError
