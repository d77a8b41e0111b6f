"""What we tell on the wire of 1.18's preview, beside what that preview itself has told of the same scenes (lildax 1.18.18).

In order: the types of a turn's events, scene by scene. In shape: which fields each type of event and message has. Each of ours is
also as OpenCode's document of 1.18.33 says. Differences are rows of `compat_fixtures/opencode2/differences_preview.toml`, each
with its reason; a row that is not needed fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from shim.faces.opencode2.dialects import PREVIEW
from tests.support.opencode2_replay import SECOND, Comparison, Shapes, all_scenes, journals, kinds, of_agents, wire_events
from tests.support.opencode2_story import synthetic_stories
from tests.support.opencode2_views import OpenCode2View
from tests.support.oracle import check_preview_event, check_response
from tests.support.two_faces import second_of

Wire = dict[str, Any]
BEGINS = "session.next.prompt.admitted"
OURS = ("session.", "permission.v2.", "question.v2.")
SCENES = all_scenes(
    permission_reject_message=("mock/permission_feedback", "claude/2.1.330/bash_ask_deny"),
    interrupt_permission=("mock/permission_interrupted", "claude/2.1.330/interrupt_ask"),
    overload=("mock/retry", "claude/2.1.330/overload"),
    busy_default=("claude/2.1.330/queue_tool",),
    busy_steer=("claude/2.1.330/queue_tool",),
    busy_queue=("claude/2.1.329/queue",),
    todo=("claude/2.1.330/todo_write",),
)


def turns(events: Iterable[Wire]) -> list[list[str]]:
    """The types of the first session's events, from each prompt to the next."""
    return kinds(events, ("session.created",), ours=OURS, begins=BEGINS)


async def our_events(name: str) -> list[Wire]:
    """A recording of an agent as the preview would tell it."""
    return wire_events((await journals(name))[0], name.split("/")[0], "preview")


LILDAX = Comparison(SECOND / "lildax-1.18.18", "differences_preview.toml", SCENES, OURS, turns, our_events)


@pytest.mark.parametrize(("scene", "number"), SCENES)
async def test_the_order_is_that_of_the_preview(scene: str, number: int) -> None:
    await LILDAX.check_order(scene, number)


async def test_each_difference_in_order_is_needed() -> None:
    await LILDAX.check_order_rows()


# --- shapes ---------------------------------------------------------------------------------------------------


async def our_wire() -> Iterator[tuple[list[Wire], list[Wire]]]:
    """Events and messages of all recordings of all agents, and of what no recording has."""
    stories = [second_of(journal, name.split("/")[0]) for name in of_agents() for journal in await journals(name)]
    pairs = [(events, OpenCode2View(session)) for session, events in stories]
    pairs += [(story.told, story.now) for story in synthetic_stories()]
    return iter(
        (
            [event.wire() for event in map(PREVIEW.event, events) if event is not None],
            [one for one in map(PREVIEW.message, now.messages.values()) if one is not None],
        )
        for events, now in pairs
    )


async def test_each_event_and_message_is_as_the_document_says() -> None:
    seen: set[str] = set()
    for events, messages in await our_wire():
        for event in events:
            check_preview_event(event)
            seen.add(event["type"])
        check_response("v2.session.messages", 200, {"data": messages, "cursor": {}})
    assert seen >= {kind for kind in LILDAX.native_shapes().some if not kind.startswith("message ")} - UNTOLD


UNTOLD = {"session.next.context.updated"}
"""What the preview tells of its own instructions, of which no agent speaks."""


async def test_the_shapes_are_those_of_the_preview() -> None:
    shapes = Shapes()
    for events, messages in await our_wire():
        shapes.see_wire(events, messages, OURS)
    LILDAX.check_shapes(shapes)


def test_each_row_says_why() -> None:
    LILDAX.check_reasons()
