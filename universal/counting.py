"""Counts by a name that somebody else chooses."""

from __future__ import annotations

from collections import Counter

MOST = 500
"""Names that are counted each for itself."""
OTHER = "other"
"""What all further ones count as."""


class Kinds(Counter[str]):
    """A Counter for `kinds[name] += 1` that does not grow with what agents make up."""

    def __setitem__(self, kind: str, count: int) -> None:
        if kind not in self and len(self) >= MOST:
            kind, count = OTHER, self[OTHER] + count
        super().__setitem__(kind, count)
