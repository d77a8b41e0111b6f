"""Facts about OpenCode that both of its codecs use."""

from __future__ import annotations

import pytest

from universal.items import Json
from universal.opencode import child_metadata, message_id, refusal

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
