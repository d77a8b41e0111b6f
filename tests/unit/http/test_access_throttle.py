"""Wrong passwords: how many, how soon again, how much memory."""

from __future__ import annotations

import pytest

from shim.http.access import Throttle, network


def test_tries_are_used_up_and_come_back() -> None:
    throttle = Throttle(burst=2, refill_s=10)
    assert throttle.wait_s("a", 0) == 0
    for guess in (b"1", b"2"):
        throttle.note_failure("a", guess, 0)
    assert throttle.wait_s("a", 0) == pytest.approx(10)
    assert throttle.wait_s("a", 9) == pytest.approx(1)
    assert throttle.wait_s("a", 10) == 0
    assert throttle.wait_s("b", 0) == 0
    throttle.note_failure("a", b"3", 10)
    assert throttle.wait_s("a", 10) == pytest.approx(10)
    # Never more than the burst, however long it was quiet.
    for guess in (b"4", b"5"):
        throttle.note_failure("a", guess, 1000)
    assert throttle.wait_s("a", 1000) > 0


def test_a_guess_that_was_the_last_one_is_free() -> None:
    throttle = Throttle(burst=1, refill_s=10)
    for _ in range(100):
        throttle.note_failure("a", b"same", 0)
    assert throttle.wait_s("a", 0) > 0
    throttle = Throttle(burst=2, refill_s=10)
    for _ in range(100):
        throttle.note_failure("a", b"same", 0)
    assert throttle.wait_s("a", 0) == 0


def test_memory_is_bounded() -> None:
    throttle = Throttle(addresses=10)
    for number in range(1000):
        throttle.note_failure(f"10.0.{number // 256}.{number % 256}", b"x", number)
    assert len(throttle) == 10


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("", "", True),
        ("unix:x", "unix:y", False),
    ],
)
def test_addresses_that_count_as_the_same(one: str, other: str, same: bool) -> None:
    assert (network(one) == network(other)) is same
