"""Events of OpenCode 2 as they are sent."""

from __future__ import annotations

import json

import pytest

from shim.faces.opencode2.dialects import DIALECTS
from shim.faces.opencode2.wire_event import NO_LOCATION, Event
from tests.support.opencode2_oracle import check_event, check_log_item
from tests.support.opencode2_story import Story
from tools.generate_opencode2 import FIXTURES


def test_a_durable_event_has_its_place_and_its_directory() -> None:
    event = Event("evt_1", 5, "session.renamed", {"sessionID": "ses_1", "title": "t"}, "ses_1", 3, 1, "/a", note="x")
    assert event.wire() == {
        **{"id": "evt_1", "created": 5, "type": "session.renamed"},
        **{"durable": {"aggregateID": "ses_1", "seq": 3, "version": 1}, "location": {"directory": "/a"}},
        "data": {"sessionID": "ses_1", "title": "t"},
    }
    assert "location" not in event.log()
    check_event(event.wire())
    check_log_item(event.log())


def test_a_live_event_has_no_place() -> None:
    event = Event("evt_1", 5, "session.usage.updated", {}, "ses_1")
    assert event.wire() == {"id": "evt_1", "created": 5, "type": "session.usage.updated", "data": {}}


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_a_dialect_does_not_change_its_input(name: str) -> None:
    """One event goes to readers of all dialects."""
    story = Story()
    story.turn()
    before = [event.wire() for event in story.told]
    made = [DIALECTS[name].event(event) for event in story.told]
    assert [event.wire() for event in story.told] == before
    assert [event.id for event in made if event is not None] == [
        event.id for event, other in zip(story.told, made, strict=True) if other is not None
    ]


def test_a_task_for_a_subagent_is_what_was_asked() -> None:
    story = Story()
    story.prompt("", parts=[{"type": "subtask", "prompt": "look around", "description": "d", "agent": "general"}])
    (user,) = story.now.messages.values()
    assert user["text"] == "look around"


def test_events_without_a_location_are_of_the_contract() -> None:
    assert {row["type"] for row in json.loads((FIXTURES / "events.json").read_text())["events"]} >= NO_LOCATION
