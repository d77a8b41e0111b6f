"""What we tell on the wire of 1.18's preview, beside what that preview itself has told of the same scenes (lildax 1.18.18).

In order: the types of a turn's events, scene by scene. In shape (`test_opencode2_shapes`): which fields each type of event and
message has. Differences are rows of `compat_fixtures/opencode2/differences_preview.toml`, each
with its reason; a row that is not needed fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from shim.faces.opencode2.dialects import PREVIEW
from tests.support.opencode2_replay import SECOND, Comparison, all_scenes, journals, kinds, wire_events

Wire = dict[str, Any]
BEGINS = "session.next.prompt.admitted"
OURS = ("session.", "permission.v2.", "question.v2.")
SCENES = all_scenes(
    permission_reject_message=("mock/permission_feedback", "claude/2.1.330/bash_ask_deny"),
    interrupt_permission=("mock/permission_interrupted", "claude/2.1.330/interrupt_ask"),
    overload=("mock/retry", "claude/2.1.330/overload"),
    busy_default=("claude/2.1.330/queue_tool",),
    busy_steer=("claude/2.1.330/queue_tool",),
    busy_queue=("claude/2.1.332/queue",),
    todo=("claude/2.1.330/todo_write",),
)


def turns(events: Iterable[Wire]) -> list[list[str]]:
    """The types of the first session's events, from each prompt to the next."""
    return kinds(events, ("session.created",), ours=OURS, begins=BEGINS)


async def our_events(name: str) -> list[Wire]:
    """A recording of an agent as the preview would tell it."""
    return wire_events((await journals(name))[0], name.split("/")[0], PREVIEW)


LILDAX = Comparison(SECOND / "lildax-1.18.18", "differences_preview.toml", SCENES, OURS, turns, our_events)


@pytest.mark.parametrize(("scene", "number"), SCENES)
async def test_the_order_is_that_of_the_preview(scene: str, number: int) -> None:
    await LILDAX.check_order(scene, number)


async def test_each_difference_in_order_is_needed() -> None:
    await LILDAX.check_order_rows()


def test_each_row_says_why() -> None:
    LILDAX.check_reasons()
