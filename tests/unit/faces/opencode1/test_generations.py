"""Which clients get the wire of 1.1 and of 1.0, and the events of 1.0.

Source: OpenCode 1.0.98's own document; its TUI is in tests/e2e.
"""

from __future__ import annotations

from typing import Any

import pytest

from shim.faces.opencode1.generations import TOAST_MS, event_of_1_0, generation_of, generation_of_agent
from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.lib.errors import InvalidRequest
from tests.unit.stream.reading import drain, make_hub, subscribe


@pytest.mark.parametrize(
    ("user_agent", "wire"),
    [
        ("opencode/1.1.53", "v1.1"),
        ("opencode/1.0.98", "v1.0"),
        ("opencode/1.1.0", "v1.1"),
        ("opencode/latest/1.1.53/cli", "v1.1"),
        ("opencode/1.2.0", "v1.18"),
        ("opencode/1.10.3", "v1.18"),
        ("opencode/1.18.33", "v1.18"),
        ("opencode/1.18.33 (attach)", "v1.18"),
        ("opencode/2.0.1", "v1.18"),
        ("opencode/0.0.0-main-202611210000", "v1.18"),
        ("opencode/local", "v1.18"),
        ("Opencode/Python 0.1.0-alpha.36", "v1.18"),
        ("node", "v1.18"),
        ("Bun/1.3.5", "v1.18"),
        ("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "v1.18"),
        ("my-tool opencode/1.1.53", "v1.18"),
        ("", "v1.18"),
    ],
)
def test_the_user_agent_chooses_the_generation(user_agent: str, wire: str) -> None:
    assert generation_of_agent(user_agent) == wire
    assert generation_of({}, {"User-Agent": user_agent}) == wire


def test_no_user_agent_is_modern() -> None:
    assert generation_of({}, {}) == "v1.18"


@pytest.mark.parametrize(
    ("named", "wire"), [("1.0", "v1.0"), ("1.1", "v1.1"), ("v1.1", "v1.1"), ("1.18", "v1.18"), ("v1.18", "v1.18")]
)
@pytest.mark.parametrize("user_agent", ["opencode/1.1.53", "node"])
def test_the_query_decides(named: str, wire: str, user_agent: str) -> None:
    assert generation_of({"directory": "/p", "wire": named}, {"User-Agent": user_agent}) == wire


@pytest.mark.parametrize("named", ["", "2", "1.2"])
def test_an_unknown_wire_is_an_error(named: str) -> None:
    with pytest.raises(InvalidRequest, match=r"Unknown wire .* Give one of 1\.0, v1\.0, 1\.1, v1\.1, 1\.18, v1\.18"):
        generation_of({"wire": named}, {})


# The events of 1.0.

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
    made = event_of_1_0(OpenCodeEvent("permission.asked", ASKED, "/p", urgent=True), 7)
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
    made = event_of_1_0(OpenCodeEvent("permission.asked", {**without, "permission": permission, "metadata": metadata}), 7)
    assert made is not None
    assert made.properties["title"] == title
    assert made.properties["messageID"] == "", "the document wants one"
    assert "callID" not in made.properties


def test_a_permission_reply_has_the_form_of_1_0() -> None:
    made = event_of_1_0(OpenCodeEvent("permission.replied", {"sessionID": "ses_1", "requestID": "per_1", "reply": "once"}), 7)
    assert made == OpenCodeEvent("permission.replied", {"sessionID": "ses_1", "permissionID": "per_1", "response": "once"})


def test_an_unanswerable_question_is_shown() -> None:
    made = event_of_1_0(OpenCodeEvent("question.asked", {"id": "que_1", "questions": [{"question": "Red?"}]}), 7)
    assert made is not None
    assert (made.type, made.properties["duration"]) == ("tui.toast.show", TOAST_MS)
    assert "1.1 or later" in made.properties["message"]
    assert made.properties["message"].endswith("The question: Red?")


def test_other_events_have_the_form_of_1_1() -> None:
    assert event_of_1_0(OpenCodeEvent("session.idle", {"sessionID": "ses_1"}), 7) is None


async def test_each_client_gets_its_own() -> None:
    """Live, and in the greeting of one that comes later."""
    hub = make_hub()
    asked = OpenCodeEvent("permission.asked", ASKED, "/p", urgent=True)
    readers = [subscribe(hub, scope="/p", **client) for client in ({"oldest": True}, {"legacy": True}, {})]
    hub.publish(asked)
    late = subscribe(hub, scope="/p", oldest=True, greeting=[asked])
    found = [(await drain(reader))[1].data for reader in (*readers, late)]
    assert [one["type"] for one in found] == ["permission.updated", "permission.asked", "permission.asked", "permission.updated"]
    assert found[0]["properties"] == found[3]["properties"] == OLD_ASKED
    for reader in (*readers, late):
        reader.close()
