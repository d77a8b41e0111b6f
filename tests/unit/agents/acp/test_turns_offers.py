"""Prompts for the running turn of an ACP agent: when it is given one, and what becomes of it (`_session/steering`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.agents.acp.test_codec import AGENT, Talk, lines
from universal.agents.acp.ends import STEADY
from universal.codec import Interrupt, Output, PermissionReply, Prompt, Signal
from universal.turn import Input

STEERABLE = {**AGENT, "_meta": {"steering": {"supported": True}}}
OPTIONS = [{"optionId": "yes", "kind": "allow_once", "name": "Yes"}]


def signals(outputs: list[Output]) -> list[tuple[Input, str]]:
    return [(out.input, out.key) for out in outputs if isinstance(out, Signal)]


def talk_at_work(**call: Any) -> Talk:
    """A prompt whose call has begun."""
    talk = Talk(waits=True).ready(STEERABLE)
    talk.send(Prompt(key="k1", text="one"))
    assert not talk.codec.may_steer, "what is said would be cut off"
    talk.update("tool_call", toolCallId="c", title="make", kind="execute", rawInput={"command": "make"}, **call)
    return talk


def test_a_call_runs_when_the_agent_says_so_or_says_nothing_more() -> None:
    assert talk_at_work(status="in_progress").codec.may_steer
    talk = talk_at_work(status="pending")
    assert not talk.codec.may_steer, "claude-agent-acp would stop a call that has just begun"
    talk.run_out(STEADY)
    assert talk.codec.may_steer
    talk.update("tool_call_update", toolCallId="c", rawInput={"command": "make all"})
    assert not talk.codec.may_steer


def test_no_prompt_while_a_permission_is_open() -> None:
    talk = talk_at_work(status="in_progress")
    talk.holds = True
    talk.request(9, "session/request_permission", toolCall={"toolCallId": "c"}, options=OPTIONS)
    assert not talk.codec.may_steer
    talk.send(PermissionReply(talk.last_request().permission_id, "accept"))
    assert talk.codec.may_steer


@pytest.mark.parametrize(
    ("outcome", "then"),
    [("injected", Input.TAKEN), ("promptRequired", Input.RETURNED), ("failed", Input.RETURNED), (None, Input.RETURNED)],
)
def test_the_answer_says_whether_the_turn_has_the_prompt(outcome: str | None, then: Input) -> None:
    talk = talk_at_work(status="in_progress")
    (steer,) = lines(talk.take(talk.codec.steer(Prompt(key="k2", text="two"))))
    assert (steer["method"], steer["params"]["prompt"]) == ("_session/steering", [{"type": "text", "text": "two"}])
    assert steer["params"]["_meta"] == {"steering": {"idleBehavior": "promptRequired"}}, "it must not begin a turn of its own"
    answer = {"result": {"outcome": outcome}} if outcome else {"error": {"code": -32603, "message": "no"}}
    assert signals(talk.answer(steer["method"], **answer)) == [(then, "k2")]
    talk.answer("session/prompt", {"stopReason": "end_turn"})
    assert signals(talk.run_out()) == [(Input.DONE, "")]


@pytest.mark.parametrize("interrupts", [False, True])
def test_a_turn_that_ends_gives_back_what_was_not_answered(interrupts: bool) -> None:
    talk = talk_at_work(status="in_progress")
    for key in ("k2", "k3"):
        talk.take(talk.codec.steer(Prompt(key=key, text=key)))
    if interrupts:
        talk.send(Interrupt())
        assert not talk.codec.may_steer
    talk.answer("session/prompt", {"stopReason": "cancelled" if interrupts else "end_turn"})
    end = (Input.FAILED if interrupts else Input.DONE, "")
    assert signals(talk.run_out()) == [(Input.RETURNED, "k3"), (Input.RETURNED, "k2"), end]
    assert signals(talk.answer("_session/steering", {"outcome": "injected"})) == [], "an answer that comes too late"


def test_an_agent_without_the_method_gets_no_prompt() -> None:
    talk = Talk(waits=True).ready(AGENT)
    talk.send(Prompt(key="k1", text="one"))
    talk.update("tool_call", toolCallId="c", title="make", kind="execute", status="in_progress", rawInput={"command": "make"})
    assert not talk.codec.may_steer
    assert STEADY not in talk.timers
