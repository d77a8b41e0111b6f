"""The tests of the turn laws are tested: each planted bug is found, in bounded time, by the walk and by drawn bytes.

The state machine has to find only the plain ones: a bug behind four particular inputs takes it 10 s and more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.laws import LawBroken, walk
from tests.properties.mutants import MUTANTS
from tests.properties.test_turn_laws import HISTORY, play, rules_for
from universal.turn import TRANSITIONS, TurnMachine

EXAMPLES = 3_000
"""A mutant must be found within so many examples."""

BOUNDED = settings(max_examples=EXAMPLES, derandomize=True, database=None, phases=[Phase.generate], deadline=None)

PLAIN = (
    "IdleOnStrayDone",
    "DoneEndsAtOnce",
    "QueueLostAtEnd",
    "OpenNotCleared",
    "ExitWithoutEnd",
    "DoubleEnd",
    "DispatchTwice",
    "AbortKeepsQueue",
    "CancelledVanish",
    "BusyAfterDelete",
    "FailedByAnotherDoor",
    "LastInFirstOut",
)

each_mutant = pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())


@each_mutant
def test_the_walk_finds_it(mutant: Callable[[], TurnMachine]) -> None:
    with pytest.raises(LawBroken):
        walk(mutant)


@each_mutant
def test_drawn_histories_find_it(mutant: Callable[[], TurnMachine]) -> None:
    drawn = BOUNDED(given(HISTORY)(lambda history: play(mutant, history)))
    with pytest.raises(LawBroken):
        drawn()


@pytest.mark.nightly
@pytest.mark.parametrize("name", PLAIN)
def test_the_state_machine_finds_it(name: str) -> None:
    with pytest.raises(LawBroken):
        run_state_machine_as_test(rules_for(MUTANTS[name]), settings=BOUNDED)


def test_the_real_machine_passes() -> None:
    assert walk(TurnMachine) == walk(lambda: TurnMachine(table=dict(TRANSITIONS)))
    BOUNDED(given(HISTORY)(lambda history: play(TurnMachine, history)))()
