"""The queue of effects: one loop, and the order of what effects cause."""

from __future__ import annotations

import pytest

from shim.sessions.session.actor import EffectQueue


class Runs:
    """Carries out effects that are words; `causes` says which ones add others."""

    def __init__(self, causes: dict[str, list[str]] | None = None) -> None:
        self.causes = causes or {}
        self.done: list[str] = []
        self.depth = self.deepest = 0
        self.queue = EffectQueue[str](self.carry_out)

    def carry_out(self, effect: str) -> None:
        self.depth += 1
        self.deepest = max(self.depth, self.deepest)
        if effect == "fails":
            self.depth -= 1
            raise ValueError(effect)
        self.queue.add(self.causes.get(effect, []))
        self.done.append(effect)
        self.depth -= 1


def test_an_effects_own_effects_run_next_and_never_within_it() -> None:
    runs = Runs({"a": ["a1", "a2"], "a1": ["a11"]})
    runs.queue.add(["a", "b"])
    assert runs.done == ["a", "a1", "a11", "a2", "b"]
    assert runs.deepest == 1


def test_effects_are_carried_out_before_add_returns() -> None:
    runs = Runs()
    runs.queue.add(["a"])
    runs.queue.add([])
    runs.queue.add(["b"])
    assert runs.done == ["a", "b"]


def test_a_failure_drops_what_waits_and_the_queue_goes_on() -> None:
    runs = Runs({"a": ["fails", "a2"]})
    with pytest.raises(ValueError, match="fails"):
        runs.queue.add(["a", "b"])
    assert runs.done == ["a"]
    runs.queue.add(["c"])
    assert runs.done == ["a", "c"]
