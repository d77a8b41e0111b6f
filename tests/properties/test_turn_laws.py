"""The laws of turns hold over every history: walked exhaustively, drawn as bytes, and as a state machine.

Three ways, because each sees what the others may miss: the walk is complete but for queues of more than three
prompts, the bytes are many and long, the state machine finds the shortest history for a person to read.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.conftest import LAW_EXAMPLES
from tests.properties.laws import FIRST, LAST, MOVES, LawBook, walk
from universal.turn import OURS, Input, TurnMachine

HISTORY = st.binary(min_size=30, max_size=60)
"""One byte per input: five times faster to draw than a list of moves."""

HOLDS = st.sampled_from(("a", "a", "b", f"{OURS}s", f"{OURS}s"))
PLACES = st.sampled_from((FIRST, LAST))
_DELETE = 255
_WEIGHTS = {
    Input.OFFERED: 2,
    Input.TAKEN: 2,
    Input.CLOSED: 3,
    Input.OPENED: 3,
    Input.PROMPT: 4,
    Input.ACTIVITY: 4,
    Input.DONE: 4,
    Input.FAILED: 2,
    Input.DELETE: 0,
}
"""How often each input is drawn (1 if it is not here): the ends are rarer than what leads to them."""
_DRAWN = sorted((move for move in MOVES for _ in range(_WEIGHTS.get(move[0], 1))), key=lambda move: move[0] is not Input.CLOSED)
"""A CLOSED first: the byte 0, to which hypothesis shrinks, should mean little."""


def play(make: Callable[[], TurnMachine], history: bytes) -> None:
    """Apply the inputs that the bytes mean; only the byte 255 deletes. A deletion ends each history."""
    machine, book = make(), LawBook()
    for number, byte in enumerate(history):
        input_, key = (Input.DELETE, "") if byte == _DELETE else _DRAWN[byte % len(_DRAWN)]
        book.watch(machine, input_, book.key_of(input_, key, f"p{number}"))
    book.watch(machine, Input.DELETE)
    book.watch(machine, Input.EXIT)


class TurnRules(RuleBasedStateMachine):
    """One rule per input. DELETE once in ten when its rule is drawn, and always at the end."""

    make: Callable[[], TurnMachine] = TurnMachine

    def __init__(self) -> None:
        super().__init__()
        self.machine, self.book, self.prompts = type(self).make(), LawBook(), 0

    def send(self, input_: Input, key: str = "") -> None:
        self.book.watch(self.machine, input_, self.book.key_of(input_, key, ""))

    @rule()
    def prompt(self) -> None:
        self.prompts += 1
        self.send(Input.PROMPT, f"p{self.prompts}")

    @rule()
    def activity(self) -> None:
        self.send(Input.ACTIVITY)

    @rule()
    def on_done(self) -> None:
        self.send(Input.DONE)

    @rule()
    def on_failed(self) -> None:
        self.send(Input.FAILED)

    @rule(key=HOLDS)
    def on_opened(self, key: str) -> None:
        self.send(Input.OPENED, key)

    @rule(key=HOLDS)
    def on_closed(self, key: str) -> None:
        self.send(Input.CLOSED, key)

    @rule(key=PLACES)
    def on_offered(self, key: str) -> None:
        self.send(Input.OFFERED, key)

    @rule(key=PLACES)
    def on_taken(self, key: str) -> None:
        self.send(Input.TAKEN, key)

    @rule(key=PLACES)
    def on_returned(self, key: str) -> None:
        self.send(Input.RETURNED, key)

    @rule(key=PLACES)
    def on_withdrawn(self, key: str) -> None:
        self.send(Input.WITHDRAWN, key)

    @rule()
    def abort(self) -> None:
        self.send(Input.ABORT)

    @rule()
    def abort_timeout(self) -> None:
        self.send(Input.ABORT_TIMEOUT)

    @rule()
    def exit(self) -> None:
        self.send(Input.EXIT)

    @rule()
    def replay_started(self) -> None:
        self.send(Input.REPLAY_STARTED)

    @rule()
    def replay_ended(self) -> None:
        self.send(Input.REPLAY_ENDED)

    @rule(one_in_ten=st.integers(0, 9))
    def delete(self, one_in_ten: int) -> None:
        if one_in_ten == 9:
            self.send(Input.DELETE)

    def teardown(self) -> None:
        self.send(Input.DELETE)


def rules_for(machine: Callable[[], TurnMachine]) -> type[TurnRules]:
    """The same rules over another machine."""
    return type("TurnRulesOf", (TurnRules,), {"make": staticmethod(machine)})


def test_each_move_in_each_reachable_state() -> None:
    assert walk(TurnMachine) == 2268


@pytest.mark.timeout(180)
@settings(max_examples=LAW_EXAMPLES)
@given(HISTORY)
def test_any_history(history: bytes) -> None:
    play(TurnMachine, history)


@pytest.mark.timeout(180)
def test_any_history_as_a_state_machine() -> None:
    run_state_machine_as_test(rules_for(TurnMachine), settings=settings(max_examples=max(LAW_EXAMPLES // 40, 20)))


def test_there_is_a_rule_for_every_input() -> None:
    rules = {name.removeprefix("on_") for name, value in vars(TurnRules).items() if hasattr(value, "hypothesis_stateful_rule")}
    assert rules == {input_.value for input_ in Input}
