"""Facts about OpenCode that both of its codecs use."""

from __future__ import annotations

import json

import pytest

from universal.items import Json
from universal.opencode import ask_first, child_metadata, keys_to_ask, message_id, refusal
from universal.permissions import Rule

EVENT = "evt_200068f2e001abcdefghijklmn"
ERROR: dict[str, Json] = {"message": "no such model", "code": "not_found"}


def test_message_ids_sort_after_earlier_messages() -> None:
    assert message_id("a", EVENT).startswith("msg_200068f2e001")
    assert len(message_id("a", EVENT)) == 30


def test_a_message_id_is_a_function_of_the_prompt() -> None:
    assert message_id("a", EVENT) == message_id("a", EVENT) != message_id("b", EVENT)


@pytest.mark.parametrize("event_id", ["", "evt_short", "x_200068f2e001abcdef"])
def test_without_an_event_id_of_the_usual_form_there_is_no_message_id(event_id: str) -> None:
    assert message_id("a", event_id) == ""


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (0, {}, "OpenCode's server does not answer: no such model"),
        (500, "oops", "OpenCode's server answered with status 500."),
        (404, {"name": "NotFoundError"}, "no such model"),
    ],
)
def test_a_refusal_says_what_the_server_answered(status: int, body: Json, message: str) -> None:
    assert refusal(status, body, ERROR) == {"message": message, "code": "not_found"}


def test_the_title_of_a_subagents_session_is_the_calls_description_else_the_sessions_title() -> None:
    info = {"title": "Session", "agent": "build"}
    metadata = child_metadata("c", {"description": "Look", "prompt": "p", "subagent_type": "explore"}, info, "subagent_type")
    assert metadata == {"call_id": "c", "title": "Look", "agent": "build", "prompt": "p"}
    metadata = child_metadata("c", {"subagent_type": "explore"}, {"title": "Session"}, "subagent_type")
    assert (metadata["title"], metadata["agent"]) == ("Session", "explore")


def test_a_fork_is_made_to_ask_for_what_rules_are_about() -> None:
    rules = [Rule("read", "*", "allow"), Rule("read", "secret", "deny"), Rule("github_*", "*", "ask"), Rule("bash", "*", "allow")]
    assert keys_to_ask(rules) == {"read", "grep", "github_*"}
    assert json.loads(ask_first({"github_*", "edit"}, "")) == {
        "tools": {"edit*": True, "github_**": True},
        "permission": {"edit*": "ask", "github_**": "ask", "question": "deny"},
    }


@pytest.mark.parametrize("given", ["deny", {"*": "deny"}])
def test_a_persons_own_configuration_of_the_fork_comes_last(given: Json) -> None:
    own = {"model": "m", "tools": {"bash": False}, "permission": given}
    made = json.loads(ask_first({"edit"}, json.dumps(own)))
    assert (made["model"], made["permission"]) == ("m", {"*": "deny", "edit*": "ask", "question": "deny"})
    # The fork reads {**tools, **permission}, the last entry that matches counts.
    assert list({**made["tools"], **made["permission"]}) == ["edit*", "bash", "*", "question"]


@pytest.mark.parametrize("content", ["{,}", "[]", "3"])
def test_a_configuration_that_is_no_object_stays(content: str) -> None:
    assert ask_first({"edit"}, content) == ""
