"""Reads redirections and here-documents of a shell line. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from universal.shell.source import BLANK, CONTINUED
from universal.shell.values import Outcome, State, Word, reject
from universal.shell.words import NAME, WordReader

if TYPE_CHECKING:
    from tree_sitter import Node

_HEREDOC_START = re.compile(rf"{NAME}|'{NAME}'|\"{NAME}\"|\\{NAME}")
_HEREDOC_LINE = re.compile(r"""(?:[\w \t./|&;<>=:@%+,~*?$-]|"[^"\n`\\]*"|'[^'\n]*')*\n""")
_HEREDOC_TEXT = re.compile(r"(?:[^\\`$]|\\[^\r]|\$(?=[\s.,:;/%=)\]}|&+~^\"'-]|\Z))*", re.DOTALL)
_FD = re.compile(r"[0-9]")


class RedirectionReader(WordReader):
    """Reads redirections."""

    def _redirect(self, node: Node, state: State) -> tuple[str, list[Word]]:  # noqa: C901 - a table of node types
        """Read a redirection. Returns its text, and words after it that are arguments of the command."""
        if node.type == "heredoc_redirect":
            return self._heredoc(node, state)
        children = node.children
        if node.type == "herestring_redirect":
            if len(children) != 2 or children[0].type != "<<<":
                raise reject("an unusual redirection")
            self._gap(children[0], children[1], BLANK)
            return f"<<<{self._word(children[1], state).source}", []
        if node.type != "file_redirect":
            raise reject("an unusual redirection")
        descriptor, operator, words = "", "", list[Word]()
        before: Node | None = None
        for child in children:
            gap = self._gap(before, child, CONTINUED, start=node.start_byte)
            if child.type == "file_descriptor":
                descriptor = self._of(child)
                preceding = self._text(max(child.start_byte - 1, 0), child.start_byte)
                if _FD.fullmatch(descriptor) is None or preceding not in ("", " ", "\t", "\n", ";", "&", "|", "("):
                    raise reject("an unusual file descriptor")
            elif not child.is_named:
                if operator or child.type not in (">", "<", ">>", ">|", "<>", "&>", "&>>", ">&", "<&", ">&-", "<&-") or gap:
                    raise reject("an unusual redirection")
                operator = child.type
            elif words and not gap:
                raise reject("two words without a blank between")
            else:
                words.append(self._word(child, state))
            before = child
        if not operator or (not words) != operator.endswith("-"):
            raise reject("an unusual redirection")
        if not words:
            return descriptor + operator, []
        target, *behind = words
        if operator.startswith("&") and behind:
            raise reject("`&>` means another thing in another shell")
        if not (operator.endswith("&") and re.fullmatch(r"[0-9]-?|-", target.value or "")):
            self._path(target, state)
        return f"{descriptor}{operator}{' ' if self._spaced_target(children) else ''}{target.source}", behind

    def _spaced_target(self, children: Sequence[Node]) -> bool:
        operator = next(index for index, child in enumerate(children) if not child.is_named)
        return children[operator].end_byte != children[operator + 1].start_byte

    def _heredoc(self, node: Node, state: State) -> tuple[str, list[Word]]:
        """Read a here-document and find its end in the way of the shell."""
        start = next((child for child in node.children if child.type == "heredoc_start"), None)
        end = next((child for child in node.children if child.type == "heredoc_end"), None)
        operator = next((child.type for child in node.children if child.type in ("<<", "<<-")), "")
        if start is None or end is None or not operator or _HEREDOC_START.fullmatch(self._of(start)) is None:
            raise reject("an unusual here-document")
        self._outside_of_backticks(node)
        rest = _HEREDOC_LINE.match(self._text(start.end_byte, min(len(self._source), start.end_byte + 2000)))
        line_start = self._source.rfind(b"\n", 0, start.start_byte) + 1
        if rest is None or self._source.count(b"<<", line_start, start.end_byte + len(rest[0].encode())) != 1:
            raise reject("an unusual here-document")
        name = self._of(start)
        quoted = name[0] in "'\"\\"
        begin = position = newline = start.end_byte + len(rest[0].encode())
        delimiter = name.strip("'\"\\").encode()
        while position < len(self._source):
            newline = self._source.find(b"\n", position)
            newline = len(self._source) if newline < 0 else newline
            text = self._source[position:newline]
            if (text.lstrip(b"\t") if operator == "<<-" else text) == delimiter:
                break
            if not quoted and text.endswith(b"\\"):
                raise reject("a continued line in a here-document")
            position = newline + 1
        if position + len(self._source[position:newline]) != end.end_byte or end.start_byte < begin:
            raise reject("a here-document with another end")
        texts, behind = self._heredoc_parts(node, state, begin, position, quoted)
        return " ".join([f"{operator}{name}", *texts]), behind

    def _outside_of_backticks(self, node: Node) -> None:
        parent = node.parent
        while parent is not None:
            if parent.type == "process_substitution" or (
                parent.type == "command_substitution" and not self._of(parent.children[0]).strip().startswith("$(")
            ):
                raise reject("a here-document inside of a substitution")
            parent = parent.parent

    def _heredoc_parts(self, node: Node, state: State, begin: int, end: int, quoted: bool) -> tuple[list[str], list[Word]]:  # noqa: C901 - a table of node types
        """The body, and the statements after the redirection on its line."""
        behind: list[Word] = []
        redirects: list[str] = []
        expanded = False
        before: Node | None = None
        for child in node.children:
            if child.type != "heredoc_body" and child.type != "heredoc_end":
                self._gap(before, child, start=node.start_byte)
            match child.type:
                case "<<" | "<<-" | "heredoc_start" | "heredoc_end" | "&&" | "||" | ";" | "&":
                    pass
                case "heredoc_body":
                    if child.start_byte < begin or child.end_byte > end:
                        raise reject("an unusual here-document")
                    if not quoted:
                        self._heredoc_body(child, state, begin, end)
                        expanded = True
                case "file_redirect" | "herestring_redirect":
                    text, more = self._redirect(child, state)
                    redirects.append(text)
                    behind += more
                case "pipeline":
                    if child.children[0].type not in ("|", "|&"):
                        raise reject("an unusual here-document")
                    self._pipeline(child, state)
                case "file_descriptor":
                    if _FD.fullmatch(self._of(child)) is None:
                        raise reject("an unusual file descriptor")
                case _ if before is not None and before.type in ("&&", "||", ";", "&"):
                    self._statement(child, state)
                case _ if child.is_named and child.start_byte < begin:
                    behind.append(self._word(child, state))
                case _:
                    raise reject("an unusual here-document")
            before = child
        if not quoted and not expanded and _HEREDOC_TEXT.fullmatch(self._text(begin, end)) is None:
            raise reject("an unusual here-document")
        return redirects, behind

    def _heredoc_body(self, node: Node, state: State, begin: int, end: int) -> None:
        position = begin
        for child in node.children:
            if child.type == "heredoc_content":
                continue
            expansion = self._of(child)
            offset = len(expansion) - len(expansion.lstrip())
            if _HEREDOC_TEXT.fullmatch(self._text(position, child.start_byte + offset)) is None:
                raise reject("an unusual here-document")
            self._pieces(child, state, quoted=True)
            position = child.end_byte
        if _HEREDOC_TEXT.fullmatch(self._text(position, end)) is None:
            raise reject("an unusual here-document")

    def _pipeline(self, node: Node, state: State, start: int | None = None) -> Outcome:
        raise NotImplementedError

    def _path(self, word: Word, state: State, *, directory: bool = False) -> None:
        raise NotImplementedError
