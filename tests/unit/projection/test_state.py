"""The order of a conversation's messages, from both ends, also when the clock was put back."""

from __future__ import annotations

import pytest

from shim.projection.opencode1.state import Conversation, Message


def conversation(*times: int) -> Conversation:
    """Messages `m0`, `m1`, ... in the order in which they came."""
    made = Conversation({"id": "ses_a"})
    for number, time in enumerate(times):
        made.add(Message({"id": f"m{number}", "role": "user", "time": {"created": time}}))
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
def test_order(times: tuple[int, ...], in_order: bool, expected: str) -> None:
    made = conversation(*times)
    assert made.in_order is in_order
    assert [m.info["id"] for m in made.oldest_first()] == expected.split()
    assert [m.info["id"] for m in made.newest_first()] == expected.split()[::-1]


def test_the_newest_are_read_without_a_look_at_the_others() -> None:
    made = conversation(*range(1000))
    made.messages["m0"].info = {}  # whoever looks at it fails
    assert next(made.newest_first()).info["id"] == "m999"
