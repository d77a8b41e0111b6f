"""The turn machine, row by row, and the bugs of others by name. The laws are in tests/properties."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from tools import turn_doc
from universal.turn import (
    OURS,
    TRANSITIONS,
    DispatchPrompt,
    Effect,
    Input,
    InterruptAgent,
    KillAgent,
    PromptsCancelled,
    State,
    Step,
    TurnEnd,
    TurnMachine,
    TurnStart,
)

P, Q = "prompt one", "prompt two"
PROMPT, SECOND = (Input.PROMPT, P), (Input.PROMPT, Q)
OPENED, CLOSED = (Input.OPENED, "task"), (Input.CLOSED, "task")
OTHER_OPENED, OTHER_CLOSED = (Input.OPENED, "other"), (Input.CLOSED, "other")
OFFERED, TAKEN, RETURNED, WITHDRAWN = ((i, Q) for i in (Input.OFFERED, Input.TAKEN, Input.RETURNED, Input.WITHDRAWN))
BEGUN: list[Effect] = [TurnStart(1, "user"), DispatchPrompt(P)]

Move = Input | tuple[Input, str]


def machine(*moves: Move) -> TurnMachine:
    """A machine after these inputs."""
    made = TurnMachine()
    for move in moves:
        say(made, move)
    return made


def say(turn: TurnMachine, move: Move) -> list[Effect]:
    """One input."""
    return turn.apply(*move) if isinstance(move, tuple) else turn.apply(move)


BEFORE: dict[State, tuple[Move, ...]] = {
    State.IDLE: (),
    State.RUNNING: (PROMPT,),
    State.DRAINING: (PROMPT, OPENED, Input.DONE),
    State.ABORTING: (PROMPT, Input.ABORT),
    State.RESTORED: (Input.REPLAY_STARTED,),
    State.CLOSED: (Input.DELETE,),
}
"""How to get into each state."""

ROWS: dict[tuple[State, Move], tuple[list[Effect], State]] = {
    (State.IDLE, PROMPT): (BEGUN, State.RUNNING),
    (State.IDLE, Input.ACTIVITY): ([TurnStart(1, "agent")], State.RUNNING),
    (State.IDLE, Input.DELETE): ([KillAgent()], State.CLOSED),
    (State.IDLE, Input.REPLAY_STARTED): ([], State.RESTORED),
    (State.RESTORED, Input.REPLAY_ENDED): ([], State.IDLE),
    (State.RESTORED, Input.EXIT): ([TurnEnd(1, "agent_exited")], State.IDLE),
    (State.RESTORED, Input.ABORT): ([TurnEnd(1, "aborted")], State.IDLE),
    (State.RESTORED, Input.DELETE): ([KillAgent(), TurnEnd(1, "aborted")], State.CLOSED),
    (State.RUNNING, SECOND): ([], State.RUNNING),
    (State.RUNNING, Input.ACTIVITY): ([], State.RUNNING),
    (State.RUNNING, Input.DONE): ([TurnEnd(1, "completed")], State.IDLE),
    (State.RUNNING, Input.FAILED): ([TurnEnd(1, "error")], State.IDLE),
    (State.RUNNING, OPENED): ([], State.RUNNING),
    (State.RUNNING, CLOSED): ([], State.RUNNING),
    (State.RUNNING, OFFERED): ([], State.RUNNING),
    (State.RUNNING, TAKEN): ([], State.RUNNING),
    (State.RUNNING, RETURNED): ([], State.RUNNING),
    (State.RUNNING, WITHDRAWN): ([], State.RUNNING),
    (State.RUNNING, Input.ABORT): ([InterruptAgent()], State.ABORTING),
    (State.RUNNING, Input.EXIT): ([TurnEnd(1, "agent_exited")], State.IDLE),
    (State.RUNNING, Input.DELETE): ([KillAgent(), TurnEnd(1, "aborted")], State.CLOSED),
    (State.DRAINING, SECOND): ([DispatchPrompt(Q)], State.RUNNING),
    (State.DRAINING, Input.ACTIVITY): ([], State.RUNNING),
    (State.DRAINING, Input.DONE): ([], State.DRAINING),
    (State.DRAINING, Input.FAILED): ([], State.DRAINING),
    (State.DRAINING, OTHER_OPENED): ([], State.DRAINING),
    (State.DRAINING, CLOSED): ([TurnEnd(1, "completed")], State.IDLE),
    (State.DRAINING, TAKEN): ([], State.DRAINING),
    (State.DRAINING, RETURNED): ([], State.DRAINING),
    (State.DRAINING, WITHDRAWN): ([], State.DRAINING),
    (State.DRAINING, Input.ABORT): ([InterruptAgent()], State.ABORTING),
    (State.DRAINING, Input.EXIT): ([TurnEnd(1, "agent_exited")], State.IDLE),
    (State.DRAINING, Input.DELETE): ([KillAgent(), TurnEnd(1, "aborted")], State.CLOSED),
    (State.ABORTING, SECOND): ([], State.ABORTING),
    (State.ABORTING, Input.ACTIVITY): ([], State.ABORTING),
    (State.ABORTING, Input.DONE): ([TurnEnd(1, "aborted")], State.IDLE),
    (State.ABORTING, Input.FAILED): ([TurnEnd(1, "aborted")], State.IDLE),
    (State.ABORTING, OPENED): ([], State.ABORTING),
    (State.ABORTING, CLOSED): ([], State.ABORTING),
    (State.ABORTING, TAKEN): ([], State.ABORTING),
    (State.ABORTING, RETURNED): ([], State.ABORTING),
    (State.ABORTING, WITHDRAWN): ([], State.ABORTING),
    (State.ABORTING, Input.ABORT): ([], State.ABORTING),
    (State.ABORTING, Input.ABORT_TIMEOUT): ([KillAgent(), TurnEnd(1, "aborted")], State.IDLE),
    (State.ABORTING, Input.EXIT): ([TurnEnd(1, "aborted")], State.IDLE),
    (State.ABORTING, Input.DELETE): ([KillAgent(), TurnEnd(1, "aborted")], State.CLOSED),
}


def input_of(move: Move) -> Input:
    return move[0] if isinstance(move, tuple) else move


@pytest.mark.parametrize(("row", "expected"), ROWS.items(), ids=[f"{s}-{input_of(m)}" for s, m in ROWS])
def test_row(row: tuple[State, Move], expected: tuple[list[Effect], State]) -> None:
    state, move = row
    turn = machine(*BEFORE[state])
    assert turn.state is state
    effects = say(turn, move)
    assert (effects, turn.state) == expected
    assert not turn.ignored


def test_every_row_has_a_case() -> None:
    assert {(state, input_of(move)) for state, move in ROWS} == set(TRANSITIONS)


@pytest.mark.parametrize(("state", "input_"), [(s, i) for s in State for i in Input if (s, i) not in TRANSITIONS])
def test_inputs_outside_the_table_are_ignored_and_counted(state: State, input_: Input) -> None:
    turn = machine(*BEFORE[state])
    before = turn.turn, list(turn.queue), list(turn.offers), set(turn.open)
    assert turn.apply(input_, "key") == []
    assert (turn.state, turn.turn, turn.queue, turn.offers, turn.open) == (state, *before)
    assert turn.ignored == {(state, input_): 1}


# --- by name: what went wrong elsewhere (issue numbers are of the projects named) ------------------------------


def test_a_stray_done_says_nothing() -> None:
    """opencode #40882: idle twice."""
    turn = machine(PROMPT, Input.DONE)
    assert say(turn, Input.DONE) == []
    assert say(turn, Input.FAILED) == []
    assert not turn.busy


def test_a_withheld_idle_is_sent_when_the_last_task_closes() -> None:
    """claude-agent-sdk #1088: `result` is not the end while background tasks run.

    sandbox-agent #132 delayed idle for that, and never sent it.
    """
    turn = machine(PROMPT, OPENED, OTHER_OPENED)
    assert say(turn, Input.DONE) == []
    assert say(turn, CLOSED) == []
    assert turn.busy
    assert say(turn, OTHER_CLOSED) == [TurnEnd(1, "completed")]


def test_the_task_may_close_before_the_answer_is_done() -> None:
    turn = machine(PROMPT, OPENED, CLOSED)
    assert say(turn, Input.DONE) == [TurnEnd(1, "completed")]


def test_bookkeeping_after_idle_does_not_reopen_the_turn() -> None:
    """opencui #453: events after idle."""
    turn = machine(PROMPT, Input.DONE)
    assert [say(turn, move) for move in (OPENED, CLOSED, Input.DONE, Input.EXIT, Input.ABORT, Input.ABORT_TIMEOUT)] == [[]] * 6
    assert not turn.busy
    assert not turn.open
    assert turn.ignored.total() == 6


def test_a_late_opening_does_not_hold_the_next_turn() -> None:
    turn = machine(PROMPT, Input.DONE, OPENED, SECOND)
    assert say(turn, Input.DONE) == [TurnEnd(2, "completed")]


def test_a_continuation_by_the_agent_is_a_turn_of_its_own() -> None:
    """Claude, when a background shell ends after `result` and idle (recorded with 2.1.330)."""
    turn = machine(PROMPT, Input.DONE)
    assert say(turn, Input.ACTIVITY) == [TurnStart(2, "agent")]
    assert say(turn, Input.DONE) == [TurnEnd(2, "completed")]


def test_a_continuation_while_draining_belongs_to_the_turn() -> None:
    """Claude 2.1.330's background agents: `result`, the task's end, a second `result`; one turn, one idle."""
    turn = machine(PROMPT, OPENED, Input.DONE, Input.ACTIVITY)
    assert say(turn, CLOSED) == []
    assert say(turn, Input.DONE) == [TurnEnd(1, "completed")]


def test_a_continuation_after_the_task_closed_is_a_new_turn() -> None:
    turn = machine(PROMPT, OPENED, Input.DONE)
    assert say(turn, CLOSED) == [TurnEnd(1, "completed")]
    assert say(turn, Input.ACTIVITY) == [TurnStart(2, "agent")]


def test_a_prompt_while_draining_is_dispatched_at_once() -> None:
    """It must not wait for a background task that may take hours."""
    turn = machine(PROMPT, OPENED, Input.DONE)
    assert say(turn, SECOND) == [DispatchPrompt(Q)]
    assert say(turn, CLOSED) == []
    assert say(turn, Input.DONE) == [TurnEnd(1, "completed")]


def test_prompts_while_busy_are_one_turn_with_one_idle() -> None:
    turn = machine(PROMPT, SECOND, (Input.PROMPT, "three"))
    assert say(turn, Input.DONE) == [DispatchPrompt(Q)]
    assert say(turn, Input.DONE) == [DispatchPrompt("three")]
    assert say(turn, Input.DONE) == [TurnEnd(1, "completed")]


def test_a_prompt_waits_for_what_the_agent_began_by_itself() -> None:
    turn = machine(Input.ACTIVITY)
    assert say(turn, PROMPT) == []
    assert say(turn, Input.DONE) == [DispatchPrompt(P)]


@pytest.mark.parametrize("end", [Input.FAILED, Input.EXIT])
def test_an_error_ends_the_turn(end: Input) -> None:
    """sandbox-agent #126: a turn that ended with an error hung."""
    turn = machine(PROMPT, Input.ACTIVITY)
    assert [type(effect) for effect in say(turn, end)] == [TurnEnd]


def test_an_error_of_one_prompt_does_not_stop_the_next_nor_stain_it() -> None:
    turn = machine(PROMPT, SECOND)
    assert say(turn, Input.FAILED) == [DispatchPrompt(Q)]
    assert say(turn, Input.DONE) == [TurnEnd(1, "completed")]


def test_the_first_failure_is_the_reason() -> None:
    """Claude with an unknown session: an error `result`, then exit 1. The error says why, the exit does not."""
    turn = machine(PROMPT, OPENED, Input.FAILED)
    assert say(turn, Input.EXIT) == [TurnEnd(1, "error")]


def test_an_error_is_not_made_good_by_a_background_task() -> None:
    turn = machine(PROMPT, OPENED, Input.FAILED, Input.ACTIVITY, CLOSED)
    assert say(turn, Input.DONE) == [TurnEnd(1, "error")]


def test_a_crash_with_queued_prompts_hands_the_next_one() -> None:
    """The queue does not die with the process."""
    turn = machine(PROMPT, SECOND, OPENED)
    assert say(turn, Input.EXIT) == [DispatchPrompt(Q)]
    assert not turn.open
    assert say(turn, Input.DONE) == [TurnEnd(1, "completed")]


def test_a_crash_at_each_prompt_ends_the_turn_all_the_same() -> None:
    turn = machine(PROMPT, SECOND)
    assert say(turn, Input.EXIT) == [DispatchPrompt(Q)]
    assert say(turn, Input.EXIT) == [TurnEnd(1, "agent_exited")]


def test_a_crash_when_only_background_work_runs() -> None:
    """Its tasks can close no more; waiting for them would be busy for ever."""
    turn = machine(PROMPT, OPENED, OTHER_OPENED, Input.DONE)
    assert say(turn, Input.EXIT) == [TurnEnd(1, "agent_exited")]


def test_an_abort_cancels_what_is_queued() -> None:
    turn = machine(PROMPT, SECOND, (Input.PROMPT, "three"))
    assert say(turn, Input.ABORT) == [PromptsCancelled((Q, "three")), InterruptAgent()]
    assert say(turn, Input.FAILED) == [TurnEnd(1, "aborted")]


def test_an_abort_while_only_background_work_runs() -> None:
    """The agent has nothing to interrupt and sends no `result`: the tasks' end is the end, or the timeout."""
    turn = machine(PROMPT, OPENED, OTHER_OPENED, Input.DONE)
    assert say(turn, Input.ABORT) == [InterruptAgent()]
    assert say(turn, CLOSED) == []
    assert say(turn, OTHER_CLOSED) == [TurnEnd(1, "aborted")]


def test_an_abort_of_background_work_waits_for_what_it_woke() -> None:
    """The interrupt will hit the continuation; were the turn over, it would end the next one as an error."""
    turn = machine(PROMPT, OPENED, Input.DONE, Input.ABORT, Input.ACTIVITY)
    assert say(turn, CLOSED) == []
    assert say(turn, Input.FAILED) == [TurnEnd(1, "aborted")]


def test_an_abort_that_crosses_the_answer() -> None:
    turn = machine(PROMPT, Input.ABORT)
    assert say(turn, Input.DONE) == [TurnEnd(1, "aborted")]
    assert say(turn, Input.ABORT_TIMEOUT) == []


def test_a_deaf_agent_is_killed_and_a_prompt_that_came_meanwhile_goes_to_the_next_process() -> None:
    turn = machine(PROMPT, Input.ABORT, SECOND)
    assert say(turn, Input.ABORT_TIMEOUT) == [KillAgent(), TurnEnd(1, "aborted"), TurnStart(2, "user"), DispatchPrompt(Q)]


def test_a_second_abort_cancels_what_was_queued_since_the_first() -> None:
    """OpenCode: a prompt right before an abort runs all the same."""
    turn = machine(PROMPT, Input.ABORT, SECOND)
    assert say(turn, Input.ABORT) == [PromptsCancelled((Q,))]
    assert say(turn, Input.FAILED) == [TurnEnd(1, "aborted")]


def test_a_stop_does_not_carry_over_to_the_next_turn() -> None:
    turn = machine(PROMPT, Input.ABORT, Input.EXIT, SECOND)
    assert say(turn, Input.ABORT) == [InterruptAgent()]
    assert turn.busy


def test_a_deletion_cancels_kills_ends_in_this_order() -> None:
    turn = machine(PROMPT, SECOND)
    assert say(turn, Input.DELETE) == [PromptsCancelled((Q,)), KillAgent(), TurnEnd(1, "aborted")]
    assert say(turn, PROMPT) == []
    assert not turn.busy


HELD, RELEASED = (Input.OPENED, f"{OURS}snapshot"), (Input.CLOSED, f"{OURS}snapshot")


def test_server_work_holds_an_aborted_turn() -> None:
    turn = machine(PROMPT, HELD, Input.ABORT)
    assert say(turn, Input.DONE) == []
    assert turn.busy
    assert say(turn, RELEASED) == [TurnEnd(1, "aborted")]


def test_server_work_outlives_the_agent_and_agent_work_does_not() -> None:
    turn = machine(PROMPT, OPENED, HELD)
    assert say(turn, Input.EXIT) == []
    assert say(turn, RELEASED) == [TurnEnd(1, "agent_exited")]


def test_an_agent_that_does_not_stop_is_killed_although_the_server_holds_the_turn() -> None:
    turn = machine(PROMPT, HELD, Input.ABORT)
    assert say(turn, Input.ABORT_TIMEOUT) == [KillAgent()]
    assert say(turn, RELEASED) == [TurnEnd(1, "aborted")]


def test_nothing_holds_a_turn_whose_session_is_deleted() -> None:
    assert say(machine(PROMPT, HELD), Input.DELETE)[-1] == TurnEnd(1, "aborted")


def test_machines_share_nothing() -> None:
    machine(PROMPT, OPENED, SECOND)
    fresh = TurnMachine()
    assert (fresh.queue, fresh.open, dict(fresh.ignored)) == ([], set(), {})


# --- the document ------------------------------------------------------------------------------------------


def test_the_document_is_current() -> None:
    assert turn_doc.TARGET.read_text(encoding="utf-8") == turn_doc.render(), "run `python -m tools.turn_doc`"


def test_the_document_names_every_step_and_row() -> None:
    assert set(turn_doc.STEPS) == set(get_args(Step))
    assert set(turn_doc.outcomes()) == set(TRANSITIONS)
    assert {step for _, step in TRANSITIONS.values()} == set(get_args(Step))


# --- steering ----------------------------------------------------------------------------------------------------


def test_one_answer_is_for_a_prompt_and_what_was_taken_in() -> None:
    turn = machine(PROMPT, SECOND, OFFERED, TAKEN)
    assert say(turn, Input.DONE) == [TurnEnd(1, "completed")]


def test_an_offer_holds_the_turn_until_it_is_taken_in_and_answered() -> None:
    turn = machine(PROMPT, SECOND, OFFERED)
    assert say(turn, Input.DONE) == []
    assert (say(turn, TAKEN), turn.state) == ([], State.RUNNING)
    assert say(turn, Input.DONE) == [TurnEnd(1, "completed")]


def test_an_offer_that_comes_back_is_dispatched_when_the_answer_is_over() -> None:
    turn = machine(PROMPT, SECOND, (Input.PROMPT, "three"), OFFERED, Input.DONE)
    assert say(turn, RETURNED) == [DispatchPrompt(Q)]
    assert say(turn, Input.DONE) == [DispatchPrompt("three")]


def test_an_abort_cancels_what_was_not_taken_in() -> None:
    turn = machine(PROMPT, SECOND, (Input.PROMPT, "three"), OFFERED, (Input.OFFERED, "three"), TAKEN)
    assert say(turn, Input.ABORT) == [InterruptAgent()]
    assert say(turn, Input.FAILED) == [PromptsCancelled(("three",)), TurnEnd(1, "aborted")]


def test_an_offer_that_comes_back_in_an_abort_is_cancelled() -> None:
    turn = machine(PROMPT, SECOND, OFFERED, Input.ABORT)
    assert say(turn, RETURNED) == [PromptsCancelled((Q,))]
    assert say(turn, Input.FAILED) == [TurnEnd(1, "aborted")]


def test_an_agent_that_is_lost_gives_its_offers_back() -> None:
    turn = machine(PROMPT, SECOND, (Input.PROMPT, "three"), OFFERED)
    assert say(turn, Input.EXIT) == [DispatchPrompt(Q)]
    assert turn.queue == ["three"]


def test_a_withdrawn_offer_is_in_no_turn() -> None:
    turn = machine(PROMPT, SECOND, OFFERED, WITHDRAWN)
    assert say(turn, Input.DONE) == [TurnEnd(1, "completed")]


def test_the_failure_of_what_came_before_is_not_that_of_what_was_taken_in() -> None:
    turn = machine(PROMPT, SECOND, OFFERED, Input.FAILED, TAKEN)
    assert say(turn, Input.DONE) == [TurnEnd(1, "completed")]


@pytest.mark.parametrize("inputs", [(), (Input.DONE,), (Input.ABORT,), (Input.FAILED,)], ids=lambda inputs: str(len(inputs)))
def test_a_machine_comes_back_from_json(inputs: tuple[Input, ...]) -> None:
    machine = TurnMachine()
    machine.apply(Input.PROMPT, "one")
    machine.apply(Input.OPENED, "work")
    for number, input_ in enumerate(inputs):
        machine.apply(input_, str(number))
    machine.apply(Input.PROMPT, "two")
    again = TurnMachine.of_json(json.loads(json.dumps(machine.to_json())))
    ends = [
        [one.apply(input_, "work") for input_ in (Input.DONE, Input.CLOSED, Input.DONE, Input.EXIT)] for one in (machine, again)
    ]
    assert ends[0] == ends[1]
    assert again.to_json() == machine.to_json()
