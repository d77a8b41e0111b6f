"""All that we tell on OpenCode 2's wire and on that of 1.18's preview is as the document says, and has the fields that builds
of each have told. In: all recordings of agents, and what no recording has, each played once.

Differences are rows of the tables of `test_opencode2_native` and `test_preview_native`; a row that is not needed fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shim.faces.opencode2.dialects import PREVIEW
from shim.faces.opencode2.wire_event import Event
from tests.conformance.test_opencode2_native import JULY
from tests.conformance.test_preview_native import LILDAX
from tests.support.july_dialect import V2_JULY
from tests.support.opencode2_replay import Shapes, journals, of_agents
from tests.support.opencode2_story import synthetic_stories
from tests.support.opencode2_views import OpenCode2View
from tests.support.oracle import check_preview_event, check_response
from tests.support.two_faces import second_of

ANY = ("",)
UNTOLD = {"session.next.context.updated"}
"""What the preview tells of its own instructions, of which no agent speaks."""


async def stories() -> AsyncIterator[tuple[list[Event], OpenCode2View]]:
    """Events and conversation of each session."""
    for name in of_agents():
        for journal in await journals(name):
            session, events = second_of(journal, name.split("/")[0])
            yield events, OpenCode2View(session)
    for story in synthetic_stories():
        yield story.told, story.now


@pytest.mark.slow  # plays all recordings; `tests/translate/test_recorded.py` has each of the newest versions in `make test`
async def test_events_and_messages_are_as_the_document_says_and_have_the_fields_of_each_build() -> None:
    july, preview = Shapes(), Shapes()
    seen: set[str] = set()
    async for events, conversation in stories():
        for shapes, types, speaks in ((july, ANY, V2_JULY), (preview, LILDAX.ours, PREVIEW)):
            wire = [event.wire() for event in map(speaks.event, events) if event is not None]
            messages = [one for one in map(speaks.message, conversation.messages.values()) if one is not None]
            shapes.see_wire(wire, messages, types)
            if speaks is PREVIEW:
                for event in wire:
                    check_preview_event(event)
                    seen.add(event["type"])
                check_response("v2.session.messages", 200, {"data": messages, "cursor": {}})
    assert seen >= {kind for kind in LILDAX.native_shapes().some if not kind.startswith("message ")} - UNTOLD
    JULY.check_shapes(july)
    LILDAX.check_shapes(preview)
