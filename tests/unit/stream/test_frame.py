"""Frames: the exact bytes, text that is no UTF-8, and pieces of text that are joined."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.opencode.events import OpenCodeEvent
from shim.stream.frame import Frame, compact, encode, event_at, normal, place
from tests.unit.stream.reading import delta, parse, said

IDLE = OpenCodeEvent("session.idle", {"sessionID": "ses_1"}, directory="/home/user/project", project="prj", urgent=True)


def test_both_forms() -> None:
    frame = encode(IDLE, "evt_1")
    assert frame == Frame(
        id="evt_1",
        plain=b'id:evt_1\ndata: {"id":"evt_1","type":"session.idle","properties":{"sessionID":"ses_1"}}\n\n',
        wrapped=b'id:evt_1\ndata: {"directory":"/home/user/project","project":"prj","payload":'
        b'{"id":"evt_1","type":"session.idle","properties":{"sessionID":"ses_1"}}}\n\n',
        urgent=True,
    )


def test_legacy_has_no_id_in_the_json_and_no_project() -> None:
    frame = encode(IDLE, "evt_1", legacy=True)
    assert frame.plain == b'id:evt_1\ndata: {"type":"session.idle","properties":{"sessionID":"ses_1"}}\n\n'
    assert frame.wrapped == (
        b'id:evt_1\ndata: {"directory":"/home/user/project","payload":'
        b'{"type":"session.idle","properties":{"sessionID":"ses_1"}}}\n\n'
    )


def test_events_of_the_server_have_only_a_payload() -> None:
    frame = encode(OpenCodeEvent("server.heartbeat", {}), "evt_2", position="evt_1")
    assert frame.wrapped == b'id:evt_1\ndata: {"payload":{"id":"evt_2","type":"server.heartbeat","properties":{}}}\n\n'
    assert frame.plain == b'id:evt_1\ndata: {"id":"evt_2","type":"server.heartbeat","properties":{}}\n\n'
    assert frame.id == "evt_1"


def test_without_a_project() -> None:
    wrapped = encode(said(1, "/p/"), "evt_1").wrapped
    assert parse(wrapped)[0].data == {"directory": "/p", "payload": {"id": "evt_1", "type": "test.said", "properties": {"n": 1}}}


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
        OpenCodeEvent("session.status", {"sessionID": "ses_1", "status": {"type": "busy"}}, directory="/home/user/project"),
        True,
        False,
        '{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"busy"}}}',
    ),
]


@pytest.mark.parametrize(("event", "legacy", "wrapped", "recorded"), RECORDED)
def test_as_recorded(event: OpenCodeEvent, legacy: bool, wrapped: bool, recorded: str) -> None:
    frame = encode(event, "evt_200068f2e001Lirsq1vNpcveCn", legacy=legacy)
    text = frame.wrapped if wrapped else frame.plain
    assert text.split(b"\n")[1] == b"data: " + recorded.encode()


@pytest.mark.parametrize(
    ("given_", "sent"),
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
def test_what_is_no_json_is_made_json(given_: Any, sent: Any) -> None:
    frame = encode(OpenCodeEvent("test", {"x": given_}, directory="/p\udcff", project="\udcff"), "evt_1")
    assert parse(frame.plain)[0].event["properties"]["x"] == sent
    assert parse(frame.wrapped)[0].data["directory"] == "/p\ufffd"


WILD = st.text(st.characters(codec=None) | st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF, categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WILD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WILD, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.dictionaries(WILD, VALUES, max_size=3), st.none() | WILD, st.booleans())
def test_anything_is_one_frame(properties: dict[str, Any], directory: str | None, legacy: bool) -> None:
    frame = encode(OpenCodeEvent("test", properties, directory=directory), "evt_1", legacy=legacy)
    (plain,) = parse(frame.plain)
    (wrapped,) = parse(frame.wrapped)
    assert wrapped.data["payload"] == plain.data
    assert ("directory" in wrapped.data) == (directory is not None)
    assert ("id" in plain.data) == (not legacy)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [("/p/", "/p"), ("/p", "/p"), ("/", "/"), ("//", "/"), ("", ""), ("/a/b//", "/a/b"), ("global", "global")],
)
def test_normal(given_: str, expected: str) -> None:
    assert normal(given_) == expected


# Joining pieces of text.


def texts(frames: list[Frame]) -> list[Any]:
    """(part, text) of pieces, the number of the rest."""
    found: list[Any] = []
    for got in parse(b"".join(frame.plain for frame in frames)):
        properties = got.event["properties"]
        found.append((properties["partID"], properties["delta"]) if "delta" in properties else properties["n"])
    return found


def encoded(events: list[OpenCodeEvent]) -> list[Frame]:
    return [encode(event, f"evt_{number:03}") for number, event in enumerate(events)]


def test_pieces_of_one_part_are_joined() -> None:
    frames = compact(encoded([delta("a"), delta("b"), said(1), delta("c"), delta("d"), delta("e")]))
    assert texts(frames) == [("prt_1", "ab"), 1, ("prt_1", "cde")]
    assert [frame.id for frame in frames] == ["evt_001", "evt_002", "evt_005"]


def test_pieces_of_several_parts_are_joined_each() -> None:
    frames = compact(
        encoded([delta("a", "prt_1"), delta("x", "prt_2"), delta("b", "prt_1"), delta("y", "prt_2"), delta("c", "prt_1")])
    )
    assert texts(frames) == [("prt_2", "xy"), ("prt_1", "abc")]
    assert [frame.id for frame in frames] == ["evt_003", "evt_004"]


def test_fields_of_a_part_are_kept_apart() -> None:
    other = delta("x")
    other.properties["field"] = "reasoning"
    assert len(compact(encoded([delta("a"), other, delta("b")]))) == 2


def grown(so_far: str, piece: str | None, part: str = "prt_1") -> OpenCodeEvent:
    """Text as 1.1 streams it."""
    properties: dict[str, Any] = {"part": {"id": part, "type": "text", "text": so_far}}
    return OpenCodeEvent("message.part.updated", properties | ({} if piece is None else {"delta": piece}), directory="/p")


def test_growing_text_of_1_1_is_joined() -> None:
    events = [grown("a", "a"), grown("ab", "b"), grown("abc", "c"), grown("abc", None)]
    frames = compact([encode(event, f"evt_{number}", legacy=True) for number, event in enumerate(events)])
    assert [got.data for got in parse(b"".join(frame.plain for frame in frames))] == [
        {"type": "message.part.updated", "properties": {"part": {"id": "prt_1", "type": "text", "text": "abc"}, "delta": "abc"}},
        {"type": "message.part.updated", "properties": {"part": {"id": "prt_1", "type": "text", "text": "abc"}}},
    ]


EVENTS = st.lists(
    st.one_of(
        st.builds(delta, st.text(max_size=3), st.sampled_from(["prt_1", "prt_2", "prt_3"])),
        st.builds(said, st.integers(0, 9)),
    ),
    max_size=40,
)


def folded(frames: list[Frame]) -> list[Any]:
    """What a client has at each event that is not a piece of text: the text of each part, and that event."""
    parts: dict[str, str] = {}
    states: list[Any] = []
    for what in texts(frames):
        if isinstance(what, tuple):
            part, text = what
            parts[part] = parts.get(part, "") + text
        else:
            states.append((dict(parts), what))
    return [*states, parts]


@settings(max_examples=500)
@given(EVENTS)
def test_a_client_cannot_tell_joined_pieces_from_single_ones(events: list[OpenCodeEvent]) -> None:
    frames = encoded(events)
    short = compact(frames)
    assert folded(short) == folded(frames)
    ids = [frame.id for frame in short]
    assert ids == sorted(set(ids))
    assert ids[-1:] == [frame.id for frame in frames][-1:]
    assert compact(short) == short
    for frame in short:
        assert json.loads(frame.wrapped.split(b"\n")[1][6:])["payload"]["id"] == frame.id


@pytest.mark.parametrize(
    ("id_", "said"),
    [("evt_000000000000", "AAAAAAAA"), ("evt_fbefbeffffff", "----____"), ("evt_0e4f1a2b3c4d", "Dk8aKzxN")],
)
def test_a_place_is_an_id_in_eight_characters(id_: str, said: str) -> None:
    assert place(id_) == said
    assert event_at(said) == id_
    assert event_at(id_) == id_


@pytest.mark.parametrize("said", ["", "evt_1", "Dk8aKzx", "Dk8a zxN", "Dk8aKzx\u00e9", "evt_zzzzzzzzzzzz"])
def test_what_is_no_place_stays_what_it_is(said: str) -> None:
    assert event_at(said) == said
    assert place(said) == said
