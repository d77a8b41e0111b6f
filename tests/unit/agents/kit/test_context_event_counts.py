"""What agents make up does not make a counter grow."""

from __future__ import annotations

from universal.agents.kit.context import MOST, OTHER, Kinds


def test_kinds_are_bounded_and_nothing_is_uncounted() -> None:
    kinds = Kinds()
    for number in range(MOST + 100):
        kinds[f"kind {number}"] += 1
    kinds["kind 0"] += 1
    assert len(kinds) == MOST + 1
    assert (kinds["kind 0"], kinds[f"kind {MOST - 1}"], kinds[OTHER], kinds["never"]) == (2, 1, 100, 0)
    assert kinds.total() == MOST + 101
