"""The ring: what followed an id, and when that is not known any more."""

from __future__ import annotations

import pytest

from shim.stream.hub import Entry, Ring
from tests.unit.stream.reading import encoder, numbered_event


def entry(number: int, size: int = 0, face: str = "opencode1") -> Entry:
    frame = encoder().encode(numbered_event(number, project="x" * size), f"evt_{number}", f"evt_{number}")
    assert frame is not None
    return Entry(f"evt_{number}", face, "/p", None, f"own_{number}", {"v1.18": frame}, len(frame.body) + len(frame.envelope))


def full_ring(count: int, frames: int = 4, size: int = 1_000_000) -> Ring:
    ring = Ring("evt_0", frames=frames, size=size)
    for number in range(1, count + 1):
        ring.add(entry(number))
    return ring


@pytest.mark.parametrize(
    ("count", "after", "expected"),
    [
        (0, "evt_0", []),
        (0, "evt_1", None),
        (3, "evt_0", [1, 2, 3]),
        (3, "evt_1", [2, 3]),
        (3, "evt_3", []),
        (3, "evt_4", None),
        (3, "", None),
        (4, "evt_0", [1, 2, 3, 4]),
        (5, "evt_0", None),
        (5, "evt_1", [2, 3, 4, 5]),
        (5, "evt_2", [3, 4, 5]),
        (5, "evt_5", []),
        (100, "evt_95", None),
        (100, "evt_96", [97, 98, 99, 100]),
    ],
)
def test_after_gives_the_entries_behind_a_position(count: int, after: str, expected: list[int] | None) -> None:
    ring = full_ring(count)
    found = ring.after(after)
    assert (None if found is None else [e.position for e in found]) == (
        None if expected is None else [f"evt_{n}" for n in expected]
    )
    assert ring.last == f"evt_{count}"
    assert ring.published_count == count
    assert len(ring) == min(count, 4)


def test_bytes_are_bounded_but_the_newest_stays() -> None:
    ring = Ring("evt_0", frames=100, size=2000)
    for number in range(1, 5):
        ring.add(entry(number, 500))
    assert 0 < len(ring) < 4
    assert ring.after("evt_0") is None
    ring.add(entry(5, 50_000))
    assert len(ring) == 1
    assert [e.position for e in ring.after("evt_4") or []] == ["evt_5"]
    ring.add(entry(6))
    assert [e.position for e in ring.after("evt_5") or []] == ["evt_6"]


def test_an_event_s_own_id_names_its_position_as_long_as_it_is_there() -> None:
    ring = full_ring(5)
    assert ring.position("own_5") == "evt_5"
    assert ring.position("own_2") == "evt_2"
    assert ring.position("own_1") == "own_1", "it is forgotten"
    ring.add(entry(6)._replace(event_id="own_5"))
    assert ring.position("own_5") == "evt_6", "the newest"
    assert len(ring._position_by_event) == 3
    for number in range(7, 11):
        ring.add(entry(number))
    assert ring.position("own_5") == "own_5"
    assert len(ring._position_by_event) == 4


def test_events_of_one_face_do_not_push_out_those_of_another_before_their_time() -> None:
    """Each face has room for `frames`: a quiet one keeps its own while a busy one goes through its share."""
    ring = Ring("evt_0", frames=4, size=1_000_000)
    for number in range(1, 4):
        ring.add(entry(number))
    for number in range(4, 9):
        ring.add(entry(number, face="opencode2"))
    assert [one.position for one in ring.after("evt_0") or ()] == [f"evt_{number}" for number in range(1, 9)]
    ring.add(entry(9, face="opencode2"))
    assert (ring.after("evt_0"), len(ring)) == (None, 8), "together they have no more than `frames` for each"
