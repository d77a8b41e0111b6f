"""OpenCode 1's streams: the exact bytes for each generation, heartbeats, and text that is no UTF-8."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.faces.opencode1.events import legacy_frame
from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.stream.frame import compact
from tests.unit.stream.reading import encoder, numbered_event, parse

IDLE = OpenCodeEvent("session.idle", {"sessionID": "ses_1"}, scope="/home/user/project", project="prj", urgent=True)


def wire_bytes(event: OpenCodeEvent, event_id: str = "evt_1", position: str = "", **client: bool) -> bytes:
    """The bytes that a client gets of an event."""
    frame = encoder(**client).encode(event, event_id, position or event_id)
    assert frame is not None
    return encoder(**client).layout(frame)


def test_a_frame_on_both_streams() -> None:
    assert wire_bytes(IDLE) == b'id:evt_1\ndata: {"id":"evt_1","type":"session.idle","properties":{"sessionID":"ses_1"}}\n\n'
    assert wire_bytes(IDLE, wrapped=True) == (
        b'id:evt_1\ndata: {"directory":"/home/user/project","project":"prj","payload":'
        b'{"id":"evt_1","type":"session.idle","properties":{"sessionID":"ses_1"}}}\n\n'
    )


def test_a_frame_is_as_urgent_as_its_event_and_names_its_position() -> None:
    for legacy in (False, True):
        for event in (IDLE, numbered_event(1)):
            frame = encoder(legacy=legacy).encode(event, "evt_1", "evt_0")
            assert frame is not None
            assert (frame.urgent, frame.position, frame.piece_of) == (event.urgent, "evt_0", None)


def test_legacy_has_no_id_in_the_json_and_no_project() -> None:
    assert wire_bytes(IDLE, legacy=True) == b'id:evt_1\ndata: {"type":"session.idle","properties":{"sessionID":"ses_1"}}\n\n'
    assert wire_bytes(IDLE, legacy=True, wrapped=True) == (
        b'id:evt_1\ndata: {"directory":"/home/user/project","payload":'
        b'{"type":"session.idle","properties":{"sessionID":"ses_1"}}}\n\n'
    )


def test_events_of_the_server_have_only_a_payload() -> None:
    event = OpenCodeEvent("server.heartbeat", {})
    assert wire_bytes(event, "evt_2", "evt_1", wrapped=True) == (
        b'id:evt_1\ndata: {"payload":{"id":"evt_2","type":"server.heartbeat","properties":{}}}\n\n'
    )
    assert wire_bytes(event, "evt_2", "evt_1") == b'id:evt_1\ndata: {"id":"evt_2","type":"server.heartbeat","properties":{}}\n\n'


def test_without_a_project() -> None:
    wrapped = wire_bytes(numbered_event(1), wrapped=True)
    assert parse(wrapped)[0].data == {"directory": "/p", "payload": {"id": "evt_1", "type": "test.said", "properties": {"n": 1}}}


def test_heartbeats_come_as_often_as_native() -> None:
    assert [encoder(legacy=legacy).heartbeat_s for legacy in (False, True)] == [10, 30]


# Frames of 1.18.33 and of 1.1.53, as recorded: (our event, legacy, wrapped, the recorded data).
RECORDED: list[tuple[OpenCodeEvent, bool, bool, str]] = [
    (
        OpenCodeEvent("server.connected", {}),
        False,
        False,
        '{"id":"evt_200068f2e001Lirsq1vNpcveCn","type":"server.connected","properties":{}}',
    ),
    (OpenCodeEvent("server.connected", {}), True, True, '{"payload":{"type":"server.connected","properties":{}}}'),
    (OpenCodeEvent("server.connected", {}), True, False, '{"type":"server.connected","properties":{}}'),
    (
        OpenCodeEvent("session.status", {"sessionID": "ses_1", "status": {"type": "busy"}}, scope="/home/user/project"),
        True,
        False,
        '{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"busy"}}}',
    ),
]


@pytest.mark.parametrize(("event", "legacy", "wrapped", "recorded"), RECORDED)
def test_frames_are_as_recorded(event: OpenCodeEvent, legacy: bool, wrapped: bool, recorded: str) -> None:
    text = wire_bytes(event, "evt_200068f2e001Lirsq1vNpcveCn", legacy=legacy, wrapped=wrapped)
    assert text.split(b"\n")[1] == b"data: " + recorded.encode()


@pytest.mark.parametrize(
    ("value", "json"),
    [
        ("\ud83d\ude00", "\U0001f600"),
        ("half \ud83d smile", "half \ufffd smile"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ({"\udcff": ["\udcff"]}, {"\ufffd": ["\ufffd"]}),
        (2**70, 2**70),
        ((1, "\ud800"), [1, "\ufffd"]),
        ({1: "\ud800"}, {"1": "\ufffd"}),
        ([float("nan"), float("inf"), 1.5], [None, None, 1.5]),
        (["\ud800", float("nan"), True, None], ["\ufffd", None, True, None]),
        ({"set": {1}}, {"set": "{1}"}),
    ],
)
def test_broken_text_becomes_valid_json(value: Any, json: Any) -> None:
    event = OpenCodeEvent("test", {"x": value}, scope="/p\udcff", project="\udcff")
    assert parse(wire_bytes(event))[0].event["properties"]["x"] == json
    assert parse(wire_bytes(event, wrapped=True))[0].data["directory"] == "/p\ufffd"


WILD = st.text(st.characters(codec=None) | st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF, categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WILD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WILD, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(WILD, VALUES, max_size=3), st.none() | WILD, st.booleans())
def test_anything_is_one_frame(properties: dict[str, Any], directory: str | None, legacy: bool) -> None:
    event = OpenCodeEvent("test", properties, scope=directory)
    (plain,) = parse(wire_bytes(event, legacy=legacy))
    (wrapped,) = parse(wire_bytes(event, legacy=legacy, wrapped=True))
    assert wrapped.data["payload"] == plain.data
    assert ("directory" in wrapped.data) == (directory is not None)
    assert ("id" in plain.data) == (not legacy)


def text_update(so_far: str, piece: str | None, part: str = "prt_1") -> OpenCodeEvent:
    """Text as 1.1 streams it."""
    properties: dict[str, Any] = {"part": {"id": part, "type": "text", "text": so_far}}
    return OpenCodeEvent("message.part.updated", properties | ({} if piece is None else {"delta": piece}), scope="/p")


def test_growing_text_of_1_1_is_joined() -> None:
    events = [text_update("a", "a"), text_update("ab", "b"), text_update("abc", "c"), text_update("abc", None)]
    frames = compact([legacy_frame(event, f"evt_{number}") for number, event in enumerate(events)])
    assert [got.data for got in parse(b"".join(encoder(legacy=True).layout(frame) for frame in frames))] == [
        {"type": "message.part.updated", "properties": {"part": {"id": "prt_1", "type": "text", "text": "abc"}, "delta": "abc"}},
        {"type": "message.part.updated", "properties": {"part": {"id": "prt_1", "type": "text", "text": "abc"}}},
    ]
