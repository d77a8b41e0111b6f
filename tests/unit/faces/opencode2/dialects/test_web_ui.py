"""What the web UI of 1.18 gets of OpenCode 2, where that is neither `v2_july` nor `v2_0`."""

from __future__ import annotations

from typing import Any

import pytest

from shim.faces.opencode2.dialects import V2_0, V2_JULY, WEB_UI
from shim.faces.opencode2.wire_event import Event

Wire = dict[str, Any]
SESSION = {"sessionID": "ses_1"}
CALL = {**SESSION, "assistantMessageID": "msg_1", "id": "call_1"}
FORM: Wire = {
    "id": "frm_1",
    "sessionID": "ses_1",
    "title": "Questions",
    "metadata": {"kind": "question", "tool": {"messageID": "msg_1", "id": "call_1"}},
    "fields": [
        {"key": "q0", "title": "Colour", "description": "Which?", "type": "string", "options": [{"value": "Red", "label": "Red"}]}
    ],
}


def wire_event(kind: str, data: Wire) -> tuple[str, Wire]:
    event = WEB_UI.event(Event("evt_1", 1, kind, data))
    assert event is not None
    return event.type, event.data


@pytest.mark.parametrize("kind", ["session.tool.progress", "session.tool.success", "session.tool.failed"])
def test_a_call_has_julys_name_and_todays_events(kind: str) -> None:
    data = {**CALL, "metadata": {"exit": 0}, "content": [{"type": "text", "text": "hi"}]}
    name, said = wire_event(kind, data)
    assert (name, said) == (kind, {**{k: v for k, v in data.items() if k != "id"}, "callID": "call_1"})


def test_prompts_are_inputs_as_in_july() -> None:
    assert wire_event("session.inbox.delivered", {**SESSION, "inboxID": "msg_1"}) == (
        "session.input.promoted",
        {**SESSION, "inputID": "msg_1"},
    )


def test_a_question_is_no_form() -> None:
    name, said = wire_event("form.created", {"form": FORM})
    assert (name, said["id"], said["tool"]) == ("question.v2.asked", "que_1", {"messageID": "msg_1", "callID": "call_1"})
    assert said["questions"] == [{"question": "Which?", "header": "Colour", "options": [{"label": "Red", "description": ""}]}]
    answered = {"id": "frm_1", **SESSION, "answer": {"q1": ["a", "b"], "q0": "Red"}}
    assert wire_event("form.replied", answered) == (
        "question.v2.replied",
        {**SESSION, "requestID": "que_1", "answers": [["Red"], ["a", "b"]]},
    )
    assert wire_event("form.cancelled", {"id": "frm_1", **SESSION}) == ("question.v2.rejected", {**SESSION, "requestID": "que_1"})


def test_a_form_that_is_no_question_makes_no_event() -> None:
    form = {**FORM, "metadata": {"kind": "elicitation"}}
    assert WEB_UI.event(Event("evt_1", 1, "form.created", {"form": form})) is None


def test_a_message_has_metadata_where_july_has_structured() -> None:
    state = {"status": "completed", "input": {}, "metadata": {"exit": 0}, "content": [{"type": "text", "text": "hi"}]}
    tool = {"type": "tool", "id": "call_1", "name": "shell", "state": state, "time": {"created": 1}}
    message = {"id": "msg_1", "type": "assistant", "time": {"created": 1, "streamed": 2}, "content": [tool]}
    page = {"data": [message]}
    [shown] = WEB_UI.answer("session.message.list", page)["data"]
    [of_july] = V2_JULY.answer("session.message.list", page)["data"]
    assert (shown["content"], shown["time"]) == ([tool], {"created": 1})
    assert "structured" in of_july["content"][0]["state"]
    assert V2_0.answer("session.message.list", page) == page
    assert tool["state"] is state, "nothing is changed in place"
