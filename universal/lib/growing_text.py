"""Texts that grow piece by piece: a single text, and runs of pieces of several texts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class GrowingText:
    """A text that joins its pieces only when it is read, so that appending costs the same at any length."""

    __slots__ = ("_pieces",)

    def __init__(self, text: str = "") -> None:
        self._pieces = [text] if text else []

    def add(self, piece: str) -> None:
        """Append."""
        self._pieces.append(piece)

    @property
    def text(self) -> str:
        """All of it."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


class Run(Generic[V]):
    """Pieces of several texts with nothing else between them, joined to one piece for each text.

    A joined piece has the value (an event, a frame) of its last piece. Joined pieces are in the order of these last pieces, so
    sequences and ids ascend.
    """

    __slots__ = ("_last_key", "_last_value", "_pieces", "_texts")

    def __init__(self) -> None:
        self._texts: dict[Hashable, tuple[V, list[str]]] = {}
        """All texts but the one that grows now."""
        self._last_key: Hashable = None
        self._last_value: V | None = None
        self._pieces: list[str] = []

    def add(self, key: Hashable, piece: str, value: V) -> None:
        """Append a piece to the text of this key."""
        if key != self._last_key:
            self._close_text()
            _, self._pieces = self._texts.pop(key, (value, []))  # reinserted at the end later: the order of last pieces
            self._last_key = key
        self._pieces.append(piece)
        self._last_value = value

    def take(self) -> list[tuple[V, str]]:
        """Return the joined pieces and start an empty run."""
        self._close_text()
        texts, self._texts = self._texts, {}
        return [(value, "".join(pieces)) for value, pieces in texts.values()]

    def _close_text(self) -> None:
        if self._last_value is not None:
            self._texts[self._last_key] = (self._last_value, self._pieces)
        self._last_key, self._last_value = None, None


class PartsRun(Generic[V]):
    """A `Run` that leaves the first piece of each text alone, since its time is the time of the part.

    A text that begins stands after all pieces that came before it.
    """

    __slots__ = ("_rest", "_started")

    def __init__(self) -> None:
        self._started: set[Hashable] = set()
        self._rest: Run[V] = Run()

    def add(self, key: Hashable, piece: str, value: V) -> list[tuple[V, str]]:
        """Append a piece; return the pieces that are complete now, joined."""
        if key in self._started:
            self._rest.add(key, piece, value)
            return []
        self._started.add(key)
        return [*self._rest.take(), (value, piece)]

    def take(self) -> list[tuple[V, str]]:
        """Return the pieces that are left, joined, and start an empty run."""
        self._started = set()
        return self._rest.take()
