"""Positions of the streams of a cluster: encoded, decoded, bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.cluster import places as places_module
from shim.cluster.peers import Growth
from shim.cluster.places import (
    EXCEPTIONS,
    STORED,
    Places,
    Progress,
    ReplayPositions,
    Viewpoint,
    decode_viewpoint,
    encode_viewpoint,
    hash_of,
)
from shim.sessions.feed import SessionChanges
from shim.stream.encoder import local_part
from shim.stream.frame import encode_position

NUMBERS = st.integers(0, 2**40)
PROGRESS = st.builds(Progress, st.text("0123456789abcdef", min_size=8, max_size=8), NUMBERS, NUMBERS, NUMBERS, st.booleans())
MOMENT = "evt_20af8a6a9000"


def places(position: int = 0) -> Places:
    return Places("server", lambda session_id: 3, position)


def change(session_id: str, sequence: int, *, is_stored: bool = False, is_busy: bool = True) -> SessionChanges:
    session: Any = SimpleNamespace(id=session_id, is_busy=is_busy)
    return SessionChanges((), session, 1_000, False, sequence, is_stored)


def publish(at: Places, session_id: str, sequence: int, *, is_stored: bool = False) -> str:
    """Publish an event of a journal that makes one event of a face, and return its position."""
    at.begin(change(session_id, sequence, is_stored=is_stored))
    position = at.next(MOMENT)[0]
    at.end(change(session_id, sequence, is_stored=is_stored))
    return position


def viewpoint_of(position: str) -> Viewpoint:
    seen = decode_viewpoint(position)
    assert seen is not None
    return seen


@given(st.builds(Viewpoint, NUMBERS, st.lists(PROGRESS, max_size=EXCEPTIONS).map(tuple)))
def test_a_viewpoint_is_decoded_as_it_was_encoded(seen: Viewpoint) -> None:
    assert decode_viewpoint("local." + encode_viewpoint(seen)) == seen


@given(st.text(max_size=80))
def test_any_text_of_a_client_is_decoded_or_refused(text: str) -> None:
    seen = decode_viewpoint("x." + text)
    assert seen is None or len(seen.sessions) <= EXCEPTIONS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "evt_20af8a6a9000",
        "IK9jVaAB",
        "local.",
        "local.!",
        "local.1~",
        "local.1~aaaaaaaa,1,2",
        "local.-1",
        "local.1~a,1,2,3,4",
        "local.1~a,1,2,3,i,i",
        "local." + "f" * 20,
    ],
)
def test_a_position_that_says_nothing_to_other_servers_is_refused(text: str) -> None:
    assert decode_viewpoint(text) is None


def test_an_event_that_is_not_stored_is_in_the_position_until_it_is() -> None:
    at = places(7)
    assert viewpoint_of(at.renew("x")) == Viewpoint(7)
    tag = hash_of("ses_a")
    assert viewpoint_of(publish(at, "ses_a", 1)) == Viewpoint(7, (Progress(tag, 1, 1, 3),))
    assert viewpoint_of(at.renew("x")) == Viewpoint(7, (Progress(tag, 2, 0, 3),))
    at.note(Growth("ses_a", 1, 1, 8, 3, is_ours=True), None)
    assert viewpoint_of(at.renew("x")) == Viewpoint(8)


def test_an_event_that_is_stored_and_not_shown_is_in_the_position_until_it_is() -> None:
    at = places(7)
    at.note(Growth("ses_a", 5, 6, 8, 1), 4)
    assert viewpoint_of(at.renew("x")) == Viewpoint(8, (Progress(hash_of("ses_a"), 5, 0, STORED),))
    publish(at, "ses_a", 5, is_stored=True)
    publish(at, "ses_a", 6, is_stored=True)
    assert viewpoint_of(at.renew("x")) == Viewpoint(8)


def test_a_server_has_shown_a_message_when_its_readers_have_got_the_events() -> None:
    at = places(7)
    at.note(Growth("ses_a", 5, 6, 8, 1), 4)
    assert [at.has_shown(position) for position in (7, 8)] == [True, False]
    publish(at, "ses_a", 5, is_stored=True)
    assert not at.has_shown(8)
    publish(at, "ses_a", 6, is_stored=True)
    assert at.has_shown(8)


def test_a_message_counts_when_all_before_it_were_noted() -> None:
    at = places(7)
    at.note(Growth("ses_a", 1, 1, 9, 1, is_ours=True), None)
    assert (at.position, at.hole()) == (7, (7, 8))
    at.note(Growth("ses_b", 1, 1, 8, 1, is_ours=True), None)
    assert (at.position, at.hole()) == (9, None)
    at.note(Growth("ses_b", 2, 2, 12, 1, is_ours=True), None)
    at.close_hole(11)  # the messages of a deleted session are gone
    assert at.position == 12
    assert [growth.position for growth in at.after(8)] == [9, 12]


def test_a_position_with_too_many_sessions_is_understood_by_its_server_alone() -> None:
    at = places()
    position = [publish(at, f"ses_{number}", 1) for number in range(EXCEPTIONS + 1)][-1]
    assert decode_viewpoint(position) is None
    assert local_part(position)
    assert decode_viewpoint(publish(at, "ses_0", 2)) is None
    at.forget("ses_1")
    assert len(viewpoint_of(at.renew("x")).sessions) == EXCEPTIONS


def test_a_position_goes_to_the_wire_as_it_is() -> None:
    for number in range(300):
        position = publish(places(number**3), "ses_a", number + 1)
        assert encode_position(position).decode() == position


def test_a_position_of_a_replay_says_nothing_to_the_server_that_was_left() -> None:
    """Its own ring would send again what came after the place of before the replay."""
    seen = Viewpoint(4, (Progress("aaaa", 2, 0, 1),))
    position = ReplayPositions(seen).show("aaaa", 5, 1)
    assert local_part(position) == ""
    assert decode_viewpoint(position) == Viewpoint(4, (Progress("aaaa", 5, 1, STORED),))


def test_ids_of_events_depend_on_the_journal_alone() -> None:
    ids: list[str] = []
    for server in ("one", "two"):
        at = Places(server, lambda session_id: 1, 0)
        at.begin(change("ses_a", 5))
        ids += [at.next(MOMENT)[1], at.next(MOMENT)[1]]
    assert ids[:2] == ids[2:]
    assert len(set(ids)) == 2


def test_a_position_says_that_what_an_owner_shows_is_stored_already_by_the_next_one() -> None:
    """This server was cut off, and has heard of what the next owner has stored, but no look has told it of the loss."""
    at = places()
    at.note(Growth("ses_a", 7, 8, 1, epoch=4), 6)
    for sequence in (7, 8):
        (progress,) = viewpoint_of(publish(at, "ses_a", sequence)).sessions
        assert progress.is_void
    assert viewpoint_of(publish(at, "ses_a", 7, is_stored=True)).sessions[0].is_void is False


@pytest.mark.parametrize(("first", "is_void"), [(7, True), (9, True), (10, False)])
def test_a_position_says_that_another_owner_has_written_in_the_place_of_what_was_shown(first: int, *, is_void: bool) -> None:
    """Also if the other one's last event has the number of the last one that was shown: it is not the same event."""
    at = Places("server", lambda session_id: 1, 0)
    at.note(Growth("ses_a", 1, 6, 1, 1), None)
    for sequence in (7, 8, 9):
        publish(at, "ses_a", sequence)
    if not is_void:
        at.note(Growth("ses_a", 7, 9, 2, 1), None)
    at.note(Growth("ses_a", first, 9, 3, 2), None)
    sessions = viewpoint_of(at.renew("x")).sessions
    assert [progress.is_void for progress in sessions] == ([True] if is_void else [])


def test_events_of_a_later_ownership_have_its_epoch() -> None:
    """This server has lost the session and got it back. Else the next server would take these events for lost ones."""
    epochs = [3, 5]
    at = Places("server", lambda session_id: epochs[0], 7)
    publish(at, "ses_a", 1)
    del epochs[0]
    (progress,) = viewpoint_of(publish(at, "ses_a", 2)).sessions
    assert progress.epoch == 5


def test_the_newest_message_is_one_that_was_noted_also_before_others() -> None:
    at = places(7)
    assert at.newest == 7
    at.note(Growth("ses_a", 1, 1, 9, 1), None)
    assert (at.position, at.newest) == (7, 9)


def test_messages_of_a_session_are_forgotten_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places_module, "HISTORY", 2)
    at = places()
    for position in range(1, 4):
        at.note(Growth("ses_a" if position == 1 else "ses_b", position, position, position, position), None)
    assert (at.last_of("ses_a"), at.last_of("ses_b"), at.since) == (0, 3, 1)
    at.remember_before([Growth("ses_a", 1, 1, 1, 1)], 0)
    assert (at.last_of("ses_a"), at.last_until("ses_b", 2), at.first_since("ses_b", 2)) == (1, 2, 3)


def test_an_event_from_before_this_server_that_is_shown_only_now_is_in_the_position_until_it_is() -> None:
    """Else it would be taken for one that is shown and not stored, and sent to each client that comes."""
    at = places(7)
    at.note(Growth("ses_a", 5, 6, 6, 1), 4)
    assert viewpoint_of(at.renew("x")) == Viewpoint(7, (Progress(hash_of("ses_a"), 5, 0, STORED),))
    assert at.unshown(7) == {"ses_a": 6}
    publish(at, "ses_a", 5, is_stored=True)
    publish(at, "ses_a", 6, is_stored=True)
    assert viewpoint_of(at.renew("x")) == Viewpoint(7)
    assert at.first_after("ses_a") is None
    assert at.exception_ids() == []
