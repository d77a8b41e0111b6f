"""Prompts that OpenCode is given while it works: it answers them at its next step, or they are removed again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.agents.opencode.test_codec import EVENT, SESSION, Server, requests
from universal.codec import Fact, Interrupt, Output, Prompt, Signal
from universal.opencode import message_id
from universal.permissions import Rule
from universal.turn import Input

TWO, THREE = (message_id(key, EVENT) for key in ("k2", "k3"))


def signals(outputs: list[Output]) -> list[tuple[Input, str]]:
    return [(out.input, out.key) for out in outputs if isinstance(out, Signal)]


def server_at_work() -> Server:
    server = Server()
    server.start_prompt()
    assert server.codec.may_steer
    return server


def steer(server: Server, key: str) -> dict[str, Any]:
    (request,) = requests(server.codec.steer(Prompt(key=key, text=key)))
    assert request["path"] == f"/session/{SESSION}/prompt_async"
    assert request["body"]["messageID"] == message_id(key, EVENT)
    return request


def echo(server: Server, id_: str) -> list[Output]:
    return server.event("message.updated", info={"id": id_, "role": "user", "time": {"created": 1}})


def end(server: Server) -> list[Output]:
    server.assistant(time={"created": 1, "completed": 2}, finish="stop")
    return server.status("idle")


def test_an_answer_to_a_prompt_takes_in_all_before_it() -> None:
    server = server_at_work()
    steer(server, "k2")
    assert not server.codec.may_steer, "the id of the next would not sort after it"
    assert signals(echo(server, TWO)) == []
    steer(server, "k3")
    echo(server, THREE)
    assert signals(server.assistant("msg_9", parentID=THREE)) == [(Input.TAKEN, "k2"), (Input.TAKEN, "k3")]


def test_an_idle_before_the_answer_may_be_followed_by_another_start() -> None:
    server = server_at_work()
    steer(server, "k2")
    echo(server, TWO)
    assert signals(end(server)) == [], "it may have the prompt since its last look"
    server.status("busy")
    assert signals(server.assistant("msg_9", parentID=TWO)) == [(Input.TAKEN, "k2")]
    server.assistant("msg_9", parentID=TWO, time={"created": 1, "completed": 2}, finish="stop")
    assert signals(server.status("idle")) == [(Input.DONE, "")]


def test_an_abort_gives_back_and_removes_what_was_not_answered() -> None:
    server = server_at_work()
    steer(server, "k2")
    echo(server, TWO)
    server.codec.send(Interrupt())
    assert not server.codec.may_steer
    outputs = end(server)
    assert signals(outputs) == [(Input.RETURNED, "k2"), (Input.FAILED, "")]
    (removal,) = [(row["method"], row["path"]) for row in requests(outputs) if row["method"] == "DELETE"]
    assert removal == ("DELETE", f"/session/{SESSION}/message/{TWO}")
    (again,) = requests(server.codec.send(Prompt(key="k4", text="four")))
    assert (again["method"], again["path"]) == removal, "the next prompt waits until it is gone"
    _, prompt = requests(server.answer(again, 404))
    assert prompt["body"]["parts"][0]["text"] == "four"


def test_a_message_is_removed_once() -> None:
    server = server_at_work()
    steer(server, "k2")
    server.codec.send(Interrupt())
    (removal,) = [row for row in requests(end(server)) if row["method"] == "DELETE"]
    server.answer(removal)
    *_, prompt = requests(server.codec.send(Prompt(key="k4", text="four")))
    assert prompt["path"].endswith("/prompt_async")


def test_a_refused_prompt_and_one_under_other_rules_come_back_at_once() -> None:
    server = server_at_work()
    assert signals(server.answer(steer(server, "k2"), 400, {"name": "x"})) == [(Input.RETURNED, "k2")]
    assert server.codec.may_steer
    other = Prompt(key="k3", text="three", session_rules=(Rule("edit", "*", "deny"),))
    assert server.codec.steer(other) == [Signal(Input.RETURNED, key="k3")]


LAST, OURS, THEIRS = (
    {"info": {"id": id_, "role": role}} for id_, role in (("msg_9", "assistant"), (THREE, "user"), ("msg_a", "user"))
)


@pytest.mark.parametrize(
    ("told", "has_notice"),
    [
        ([LAST, OURS], False),
        ([LAST, OURS, THEIRS], True),
        ([THEIRS, LAST, OURS], False),
        pytest.param([THEIRS, OURS], False, id="what was last here is too long ago"),
    ],
)
def test_the_next_prompt_brings_a_notice_about_another_programs_prompt(told: list[dict[str, Any]], *, has_notice: bool) -> None:
    server = Server()
    server.start_prompt()
    server.assistant("msg_9", time={"created": 1, "completed": 2}, finish="stop")
    server.status("idle")
    look, prompt = requests(server.codec.send(Prompt(key="k3", text="three")))
    assert (look["path"], prompt["body"]["messageID"]) == (f"/session/{SESSION}/message?limit=20", THREE)
    notices = [out for out in server.answer(look, body=told) if isinstance(out, Fact)]
    assert ["OpenCode knows what was said there" in str(notice.data) for notice in notices] == [True] * has_notice
