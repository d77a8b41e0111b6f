"""Text that grows piece by piece."""

from __future__ import annotations


class Growing:
    """Joined only when it is read, so that a piece costs the same however long the text already is."""

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
