"""A text that grows piece by piece."""

from __future__ import annotations


class GrowingText:
    """A text that joins its pieces only when it is read, so that appending costs the same at any length."""

    __slots__ = ("_pieces", "add")

    def __init__(self, text: str = "") -> None:
        self._pieces = [text] if text else []
        self.add = self._pieces.append

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""
