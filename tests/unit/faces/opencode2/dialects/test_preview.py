"""The edge: what is rewritten on the way in and out."""

from __future__ import annotations

import pytest

from shim.faces.opencode2._generated.operations import OPERATIONS
from shim.faces.opencode2.dialects import DIALECTS, PREVIEW
from shim.http.operations import RequestInput


@pytest.mark.parametrize("name", DIALECTS)
def test_rows_are_of_operations_that_there_are(name: str) -> None:
    for alias in DIALECTS[name].aliases:
        assert alias.operation in OPERATIONS, alias
        wanted = {part for part in OPERATIONS[alias.operation].path.split("/") if part.startswith("{")}
        assert wanted <= set(alias.path.split("/")), alias
    assert set(DIALECTS[name].requests) <= set(OPERATIONS)
    assert set(DIALECTS[name].answers) <= set(OPERATIONS)


@pytest.mark.parametrize(
    ("operation", "said", "meant"),
    [
        ("session.permission.reply", {"reply": "once"}, {"decision": "once"}),
        ("session.prompt", {"prompt": {"text": "x"}, "id": "msg_1"}, {"text": "x", "id": "msg_1"}),
        ("session.prompt", {"text": "reply"}, {"text": "reply"}),
        ("session.permission.reply", None, None),
        ("session.prompt", [1], [1]),
    ],
)
def test_requests(operation: str, said: object, meant: object) -> None:
    asked = RequestInput({"a": "b"}, said)
    assert PREVIEW.request(operation, asked) == RequestInput({"a": "b"}, meant)
    assert asked.body == said


def test_answers_are_made_and_nothing_is_changed_in_place() -> None:
    item = {"id": "msg_1", "sessionID": "ses_1", "time": {"created": 5}, "type": "user", "payload": {"text": "x"}}
    said = {"data": {**item, "delivery": "queue"}}
    made = PREVIEW.answer("session.prompt", said)
    assert made["data"]["timeCreated"] == 5
    assert made["data"]["prompt"] == {"text": "x"}
    assert said["data"]["time"] == {"created": 5}
    source = {"type": "tool", "messageID": "msg_1", "id": "call_1"}
    request = {"id": "per_1", "action": "shell", "source": source}
    [asked] = PREVIEW.answer("session.permission.list", {"data": [request]})["data"]
    assert asked == {**request, "action": "bash", "source": {"type": "tool", "messageID": "msg_1", "callID": "call_1"}}
    assert PREVIEW.answer("session.interrupt", {"interrupted": True}) is None
    assert PREVIEW.answer("session.active", said) is said
