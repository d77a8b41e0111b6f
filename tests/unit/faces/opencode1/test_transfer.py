"""What a document that is imported may say, and what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from shim.faces.opencode1.transfer import TITLE_LIMIT, read
from shim.lib.errors import InvalidRequest


def document(**info: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "role": "user", "time": {"created": 1}, "agent": "build"}
    part = {"id": "prt_1", "type": "text", "text": "x"}
    session = {"id": "ses_1", "title": "t", "time": {"created": 1, "updated": 1}, **info}
    return {"info": session, "messages": [{"info": message, "parts": [part]}]}


def test_an_imported_session_grants_nothing() -> None:
    rules = [{"permission": "bash", "pattern": name, "action": name} for name in ("allow", "ask", "deny")]
    info, _ = read(document(permission=rules, agent="bypass"))
    assert [rule["action"] for rule in info["permission"]] == ["ask", "deny"]
    assert "agent" not in info


@pytest.mark.parametrize("mode", ["build", "plan"])
def test_an_imported_session_keeps_a_mode_that_grants_nothing(mode: str) -> None:
    assert read(document(agent=mode))[0]["agent"] == mode


BAD_IDS = ["ses_../../x", "ses_a/b", "ses_\0", "ses_" + "a" * 200, "../ses", "ses_ä", "ses_\n"]


@pytest.mark.parametrize("bad", BAD_IDS)
@pytest.mark.parametrize("place", ["info.id", "info.parentID", "messages[0].info.id", "messages[0].parts[0].id"])
def test_ids_of_a_document_are_ids(place: str, bad: str) -> None:
    given = document()
    if place.startswith("info"):
        given["info"][place.removeprefix("info.")] = bad
    elif "parts" in place:
        given["messages"][0]["parts"][0]["id"] = bad.replace("ses", "prt")
    else:
        given["messages"][0]["info"]["id"] = bad.replace("ses", "msg")
    with pytest.raises(InvalidRequest, match="is not an id of letters") as raised:
        read(given)
    assert place in str(raised.value)


def test_a_title_of_a_document_is_bounded() -> None:
    with pytest.raises(InvalidRequest, match=f"more than {TITLE_LIMIT} characters"):
        read(document(title="x" * (TITLE_LIMIT + 1)))
