"""Cuts a shell line of the closed subset into words, operators and redirections. Pure.

The subset has plain words, single quotes, double quotes without expansion, a backslash before one character, `|`, `&&`, `||`,
`;`, new lines, and redirections of and to files. bash, dash and zsh read each of these in the same way; all else is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

LENGTH_LIMIT = 20_000
"""Maximum characters of a line that is read."""
_PLAIN = re.compile(r"[\w./:,%@+=!~#*?\[\]{}^-]+")
"""Characters of words that need no quotes. `Word` says which of them have a meaning."""
_UNPRINTABLE = re.compile(r"[^\S \t\n]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_OPERATOR = re.compile(r"&&|\|\||\|(?!&)|[;\n]")
_REDIRECTION = re.compile(r"([0-9]?)(>>|>\||>&|<&|>|<)")
_NUMBER_GLOB = re.compile(r"[0-9]*-[0-9]*")


class NotProvedError(Exception):
    """The line is not in the closed subset, or what it does is not known. The text says why."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word: as it is written, and after the removal of quotes.

    is_glob   the shell replaces it by names of files, so that `value` is only the pattern
    is_quoted  some of it is quoted
    """

    source: str
    value: str
    is_glob: bool = False
    is_quoted: bool = False

    @property
    def may_be_option(self) -> bool:
        """Whether the program may take the word for an option: also a pattern that a file's name such as `-x` may match."""
        return self.value.startswith("-") or (self.is_glob and self.value[0] in "*?[")


@dataclass(frozen=True, slots=True)
class Redirection:
    """A redirection. `target` is None for one to a descriptor (`2>&1`)."""

    source: str
    writes: bool
    target: Word | None


Token: TypeAlias = Word | Redirection | str
"""A word, a redirection, or an operator: `&&`, `||`, `|`, `;`, a new line."""


def tokens_of(line: str) -> list[Token]:
    """Cut a line. Raises NotProvedError."""
    if len(line) > LENGTH_LIMIT:
        raise NotProvedError("it is too long")
    if _UNPRINTABLE.search(line):
        raise NotProvedError("it has control characters or unusual blanks")
    tokens: list[Token] = []
    position = 0
    while position < len(line):
        if line[position] in " \t":
            position += 1
        elif match := _OPERATOR.match(line, position):
            tokens.append(match[0])
            position = match.end()
        elif match := _REDIRECTION.match(line, position):
            redirection, position = _redirection(line, match)
            tokens.append(redirection)
        else:
            word, position = _word(line, position)
            tokens.append(word)
    return tokens


def _redirection(line: str, match: re.Match[str]) -> tuple[Redirection, int]:
    start, position = match.start(), match.end()
    operator = match[2]
    if start and line[start - 1] not in " \t\n;|&":
        raise NotProvedError("a redirection without a blank before it")
    if operator in (">&", "<&"):
        if not re.match(r"[0-9](?![^ \t\n;|])", line[position : position + 2]):
            raise NotProvedError(f"`{operator}` means another thing in another shell")
        return Redirection(line[start : position + 1], False, None), position + 1
    while position < len(line) and line[position] in " \t":
        position += 1
    if position == len(line) or line[position] in "\n;|&<>":
        raise NotProvedError("an unusual redirection")
    target, position = _word(line, position)
    if target.is_glob or _NUMBER_GLOB.fullmatch(target.value) or not target.value:
        raise NotProvedError("a redirection to a file that is not known")
    return Redirection(line[start:position], operator != "<", target), position


def _word(line: str, start: int) -> tuple[Word, int]:
    position = start
    value = ""
    is_glob = is_quoted = False
    while position < len(line) and line[position] not in " \t\n;|<>" and not line.startswith("&&", position):
        char = line[position]
        if char == "'":
            end = line.find("'", position + 1)
            if end < 0:
                raise NotProvedError("a quote without an end")
            value, position, is_quoted = value + line[position + 1 : end], end + 1, True
        elif char == '"':
            text, position = _double_quoted(line, position)
            value, is_quoted = value + text, True
        elif char == "\\":
            escaped = line[position + 1 : position + 2]
            if not escaped.isprintable() or not escaped:
                raise NotProvedError("a line that is continued")
            value, position, is_quoted = value + escaped, position + 2, True
        elif match := _PLAIN.match(line, position):
            value, position = value + match[0], match.end()
            is_glob = is_glob or re.search(r"[*?]|\[.*\]", match[0]) is not None
        else:
            raise NotProvedError(_reason(char))
    source = line[start:position]
    if not source:
        raise NotProvedError("an unusual operator")
    _check(source, value, is_quoted=is_quoted)
    return Word(source, value, is_glob and source not in ("[", "]"), is_quoted), position


def _double_quoted(line: str, start: int) -> tuple[str, int]:
    position = start + 1
    text = ""
    while position < len(line) and line[position] != '"':
        if line[position] in "$`":
            raise NotProvedError("an expansion")
        if line[position] == "\\" and line[position + 1 : position + 2] in ('"', "\\", "$", "`", "\n"):
            if line[position + 1] == "\n":
                raise NotProvedError("a line that is continued")
            position += 1
        text += line[position]
        position += 1
    if position == len(line):
        raise NotProvedError("a quote without an end")
    return text, position + 1


def _check(source: str, value: str, *, is_quoted: bool) -> None:
    """Refuse what a shell reads in a way of its own: `=name` of zsh, comments, braces, names of other people's homes."""
    if re.search(r"[{}]", _remove_quotes(source)) and source != "{}":
        raise NotProvedError("braces")
    if source[0] == "#":
        raise NotProvedError("a comment")
    if source[0] == "=" and source != "=":
        raise NotProvedError("a word that zsh replaces")
    if source[0] == "~" and source != "~" and not source.startswith("~/"):
        raise NotProvedError("a directory that is not known")
    if re.search(r"[=:]~", _remove_quotes(source)):
        raise NotProvedError("`~` means another thing in another shell")
    if (
        re.search(r"[\[\]]", _remove_quotes(source))
        and (is_quoted or re.search(r"\[[^\]]*$|^[^\[]*\]", source))
        and source not in ("[", "]")
    ):
        raise NotProvedError("a pattern that shells read in different ways")


def _remove_quotes(source: str) -> str:
    return re.sub(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", "", source)


def _reason(char: str) -> str:
    match char:
        case "$" | "`":
            return "an expansion"
        case "&":
            return "a command in the background"
        case "(" | ")":
            return "a subshell or a function"
        case _:
            return f"an unusual character ({char!r})"
