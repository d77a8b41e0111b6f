"""Prompts that Codex is given while a call runs: taken in at their echo, dropped by an interrupt."""

from __future__ import annotations

from collections.abc import Iterable

from tests.unit.agents.codex.test_codec import TURN, Bench, written_lines
from universal.codec import Interrupt, Output, Prompt, Signal
from universal.turn import Input


def signals(outputs: Iterable[Output]) -> list[tuple[Input, str]]:
    return [(out.input, out.key) for out in outputs if isinstance(out, Signal)]


def bench_at_work() -> Bench:
    """A turn whose command runs."""
    bench = Bench().with_running_turn()
    assert not bench.codec.may_steer, "the model may be about to speak"
    bench.command()
    assert bench.codec.may_steer
    return bench


def echo(bench: Bench, key: str | None) -> list[Output]:
    return bench.say("item/completed", item={"type": "userMessage", "id": "item-9", "clientId": key, "content": []})


def test_the_echo_of_a_prompt_says_that_it_was_taken_in() -> None:
    bench = bench_at_work()
    (steer,) = written_lines(bench.codec.steer(Prompt(key="k2", text="two")))
    assert steer["method"] == "turn/steer"
    assert (steer["params"]["expectedTurnId"], steer["params"]["clientUserMessageId"]) == (TURN, "k2")
    assert signals(bench.answer(steer, {"turnId": TURN})) == []
    assert signals(echo(bench, None)) == []
    assert signals(echo(bench, "k2")) == [(Input.TAKEN, "k2")]
    assert signals(bench.end()) == [(Input.DONE, "")]


def test_a_prompt_waits_while_text_streams() -> None:
    bench = bench_at_work()
    bench.say("item/started", item={"type": "agentMessage", "id": "msg-1", "text": ""})
    assert not bench.codec.may_steer
    bench.say("item/completed", item={"type": "agentMessage", "id": "msg-1", "text": "hm"})
    assert bench.codec.may_steer


def test_a_turn_that_is_over_gives_the_prompt_back() -> None:
    bench = bench_at_work()
    (steer,) = written_lines(bench.codec.steer(Prompt(key="k2", text="two")))
    assert signals(bench.answer(steer, error="no active turn to steer")) == [(Input.RETURNED, "k2")]
    assert signals(bench.end()) == [(Input.DONE, "")]


def test_an_interrupt_gives_back_what_was_not_taken_in_before_its_end() -> None:
    bench = bench_at_work()
    bench.codec.steer(Prompt(key="k2", text="two"))
    bench.codec.steer(Prompt(key="k3", text="three"))
    bench.codec.send(Interrupt())
    assert signals(bench.end("interrupted")) == [(Input.RETURNED, "k3"), (Input.RETURNED, "k2"), (Input.FAILED, "")]
    assert bench.codec.recall("k2") == []
