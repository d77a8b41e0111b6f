"""Texts that grow piece by piece: a single text, and runs of pieces of several texts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

V = TypeVar("V")


class GrowingText:
    """A text that joins its pieces only when it is read, so that appending costs the same at any length."""

    __slots__ = ("_pieces", "add")

    def __init__(self, text: str = "") -> None:
        self._pieces = [text] if text else []
        self.add = self._pieces.append
        """Append a piece."""

    @property
    def text(self) -> str:
        """All of it."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
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

    def add(self, key: Hashable, pieces: Iterable[str], value: V) -> None:
        """Append pieces to the text of this key. `value`: that of the last one."""
        if key != self._last_key:
            self._close_text()
            _, self._pieces = self._texts.pop(key, (value, []))  # reinserted at the end later: the order of last pieces
            self._last_key = key
        self._pieces += pieces
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

    def add(self, key: Hashable, values: Sequence[V], pieces: Sequence[str]) -> list[tuple[V, str]]:
        """Append pieces to the text of this key, each with its value; return the pieces that are complete now, joined."""
        done: list[tuple[V, str]] = []
        if key not in self._started:
            self._started.add(key)
            done, pieces = [*self._rest.take(), (values[0], pieces[0])], pieces[1:]
        if pieces:
            self._rest.add(key, pieces, values[-1])
        return done

    def take(self) -> list[tuple[V, str]]:
        """Return the pieces that are left, joined, and start an empty run."""
        self._started = set()
        return self._rest.take()
