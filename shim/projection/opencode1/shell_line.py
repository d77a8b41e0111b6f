"""A shell line as its simple commands, so that rules of permission see each of them. Pure; time grows with the line, no faster.

`git log && rm x` -> `git log`, `rm x`. What a command has inside of it that runs is told too: `git log $(rm x)` ->
`git log $(rm x)`, `rm x`. A rule that allows `git *` must not allow what is hidden in, behind or between such commands, so where
a line cannot be understood (quotes that do not close, here-documents, very long ones), quotes mean nothing: every separator
separates, and a person is asked about more than there is. Source: native 1.18.33 parses lines with a grammar of bash; the
recordings `perm_*`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LENGTH_LIMIT = 100_000
"""Characters of a line that are looked through one by one; a longer one is cut at everything that may separate."""
DEPTH_LIMIT = 20
"""Of commands inside of commands; a deeper line is cut in the same way."""
_SPECIAL = re.compile(r"""\\|['"`#()\n;]|\$\(|[<>]\(|<<|&&|\|\||[|&]""")
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&", "\n"})
_OPENING = frozenset({"$(", "<(", ">("})
_ANY = re.compile(r"&&|\|\||[;|\n`()]|(?<![<>&])&(?![>&])|\$\(")
_BOTH_TO_A_FILE = re.compile(r"&>>?[ \t]*+[\w./~+:@%,=-]++[ \t]*+(?=[;|&\n)]|\Z)")
"""`&>file` of bash. For other shells it is `&` and `>file`, and what comes behind it is a command."""
_ARITHMETIC = re.compile(r"\(\s*[\w$]+(?:\s*[-+*/%]\s*[\w$]+)*\s*\)")


def commands_of(line: str) -> list[str]:
    """The simple commands, each once; the line itself if it has none."""
    found = _Scan(line).commands() if len(line) <= LENGTH_LIMIT else None
    if found is None:
        found = [line, *_ANY.split(line)] if _ANY.search(line) else [line]
    return [one for one in dict.fromkeys(command.strip() for command in found) if one] or [line.strip()]


@dataclass(slots=True)
class _Level:
    """Where the command begins that is read now, and what ends the level: `)`, a backtick, or nothing."""

    start: int
    closer: str
    quote: str = ""


class _Scan:
    """One line. Positions are those in it."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._levels = [_Level(0, "")]
        self._last_char = len(line.rstrip()) - 1
        self._escaped, self._before = -1, ""  # the place behind the last backslash, and what stands before that
        self._found: list[tuple[int, str]] = []

    def commands(self) -> list[str] | None:
        """None for a line that cannot be understood."""
        at = 0
        while (match := _SPECIAL.search(self._line, at)) is not None:
            after = self._take(match[0], match.start(), match.end())
            if after is None or len(self._levels) > DEPTH_LIMIT:
                return None
            at = after
        if len(self._levels) > 1 or self._levels[0].quote:
            return None
        self._end(len(self._line))
        return [command for _, command in sorted(self._found)]

    def _take(self, sign: str, start: int, end: int) -> int | None:
        """Where to go on; None for what is not understood."""
        level = self._levels[-1]
        if level.quote in ("'", "$'"):
            if sign == "\\" and level.quote == "$'":
                return end + 1
            if sign == "'":
                level.quote = ""
            return start + 1
        if sign == "\\":
            self._before = self._previous(start) if self._line[end : end + 1] == "\n" else "x"
            self._escaped = end + 1
            return self._escaped
        if sign == "$(" or (sign in _OPENING and not level.quote):
            self._levels.append(_Level(end, ")"))
            return end
        if sign == "`":
            if level.closer == "`":
                return self._close(start, end)
            self._levels.append(_Level(end, "`"))
            return end
        if sign == '"':
            level.quote = "" if level.quote else '"'
            return end
        return start + 1 if level.quote else self._plain(sign, start, end)

    def _plain(self, sign: str, start: int, end: int) -> int | None:
        """Outside of quotes."""
        level = self._levels[-1]
        if sign == "'":
            level.quote = "$'" if self._line[start - 1 : start] == "$" else "'"
        elif sign == "<<":
            return end + 1 if self._line[end : end + 1] == "<" else None  # a here-document; `<<<` has none
        elif sign == "#" and self._previous(start) in ("", *" \t\n;|&("):
            self._end(start)
            line_end = self._line.find("\n", end)
            level.start = len(self._line) if line_end < 0 else line_end
            return level.start
        elif sign == "(" and level.closer in (")", "group"):
            self._levels.append(_Level(level.start, "group"))
        elif sign == ")" and level.closer == "group":
            self._levels.pop()
            self._levels[-1].start = level.start
        elif sign == ")" and level.closer == ")":
            return self._close(start, end)
        elif sign in _SEPARATORS and not self._is_redirection(sign, start, end):
            self._end(start)
            level.start = end
        return end

    def _previous(self, at: int) -> str:
        """What stands before a place, as the shell sees it: a line that goes on by a backslash is one line."""
        return self._before if at == self._escaped else self._line[max(at - 1, 0) : at]

    def _is_redirection(self, sign: str, start: int, end: int) -> bool:
        """`2>&1`, and `&>file` at a command's end; a `&` at the end of the line separates from nothing."""
        before = self._line[max(start - 1, 0) : start]
        return sign == "&" and (
            before in ("<", ">") or start >= self._last_char or _BOTH_TO_A_FILE.match(self._line, start) is not None
        )

    def _end(self, end: int) -> None:
        """A command ends here."""
        start = self._levels[-1].start
        self._found.append((start, self._line[start:end]))

    def _close(self, start: int, end: int) -> int:
        """A level ends here; what is around it goes on."""
        if not _ARITHMETIC.fullmatch(self._line, self._levels[-1].start, start):
            self._end(start)
        self._levels.pop()
        return end
