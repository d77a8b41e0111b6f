"""One more message of a turn costs the same however many there are: counted in calls, of which a busy machine adds none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.support.scripted_model import ScriptedAgent, World, ask

MESSAGES = 50
OTHERS = 500
"""Messages that the turn has besides, the second time."""


def calls(work: Callable[[], None]) -> int:
    """How many functions are called by it, Python's and C's."""
    count = 0

    def count_call(_frame: FrameType, what: str, _argument: Any) -> None:
        nonlocal count
        count += what in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def say(agent: ScriptedAgent, messages: int) -> None:
    for number in range(messages):
        agent.text(f"message {number}", finish="tool-calls")


async def test_messages_of_a_long_turn_cost_what_the_first_ones_cost(w: World) -> None:
    await ask(w, w.session())
    say(w.agent, 5)
    few = calls(lambda: say(w.agent, MESSAGES))
    say(w.agent, OTHERS)
    many = calls(lambda: say(w.agent, MESSAGES))
    w.agent.end_turn()
    assert many < few * 1.1
