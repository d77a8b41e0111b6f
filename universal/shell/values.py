"""The known state of a shell while a line is read: its directories, variables and words. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

VALUES_LIMIT = 16
"""Maximum number of values that are tracked for a variable or the working directory."""

Values: TypeAlias = tuple[str, ...] | None
"""All values that a variable may have; None if they are not known."""


class NotUnderstoodError(Exception):
    """The line has a construct whose effect is not known. The text says which."""


def reject(reason: str) -> NotUnderstoodError:
    """The error to raise for a line that is not understood."""
    return NotUnderstoodError(reason)


@dataclass(frozen=True, slots=True)
class State:
    """The known state of the shell before a statement: its working directories and its variables."""

    directories: Values = ("",)
    variables: tuple[tuple[str, Values], ...] = ()

    def value(self, name: str) -> Values:
        return dict(self.variables).get(name)

    def assign(self, name: str, values: Values) -> State:
        values = values if values is None or len(values) <= VALUES_LIMIT else None
        return replace(self, variables=tuple(sorted({**dict(self.variables), name: values}.items())))

    def merge(self, other: State) -> State:
        """The state that holds if either of two states is the real one."""
        left, right = dict(self.variables), dict(other.variables)
        variables = {name: _union(left.get(name), right.get(name)) for name in {**left, **right}}
        return State(_union(self.directories, other.directories), tuple(sorted(variables.items())))


def _union(first: Values, two: Values) -> Values:
    values = None if first is None or two is None else tuple(dict.fromkeys(first + two))
    return values if values is None or len(values) <= VALUES_LIMIT else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state after a statement that succeeded, and after one that ended in any way."""

    success: State
    end: State


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a word: literal text, or an expansion with the values that it may have."""

    text: str | None
    quoted: bool
    values: Values = None
    number: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command."""

    source: str
    pieces: tuple[Piece, ...]

    @property
    def value(self) -> str | None:
        """The text after quote removal; None if it depends on an expansion, a wildcard or the shell."""
        if any(piece.text is None for piece in self.pieces) or self.has_glob or (self.has_braces and self.source != "{}"):
            return None
        return "".join(piece.text or "" for piece in self.pieces)

    @property
    def start(self) -> str:
        """The literal text before the first expansion."""
        text = ""
        for piece in self.pieces:
            if piece.text is None:
                break
            text += piece.text
        return text

    @property
    def has_glob(self) -> bool:
        return any(not piece.quoted and re.search(r"[*?]|\[.*\]", piece.text or "") for piece in self.pieces)

    @property
    def has_braces(self) -> bool:
        return any(not piece.quoted and re.search(r"[{}]", piece.text or "") for piece in self.pieces)

    @property
    def split(self) -> bool:
        """True if the shell may split the word into several."""
        return any(piece.text is None and not piece.quoted and not piece.number for piece in self.pieces) or (
            self.has_braces and self.source != "{}"
        )

    @property
    def values(self) -> Values:
        """Values after expansion of known variables. Wildcards stand for themselves."""
        if self.has_braces and self.source != "{}":
            return None
        choices = [(piece.text,) if piece.text is not None else piece.values for piece in self.pieces]
        definite = [choice for choice in choices if choice is not None]
        if len(definite) < len(choices):
            return None
        count = 1
        for choice in definite:
            count *= len(choice)
        return tuple("".join(parts) for parts in product(*definite)) if count <= VALUES_LIMIT else None

    @property
    def tilde(self) -> bool:
        return bool(self.pieces) and not self.pieces[0].quoted and (self.pieces[0].text or "").startswith("~")


def after_equals(word: Word) -> Word:
    """`--file=/x` as the word `/x`."""
    pieces = list(word.pieces)
    while pieces and "=" not in (pieces[0].text or ""):
        pieces.pop(0)
    first = pieces[0]
    return Word(word.source, (replace(first, text=(first.text or "").split("=", 1)[1]), *pieces[1:]))


def are_numbers(values: Values) -> bool:
    """Whether all values are known and are numbers."""
    return values is not None and all(re.fullmatch(r"[0-9]+", value) for value in values)


def is_number(word: Word) -> bool:
    """Whether the word is a number after all expansions."""
    return all(piece.number or re.fullmatch(r"-?[0-9]*", piece.text or "x") is not None for piece in word.pieces)


def static_values(words: Sequence[Word], name: str) -> list[str]:
    """The literal texts of words that the command `name` evaluates."""
    values = [word.value for word in words if word.value is not None]
    if len(values) < len(words):
        raise reject(f"what {name} evaluates is not known")
    return values
