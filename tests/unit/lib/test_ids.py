"""OpenCode's ids: form, order, the wrap of 48 bits."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.lib.clock import ManualClock, from_rfc3339, rfc3339
from shim.lib.ids import NAME_LIMIT, Ids, is_name
from universal.lib.ids import MASK, IdSequence, hashed_tail, render, value_of

WRAP_MS = 2**36 * 26
"""2026-08-14T11:19:55Z: ids begin again at zero (36 bits of milliseconds)."""


def test_form_and_order() -> None:
    ids = Ids(ManualClock(step_ms=0))
    made = [ids.new("item") for _ in range(5000)]
    assert all(re.fullmatch(r"itm_[0-9a-f]{12}[0-9A-Za-z]{14}", i) for i in made)
    assert made == sorted(made)
    sessions = [ids.new("session") for _ in range(10)]
    assert sessions == sorted(sessions, reverse=True)


def test_an_id_of_the_recordings_decodes_to_its_time() -> None:
    # message msg_1ffd92aa1001... of scene read_edit was created at 1795293784737
    assert value_of("msg_1ffd92aa1001GzL7JyVM64C813") == (1795293784737 * 0x1000 + 1) & MASK


@given(st.lists(st.integers(0, 2**45), min_size=1, max_size=50))
def test_a_sequence_never_goes_back(times: list[int]) -> None:
    sequence = IdSequence()
    values = [sequence.next(t) for t in times if (t * 0x1000) & MASK < MASK - 2**20]
    assert values == sorted(set(values))


def test_order_holds_across_the_wrap() -> None:
    sequence = IdSequence()
    before = sequence.next(WRAP_MS - 1000)
    after = [sequence.next(WRAP_MS + n) for n in range(100)]
    assert [before, *after] == sorted([before, *after])


def test_a_clients_id_is_followed_unless_it_is_far_off() -> None:
    now = 1795293784083
    sequence = IdSequence()
    sequence.saw(render("msg", ((now + 5000) * 0x1000) & MASK, "x" * 14), now)
    assert sequence.next(now) > ((now + 5000) * 0x1000) & MASK
    far = IdSequence()
    far.saw("msg_ffffffffffffzzzzzzzzzzzzzz", now)
    far.saw("msg_custom", now)
    assert far.next(now) == (now * 0x1000 + 1) & MASK


def test_tails_depend_on_the_seed_alone() -> None:
    assert hashed_tail("a") == hashed_tail("a") != hashed_tail("b")
    assert re.fullmatch(r"[0-9A-Za-z]{14}", hashed_tail("a"))


@given(st.integers(0, 4_000_000_000_000))
def test_times_come_back(ms: int) -> None:
    assert from_rfc3339(rfc3339(ms)) == ms


@pytest.mark.parametrize("name", ["a", "my session", "Größe", "..a", "a" * NAME_LIMIT])
def test_a_name_is_printable(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ses_../../x", "a\\b", "a\nb", "a\0b", "a" * (NAME_LIMIT + 1)])
def test_a_name_that_could_be_a_path_is_none(name: str) -> None:
    assert not is_name(name)
