"""Prompts that Claude is given while it works: taken in, given back, named by one result."""

from __future__ import annotations

import pytest

from universal.agents.claude.turns import Turns
from universal.agents.claude.wire import Msg, read_models
from universal.turn import Input


def at_work() -> Turns:
    """Claude answers prompt a, and has been given b and c."""
    turns = Turns()
    turns.prompt_written("a")
    assert not turns.may_steer
    list(turns.lifecycle("a", "started"))
    list(turns.state("running"))
    turns.note_begin()
    assert turns.may_steer
    turns.prompt_written("b", steered="key b")
    turns.prompt_written("c", steered="key c")
    return turns


def signals(turns: Turns, *words: tuple[str, str] | list[str]) -> list[tuple[Input, str]]:
    """What the lines say: (uuid, state) of a lifecycle, or the uuids of a result."""
    found = []
    for word in words:
        result: Msg = {"type": "result", "user_message_uuids": word}
        said = turns.lifecycle(*word) if isinstance(word, tuple) else turns.result(result, None, aborted=False)
        found += [(signal.input, signal.key) for signal in said]
    return found


def test_one_result_answers_all_that_it_names() -> None:
    said = signals(at_work(), ("b", "queued"), ("b", "started"), ("c", "started"), ("b", "completed"), ["a", "b", "c"])
    assert said == [(Input.TAKEN, "key b"), (Input.TAKEN, "key c"), (Input.DONE, "")]


def test_an_offer_with_a_turn_of_its_own_is_taken_in_after_the_result() -> None:
    said = signals(at_work(), ["a"], ("b", "started"), ("c", "started"), ["b", "c"])
    assert said == [(Input.DONE, ""), (Input.TAKEN, "key b"), (Input.TAKEN, "key c"), (Input.DONE, "")]


def test_a_result_that_names_what_had_not_begun_takes_it_in() -> None:
    assert signals(at_work(), ["a", "b"]) == [(Input.TAKEN, "key b"), (Input.DONE, "")]


def test_a_prompt_out_of_the_queue_comes_back() -> None:
    turns = at_work()
    assert turns.uuid_of_offer("key b") == "b"
    assert signals(turns, ("b", "cancelled"), ("b", "started")) == [(Input.RETURNED, "key b")]
    assert turns.uuid_of_offer("key b") == ""


def test_offers_that_an_idle_claude_has_not_begun_come_back_the_last_first() -> None:
    turns = at_work()
    assert signals(turns, ["a"]) == [(Input.DONE, "")]
    list(turns.state("idle"))
    assert turns.unbegun == "b"
    assert [(signal.input, signal.key) for signal in turns.give_up("b")] == [
        (Input.RETURNED, "key c"),
        (Input.RETURNED, "key b"),
    ]


def test_idle_is_one_end_for_all_that_has_begun() -> None:
    turns = at_work()
    signals(turns, ("b", "started"))
    assert [signal.input for signal in turns.state("idle")] == [Input.DONE, Input.CLOSED]


def test_an_interrupt_between_two_turns_is_sent_at_once_for_what_waits() -> None:
    turns = at_work()
    signals(turns, ["a"])
    assert turns.interrupt()
    assert not turns.may_steer
    assert signals(turns, ("b", "cancelled"), ("c", "cancelled")) == [(Input.RETURNED, "key b"), (Input.RETURNED, "key c")]


def test_a_prompt_that_is_dispatched_is_not_stopped_by_the_interrupt_before_it() -> None:
    turns = at_work()
    turns.interrupt()
    signals(turns, ["a"])
    turns.prompt_written("d")
    assert not turns.is_stopping
    assert signals(turns, ("b", "started"), ["d"]) == [(Input.DONE, "")]


@pytest.mark.parametrize("inits", ["before queued", "after queued", "twice"])
def test_the_begin_of_the_turn_before_it_begins_no_offer(inits: str) -> None:
    """Claude tells of a prompt that is written while a turn begins only after that turn's `init`."""
    turns = at_work()
    if inits != "after queued":
        list(turns.init())
    signals(turns, ("b", "queued"), ("c", "queued"))
    if inits != "before queued":
        list(turns.init())
    said = signals(turns, ["a"], ("b", "started"), ["b"], ("c", "started"), ["c"])
    assert said == [(Input.DONE, ""), (Input.TAKEN, "key b"), (Input.DONE, ""), (Input.TAKEN, "key c"), (Input.DONE, "")]


def test_the_begin_and_the_end_of_claudes_own_turn_answer_no_prompt_that_waits_behind_it() -> None:
    turns = Turns()
    list(turns.state("running"))
    turns.prompt_written("a")
    list(turns.init())
    assert signals(turns, ("a", "queued")) == []
    assert Input.DONE not in [signal.input for signal in turns.state("idle")]
    list(turns.state("running"))
    assert signals(turns, ("a", "started"), ["a"]) == [(Input.DONE, "")]


def test_the_name_of_the_default_model_is_short() -> None:
    """Else it pushes OpenCode's list of variants below the send button on a phone."""
    rows = [{"value": "default", "displayName": "Default (recommended)"}, {"value": "opus", "displayName": "Opus"}]
    assert [model.name for model in read_models(rows)[0]] == ["Default", "Opus"]
