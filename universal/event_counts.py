"""Counts events by names that an agent chooses, in bounded memory."""

from __future__ import annotations

from collections import Counter

MOST = 500
"""Maximum number of names with a count of their own."""
OTHER = "other"
"""Name under which all further names are counted."""


class Kinds(Counter[str]):
    """A Counter for `kinds[name] += 1` whose size is bounded, whatever names agents invent."""

    def __setitem__(self, kind: str, count: int) -> None:
        if kind not in self and len(self) >= MOST:
            kind, count = OTHER, self[OTHER] + count
        super().__setitem__(kind, count)
