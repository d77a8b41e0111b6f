"""The signs that a chaos run keeps of an event stream."""

from __future__ import annotations

import json

import pytest

from tools.chaos.evidence import Sign, Token
from tools.chaos.streams import IdleBell, event_id_of, token_of


def line(type_: str, *, wrapped: bool = False, **properties: object) -> bytes:
    event = {"id": "evt_1", "type": type_, "properties": properties}
    value = {"directory": "/", "payload": event} if wrapped else event
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("wrapped", [False, True])
def test_idle_busy_and_prompts_are_signs(wrapped: bool) -> None:
    info = {"id": "msg_1", "role": "user", "sessionID": "s"}
    status = {"type": "busy"}
    assert token_of(line("session.idle", wrapped=wrapped, sessionID="s")) == ("s", Token(Sign.IDLE))
    assert token_of(line("session.status", wrapped=wrapped, sessionID="s", status=status)) == ("s", Token(Sign.BUSY))
    assert token_of(line("message.updated", wrapped=wrapped, sessionID="s", info=info)) == ("s", Token(Sign.PROMPT, "msg_1"))


def test_other_lines_are_no_signs() -> None:
    assert token_of(b"id: 5\n") is None
    assert token_of(line("session.status", sessionID="s", status={"type": "idle"})) is None
    assert token_of(line("message.updated", sessionID="s", info={"id": "msg_2", "role": "assistant"})) is None
    assert token_of(line("message.part.updated", sessionID="s", part={"text": '"role":"user"'})) is None


def test_only_events_of_sessions_on_the_stream_of_all_have_an_id() -> None:
    assert event_id_of(line("session.idle", wrapped=True, sessionID="s")) == "evt_1"
    assert event_id_of(line("server.heartbeat", wrapped=True)) == ""
    assert event_id_of(b"id: 5\n") == ""


async def test_an_idle_before_the_wait_counts_and_one_before_clear_does_not() -> None:
    bell = IdleBell()
    bell.ring("s")
    assert await bell.wait("s", 1.0)
    bell.clear("s")
    assert not await bell.wait("s", 0.01)
