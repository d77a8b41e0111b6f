"""The screen of a client is what the events of its stream make of it."""

from __future__ import annotations

import json
from typing import Any

from tools.chaos.screens import Screen, SessionScreen


def lines(*events: tuple[str, dict[str, Any]]) -> list[bytes]:
    wrapped = ({"payload": {"id": "evt", "type": type_, "properties": {"sessionID": "ses_1", **more}}} for type_, more in events)
    return [b"data:" + json.dumps(one, separators=(",", ":")).encode() for one in wrapped]


def screen_of(*events: tuple[str, dict[str, Any]]) -> SessionScreen:
    screen = Screen()
    for line in lines(*events):
        screen.note(line)
    return screen.sessions.get("ses_1", SessionScreen())


def part(part_id: str, text: str) -> tuple[str, dict[str, Any]]:
    return "message.part.updated", {"part": {"id": part_id, "messageID": "msg_1", "type": "text", "text": text}}


def delta(part_id: str, text: str) -> tuple[str, dict[str, Any]]:
    return "message.part.delta", {"messageID": "msg_1", "partID": part_id, "field": "text", "delta": text}


MESSAGE = ("message.updated", {"info": {"id": "msg_1", "role": "assistant"}})


def test_pieces_of_text_are_joined_and_those_of_a_part_that_was_not_read_are_left_out() -> None:
    found = screen_of(MESSAGE, part("prt_1", ""), delta("prt_1", "a"), delta("prt_1", "b"), delta("prt_2", "c"))
    assert (found.messages, found.parts) == ({"msg_1"}, {"prt_1": ("msg_1", "ab")})


def test_a_screen_drops_what_is_removed() -> None:
    assert screen_of(MESSAGE, part("prt_1", "a"), ("message.part.removed", {"partID": "prt_1"})).parts == {}
    found = screen_of(MESSAGE, part("prt_1", "a"), ("message.removed", {"messageID": "msg_1"}))
    assert (found.messages, found.parts) == (set(), {})


def test_a_dialog_is_shown_until_it_is_answered() -> None:
    asked = [("permission.asked", {"id": "per_1"}), ("question.asked", {"id": "que_1"}), ("question.asked", {"id": "que_2"})]
    assert screen_of(*asked).dialogs == {"per_1", "que_1", "que_2"}
    ends = [("permission.replied", {"requestID": "per_1"}), ("question.replied", {"requestID": "que_1"})]
    assert screen_of(*asked, *ends, ("question.rejected", {"requestID": "que_2"})).dialogs == set()


def test_a_session_that_is_shown_after_its_deletion_is_back() -> None:
    assert not screen_of(("session.created", {}), ("session.deleted", {})).is_back
    assert screen_of(("session.deleted", {}), ("session.created", {})).is_back


def test_a_client_that_must_read_everything_again_begins_with_nothing() -> None:
    assert screen_of(MESSAGE, ("server.instance.disposed", {}), part("prt_1", "a")).messages == set()
