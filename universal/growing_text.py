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

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[Hashable, tuple[V, list[str]]] = {}

    def add(self, key: Hashable, piece: str, value: V) -> None:
        """Append a piece to the text of this key."""
        text = self._texts.pop(key, None)  # reinserted at the end, so that texts stay in the order of their last pieces
        if text is None:
            self._texts[key] = (value, [piece])
        else:
            text[1].append(piece)
            self._texts[key] = (value, text[1])

    def take(self) -> list[tuple[V, str]]:
        """Return the joined pieces and start an empty run."""
        texts, self._texts = self._texts, {}
        return [(value, "".join(pieces)) for value, pieces in texts.values()]


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
