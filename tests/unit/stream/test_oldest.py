"""What clients of 1.0 get in place of newer events. Source: OpenCode 1.0.98's own document; its TUI is in tests/e2e."""

from __future__ import annotations

from typing import Any

import pytest

from shim.opencode.events import OpenCodeEvent
from shim.stream.oldest import TOAST_MS, oldest
from tests.unit.stream.reading import drain, make_hub

ASKED: dict[str, Any] = {
    "id": "per_1",
    "sessionID": "ses_1",
    "permission": "bash",
    "patterns": ["git push"],
    "metadata": {"command": "git push"},
    "always": ["git push *"],
    "tool": {"messageID": "msg_1", "callID": "call_1"},
}
OLD_ASKED: dict[str, Any] = {
    "id": "per_1",
    "type": "bash",
    "pattern": ["git push"],
    "sessionID": "ses_1",
    "messageID": "msg_1",
    "callID": "call_1",
    "title": "git push",
    "metadata": {"command": "git push"},
    "time": {"created": 7},
}


def test_a_permission() -> None:
    made = oldest(OpenCodeEvent("permission.asked", ASKED, "/p", urgent=True), 7)
    assert made == OpenCodeEvent("permission.updated", OLD_ASKED, "/p", urgent=True)


@pytest.mark.parametrize(
    ("permission", "metadata", "title"),
    [
        ("edit", {"filepath": "/p/a"}, "Edit this file: /p/a"),
        ("webfetch", {"url": "http://x"}, "Fetch content from: http://x"),
        ("mcp_tool", {"description": "Says it"}, "Says it"),
        ("mcp_tool", {}, "mcp_tool git push"),
    ],
)
def test_titles(permission: str, metadata: dict[str, str], title: str) -> None:
    without = {key: value for key, value in ASKED.items() if key != "tool"}
    made = oldest(OpenCodeEvent("permission.asked", {**without, "permission": permission, "metadata": metadata}), 7)
    assert made is not None
    assert made.properties["title"] == title
    assert made.properties["messageID"] == "", "the document wants one"
    assert "callID" not in made.properties


def test_its_answer() -> None:
    made = oldest(OpenCodeEvent("permission.replied", {"sessionID": "ses_1", "requestID": "per_1", "reply": "once"}), 7)
    assert made == OpenCodeEvent("permission.replied", {"sessionID": "ses_1", "permissionID": "per_1", "response": "once"})


def test_a_question_is_told_though_it_cannot_be_answered() -> None:
    made = oldest(OpenCodeEvent("question.asked", {"id": "que_1", "questions": [{"question": "Red?"}]}), 7)
    assert made is not None
    assert (made.type, made.properties["duration"]) == ("tui.toast.show", TOAST_MS)
    assert "1.1 or later" in made.properties["message"]
    assert made.properties["message"].endswith("The question: Red?")


def test_all_else_is_as_in_1_1() -> None:
    assert oldest(OpenCodeEvent("session.idle", {"sessionID": "ses_1"}), 7) is None


async def test_each_client_gets_its_own() -> None:
    """Live, and in the greeting of one that comes later."""
    hub = make_hub()
    asked = OpenCodeEvent("permission.asked", ASKED, "/p", urgent=True)
    readers = [hub.subscribe(scope="/p", wrapped=False, legacy=legacy, oldest=old) for legacy, old in ((1, 1), (1, 0), (0, 0))]
    hub.publish(asked)
    late = hub.subscribe(scope="/p", wrapped=False, legacy=True, oldest=True, greeting=[asked])
    found = [(await drain(reader))[1].data for reader in (*readers, late)]
    assert [one["type"] for one in found] == ["permission.updated", "permission.asked", "permission.asked", "permission.updated"]
    assert found[0]["properties"].keys() == OLD_ASKED.keys()
    for reader in (*readers, late):
        reader.close()
