"""Frames: positions, and pieces of text that are joined."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.stream.frame import Frame, compact, decode_position, encode_position, normal_scope
from tests.unit.stream.reading import delta, encoder, numbered_event, parse


@pytest.mark.parametrize(
    ("event_id", "text"),
    [("evt_000000000000", "AAAAAAAA"), ("evt_fbefbeffffff", "----____"), ("evt_0e4f1a2b3c4d", "Dk8aKzxN")],
)
def test_a_position_is_an_id_in_eight_characters(event_id: str, text: str) -> None:
    assert encode_position(event_id).decode() == text
    assert decode_position(text) == event_id
    assert decode_position(event_id) == event_id


@pytest.mark.parametrize("text", ["", "evt_1", "Dk8aKzx", "Dk8a zxN", "Dk8aKzx\u00e9", "evt_zzzzzzzzzzzz"])
def test_text_that_is_no_position_is_unchanged(text: str) -> None:
    assert decode_position(text) == text
    assert encode_position(text).decode() == text


@pytest.mark.parametrize(
    ("directory", "expected"),
    [("/p/", "/p"), ("/p", "/p"), ("/", "/"), ("//", "/"), ("", ""), ("/a/b//", "/a/b"), ("global", "global")],
)
def test_scopes_have_no_slash_at_their_end(directory: str, expected: str) -> None:
    assert normal_scope(directory) == expected


# Joining pieces of text.


def texts(frames: list[Frame]) -> list[Any]:
    """(part, text) of pieces, the number of the rest."""
    found: list[Any] = []
    for got in parse(b"".join(encoder().layout(frame) for frame in frames)):
        properties = got.event["properties"]
        found.append((properties["partID"], properties["delta"]) if "delta" in properties else properties["n"])
    return found


def encode(events: list[OpenCodeEvent]) -> list[Frame]:
    frames = [encoder().encode(event, f"evt_{number:03}", f"evt_{number:03}") for number, event in enumerate(events)]
    return [frame for frame in frames if frame is not None]


def test_pieces_of_one_part_are_joined() -> None:
    frames = compact(encode([delta("a"), delta("b"), numbered_event(1), delta("c"), delta("d"), delta("e")]))
    assert texts(frames) == [("prt_1", "ab"), 1, ("prt_1", "cde")]
    assert [frame.position for frame in frames] == ["evt_001", "evt_002", "evt_005"]


def test_pieces_of_another_part_stand_between() -> None:
    frames = compact(
        encode([delta("a", "prt_1"), delta("b", "prt_1"), delta("x", "prt_2"), delta("y", "prt_2"), delta("c", "prt_1")])
    )
    assert texts(frames) == [("prt_1", "ab"), ("prt_2", "xy"), ("prt_1", "c")]
    assert [frame.position for frame in frames] == ["evt_001", "evt_003", "evt_004"]


def test_fields_of_a_part_are_kept_apart() -> None:
    other = delta("x")
    other.properties["field"] = "reasoning"
    assert len(compact(encode([delta("a"), other, delta("b")]))) == 3


EVENTS = st.lists(
    st.one_of(
        st.builds(delta, st.text(max_size=3), st.sampled_from(["prt_1", "prt_2", "prt_3"])),
        st.builds(numbered_event, st.integers(0, 9)),
    ),
    max_size=40,
)


def client_states(frames: list[Frame]) -> list[Any]:
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


@given(EVENTS)
def test_joined_pieces_read_like_single_ones(events: list[OpenCodeEvent]) -> None:
    frames = encode(events)
    short = compact(frames)
    assert client_states(short) == client_states(frames)
    ids = [frame.position for frame in short]
    assert ids == sorted(set(ids))
    assert ids[-1:] == [frame.position for frame in frames][-1:]
    assert compact(short) == short
    for at, frame in enumerate(short):  # who is cut off there goes on at its position
        until = next(number for number, one in enumerate(frames, 1) if one.position == frame.position)
        assert client_states(short[: at + 1])[-1] == client_states(frames[:until])[-1]
    for frame in short:
        assert json.loads(frame.body)["id"] == frame.position
