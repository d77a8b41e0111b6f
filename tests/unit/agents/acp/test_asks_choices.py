"""Options of a request for a permission that are answers: shown with their labels, and only the chosen one is sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.agents.acp.test_codec import Talk, lines
from universal.agents.acp.asks import choices_of
from universal.codec import Fact, Interrupt, PermissionReply, Prompt, QuestionReply, ToolCheck
from universal.events import EventType, PermissionData, QuestionData


def options(*pairs: tuple[str, str | None]) -> list[dict[str, Any]]:
    """Options with the ids 0, 1 ... In: their labels and kinds; None leaves the kind out."""
    return [{"optionId": str(i), "name": name, **({"kind": kind} if kind else {})} for i, (name, kind) in enumerate(pairs)]


ONCE, ALWAYS, REJECT, NEVER = "allow_once", "allow_always", "reject_once", "reject_always"
TITLE = {"title": "Which one?", "kind": "other"}
SHELL = {"title": "ls", "kind": "execute", "rawInput": {"command": "ls"}}
MCP = {"title": "get (db MCP Server)", "kind": "other", "rawInput": {"a": 1}}
PLAN = {"title": "Ready to code?", "kind": "switch_mode", "rawInput": {"plan": "Do it"}}
PI = {"title": "Which one?", "kind": "other", "rawInput": {"method": "select", "title": "Which one?", "options": ["a", "b"]}}
CONFIRM = {"title": "Sure?", "kind": "other", "rawInput": {"method": "confirm", "title": "Sure?", "message": "It is gone then."}}
QWEN = [
    {"optionId": "proceed_once", "name": "Allow", "kind": ONCE},
    {"optionId": "proceed_once_and_switch_to_default", "name": "Switch to Default Mode and allow once", "kind": ONCE},
    {"optionId": "cancel", "name": "Reject", "kind": REJECT},
]
ANSWERS: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    (TITLE, options(("Postgres", ONCE), ("SQLite", ONCE), ("None of these", ONCE))),
    (TITLE, options(("Postgres", ONCE), ("SQLite", ONCE), ("Skip", REJECT))),
    (TITLE, options(("Postgres", ONCE), ("Skip", REJECT))),
    (TITLE, options(("Postgres", ONCE))),
    (TITLE, options(("Postgres", ALWAYS), ("SQLite", ALWAYS))),
    (TITLE, options(("Postgres", "choice"), ("SQLite", "choice"))),
    (TITLE, options(("Postgres", None), ("SQLite", None))),
    (TITLE, options(("Yes", None), ("No", None))),
    (TITLE, options(("Yes", ONCE), ("No", "other"))),
    (TITLE, options(("Yes", ONCE), ("No", REJECT), ("No, and stop", REJECT))),
    (TITLE, options(("Yes", ALWAYS), ("No", NEVER))),
    (TITLE, options(("Yes, here", ALWAYS), ("Yes, everywhere", ALWAYS), ("Yes", ONCE), ("No", REJECT))),
    (PLAN, options(("Yes, and auto-accept", ALWAYS), ("Yes, manually", ONCE), ("No, keep planning", REJECT))),
    (PLAN, options(("Yes, and auto-accept", ALWAYS), ("Yes, manually", ONCE))),
    (PLAN, options(("Yes, enter plan mode", ONCE), ("No", REJECT))),
    (PI, options(("a", ONCE), ("b", ONCE))),
    (CONFIRM, options(("Yes", ONCE), ("No", REJECT))),
    (SHELL, options(("On staging", ONCE), ("On production", ONCE))),
    (SHELL, options(("Yes", ALWAYS), ("No", REJECT))),
    (MCP, options(("Postgres", "x"), ("SQLite", "y"))),
]
PERMISSIONS: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    (TITLE, options(("Allow once", ONCE), ("Allow always", ALWAYS), ("Reject", REJECT))),
    (TITLE, options((ALWAYS, ALWAYS), (ONCE, ONCE), (REJECT, REJECT), (NEVER, NEVER))),
    (SHELL, options(("Yes, proceed", ONCE), ("Yes, and don't ask again", ALWAYS), ("No, and tell Codex", REJECT))),
    (SHELL, options(("Allow", ONCE), ("Allow for this session", ALWAYS), ("Always allow", ALWAYS), ("Cancel", REJECT))),
    (SHELL, options(("Erlauben", ONCE), ("Ablehnen", REJECT))),
    (SHELL, options(("Yes", ONCE))),
    (SHELL, QWEN),
    (TITLE, options(("Allow all of db", ALWAYS), ("Allow get", ALWAYS), ("Allow", ONCE), ("Reject", REJECT))),
    (MCP, options(("Allow", ONCE), ("Always allow all tools of db", ALWAYS), ("Always allow get", ALWAYS), ("No", REJECT))),
]


@pytest.mark.parametrize(("call", "offered"), ANSWERS)
def test_answers_are_a_question_with_their_labels(call: dict[str, Any], offered: list[dict[str, Any]]) -> None:
    choices = choices_of(None, call, offered)
    assert choices is not None
    assert [option.label for option in choices.question.options] == [option["name"] for option in offered]
    assert (choices.question.custom, choices.question.multiple) == (False, False)


@pytest.mark.parametrize(("call", "offered"), PERMISSIONS)
def test_options_that_allow_or_reject_a_call_are_a_permission(call: dict[str, Any], offered: list[dict[str, Any]]) -> None:
    assert choices_of(None, call, offered) is None


def test_equal_labels_get_their_ids_and_options_without_an_id_left_out() -> None:
    offered = [*options(("Yes", ONCE), ("Yes", ONCE)), {"name": "No", "kind": REJECT}]
    choices = choices_of(None, TITLE, offered)
    assert choices is not None and list(choices.options) == ["Yes (0)", "Yes (1)"]


def test_a_question_has_the_words_of_its_request() -> None:
    choices = choices_of(None, CONFIRM, options(("Yes", ONCE), ("No", REJECT)))
    assert choices is not None and choices.question.question == "Sure?\n\nIt is gone then."
    choices = choices_of(None, PLAN, options(("Yes", ONCE), ("No", REJECT)))
    assert choices is not None and (choices.question.question, choices.plan) == ("Ready to code?", "Do it")


def test_the_first_option_does_not_approve_a_plan_that_is_too_long_to_be_seen() -> None:
    plan = {**PLAN, "rawInput": {"plan": "line\n" * 60}}
    choices = choices_of(None, plan, options(("Yes", ALWAYS), ("Yes, once", ONCE), ("No", REJECT)))
    assert choices is not None and [option.label for option in choices.question.options] == ["No", "Yes", "Yes, once"]


# --- answered -----------------------------------------------------------------------------------------------


def ask(call: dict[str, Any], offered: list[dict[str, Any]], **more: Any) -> Talk:
    talk = Talk(**more).ready()
    talk.send(Prompt("p", "hi"))
    talk.request("r", "session/request_permission", toolCall={"toolCallId": "c", **call}, options=offered)
    return talk


def outcome(talk: Talk, *labels: str) -> Any:
    answers = [list(labels)] if labels else None
    asked = talk.last_request()
    assert isinstance(asked, QuestionData)
    (line,) = lines(talk.send(QuestionReply(asked.question_id, answers)))
    return line["result"]["outcome"].get("optionId")


@pytest.mark.parametrize(("call", "offered"), ANSWERS)
def test_the_chosen_option_is_sent(call: dict[str, Any], offered: list[dict[str, Any]]) -> None:
    for option in offered:
        assert outcome(ask(call, offered), option["name"]) == option["optionId"]


@pytest.mark.parametrize(("call", "offered"), ANSWERS)
@pytest.mark.parametrize("labels", [("nothing of these",), ("Postgres", "SQLite"), ("postgres",)])
def test_words_that_are_no_option_choose_none(
    call: dict[str, Any], offered: list[dict[str, Any]], labels: tuple[str, ...]
) -> None:
    assert outcome(ask(call, offered), *labels) is None


@pytest.mark.parametrize(("call", "offered"), ANSWERS)
def test_a_dismissed_question_allows_nothing(call: dict[str, Any], offered: list[dict[str, Any]]) -> None:
    rejections = [option["optionId"] for option in offered if option.get("kind") in (REJECT, NEVER)]
    assert outcome(ask(call, offered)) == (rejections[0] if len(rejections) == 1 else None)


@pytest.mark.parametrize("call", [SHELL, MCP, {**PLAN, "rawInput": {"command": "rm x"}}])
def test_the_call_behind_a_question_is_checked_by_the_rules_first(call: dict[str, Any]) -> None:
    offered = options(("On staging", ONCE), ("On production", ONCE), ("No", REJECT))
    talk = ask(call, offered, holds=True)
    check = talk.outputs[-1]
    assert isinstance(check, ToolCheck) and isinstance(check.request.data, PermissionData)
    permission_id = check.request.data.permission_id
    (line,) = lines(ask(call, offered, holds=True).codec.send(PermissionReply(permission_id, "reject", "denied")))
    assert line["result"]["outcome"]["optionId"] == "2"
    outputs = talk.send(PermissionReply(permission_id, "accept"))
    assert [out.type for out in outputs if isinstance(out, Fact)] == [EventType.PERMISSION_RESOLVED, EventType.QUESTION_REQUESTED]
    assert not lines(outputs)
    assert outcome(talk, "On production") == "1"


def test_always_answers_no_question() -> None:
    talk = ask(SHELL, options(("On staging", ONCE), ("On production", ONCE)), holds=True)
    check = talk.outputs[-1]
    assert isinstance(check, ToolCheck) and isinstance(check.request.data, PermissionData)
    assert not lines(talk.send(PermissionReply(check.request.data.permission_id, "accept_for_session")))


def test_an_interrupt_cancels_a_question() -> None:
    talk = ask(TITLE, options(("Postgres", ONCE), ("SQLite", ONCE)))
    assert lines(talk.send(Interrupt()))[1]["result"] == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.parametrize(
    ("answers", "action"), [([["Done"]], "accept"), ([["Decline"]], "decline"), ([[]], "decline"), (None, "decline")]
)
def test_a_link_is_a_question_that_shows_all_of_it(answers: list[list[str]] | None, action: str) -> None:
    talk = Talk().ready()
    talk.send(Prompt("p", "hi"))
    talk.request(3, "elicitation/create", mode="url", message="Log in to mail", url="https://x.test/?a=1", elicitationId="e")
    [question] = talk.last_request().questions
    assert (question.question, [option.label for option in question.options]) == (
        "Log in to mail\n\nhttps://x.test/?a=1",
        ["Done", "Decline"],
    )
    [line] = lines(talk.send(QuestionReply(talk.last_request().question_id, answers)))
    assert line["result"] == {"action": action}


@pytest.mark.parametrize("request_", [{"mode": "url", "url": "file:///etc/passwd"}, {"mode": "later"}])
def test_a_request_of_no_form_and_no_link_is_declined(request_: dict[str, Any]) -> None:
    talk = Talk().ready()
    talk.send(Prompt("p", "hi"))
    [line] = lines(talk.request(3, "elicitation/create", message="Open", **request_))
    assert line["result"] == {"action": "decline"}
