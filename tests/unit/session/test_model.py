"""The order of a session's messages, from both ends, also when the clock was put back."""

from __future__ import annotations

import pytest

from universal.session.messages import Message
from universal.session.model import Session
from universal.session.values import ModelRef, SessionRecord, UserInfo


def session(*times: int) -> Session:
    """Messages `m0`, `m1`, ... in the order in which they came."""
    made = Session(SessionRecord("ses_a"), "mock")
    for number, time in enumerate(times):
        made.add(Message(UserInfo(f"m{number}", time, "build", ModelRef("mock", "one"))))
    return made


@pytest.mark.parametrize(
    ("times", "in_order", "expected"),
    [
        ((), True, ""),
        ((1, 2, 3), True, "m0 m1 m2"),
        ((1, 1, 2), True, "m0 m1 m2"),
        ((5, 1, 2), False, "m1 m2 m0"),
        ((1, 9, 2, 3), False, "m0 m2 m3 m1"),
        ((2, 1, 2), False, "m1 m0 m2"),
    ],
)
def test_messages_are_sorted_by_time_from_both_ends(times: tuple[int, ...], in_order: bool, expected: str) -> None:
    made = session(*times)
    assert made.in_order is in_order
    assert [message.info.id for message in made.oldest_first()] == expected.split()
    assert [message.info.id for message in made.newest_first()] == expected.split()[::-1]


def test_the_newest_message_is_read_without_a_look_at_the_others() -> None:
    made = session(*range(1000))
    del made.messages["m0"].info  # whoever looks at it fails
    assert next(made.newest_first()).info.id == "m999"
