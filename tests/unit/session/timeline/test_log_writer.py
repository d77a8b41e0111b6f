"""`session.status` and `session.idle`, which accompany the start and the end of an execution."""

from __future__ import annotations

import pytest

from tests.support.opencode2_fold import ENDS
from tests.support.opencode2_story import Story
from universal.session.timeline.log_writer import EVENTS_BITS


@pytest.mark.parametrize("reason", ["completed", "aborted", "error", "agent_exited"])
def test_idle_follows_the_end_of_a_turn_and_is_its_last_event(reason: str) -> None:
    """What `opencode-python-sdk` waits by. Both are live only: the session's log has the end itself."""
    story = Story()
    story.prompt("hello")
    story.say("Hi.")
    story.end(reason)
    execution, status, idle = story.told[-3:]
    assert execution.type in ENDS
    assert (status.type, status.data) == ("session.status", {"sessionID": story.id, "status": {"type": "idle"}})
    assert (idle.type, idle.data, idle.seq) == ("session.idle", {"sessionID": story.id}, None)
    assert [event.type for event in story.told].count("session.idle") == 1


def test_status_is_busy_from_the_start_and_names_each_retry() -> None:
    story = Story()
    story.prompt("hello")
    story.status("retry", attempt=1, message="overloaded", delay_ms=500)
    story.say("Back again.")
    story.end()
    statuses = [event.data["status"] for event in story.told if event.type == "session.status"]
    assert [status["type"] for status in statuses] == ["busy", "retry", "busy", "idle"]
    assert (statuses[1]["attempt"], statuses[1]["message"]) == (1, "overloaded")


def test_accompanying_events_change_no_id_of_others() -> None:
    """Ids are made of the place in the journal: a session that is read in joined pieces has the ids that clients have seen."""
    story = Story()
    story.turn()
    story.turn()
    main = [event.id for event in story.told if event.type not in ("session.status", "session.idle")]
    tails = [int(id_[-11:-4], 16) for id_ in main]
    assert {tail >> EVENTS_BITS for tail in tails} <= {event.sequence for event in story.journal}
    assert tails == sorted(set(tails))
    assert [event.id for event in story.told] == sorted(event.id for event in story.told)
