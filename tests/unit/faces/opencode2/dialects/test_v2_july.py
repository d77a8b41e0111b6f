"""Events, messages and sessions as July's build gets them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shim.faces.opencode2.dialects import V2_JULY
from shim.faces.opencode2.dialects import v2_july as dialect_j
from shim.faces.opencode2.wire_event import NO_LOCATION, VERSIONS, Event
from tests.support.opencode2_replay import SECOND, native, native_scenes

CREATED = 1_795_293_784_000
CALL = {"sessionID": "ses_1", "assistantMessageID": "msg_1"}


def event(kind: str, data: dict[str, Any], note: str = "") -> Event:
    version = VERSIONS.get(kind)
    return Event("evt_1", CREATED, kind, data, "ses_1", None if version is None else 3, version, "/home/user/project", note=note)


@pytest.mark.parametrize(
    ("kind", "data", "told", "as_"),
    [
        ("session.text.delta", {"ordinal": 0, "delta": "a"}, "session.text.delta", {"ordinal": 0, "delta": "a"}),
        ("session.agent.selected", {"agent": "plan", "previous": "build"}, "session.agent.selected", {"agent": "plan"}),
        ("session.step.started", {"agent": "build", "started": 1}, "session.step.started", {"agent": "build"}),
        (
            "session.model.selected",
            {"model": {"id": "m", "providerID": "p"}, "previous": {"id": "n", "providerID": "p"}},
            "session.model.selected",
            {"model": {"id": "m", "providerID": "p", "variant": "default"}},
        ),
        ("session.inbox.delivered", {"inboxID": "msg_1"}, "session.input.promoted", {"inputID": "msg_1"}),
        (
            "session.inbox.enqueued",
            {"inboxID": "msg_1", "item": {"type": "user", "payload": {"text": "a", "skills": []}, "delivery": "steer"}},
            "session.input.admitted",
            {"inputID": "msg_1", "input": {"type": "user", "data": {"text": "a"}, "delivery": "steer"}},
        ),
        (
            "session.inbox.enqueued",
            {"inboxID": "msg_1", "item": {"type": "compaction", "payload": {}, "delivery": "steer"}},
            "session.compaction.admitted",
            {"inputID": "msg_1"},
        ),
        (
            "session.tool.progress",
            {**CALL, "id": "call_1", "metadata": {"truncated": False, "output": "tick"}},
            "session.tool.progress",
            {**CALL, "callID": "call_1", "structured": {"truncated": False}, "content": [{"type": "text", "text": "tick"}]},
        ),
        (
            "session.tool.success",
            {**CALL, "id": "call_1", "content": [{"type": "text", "text": "a"}], "executed": False},
            "session.tool.success",
            {**CALL, "callID": "call_1", "content": [{"type": "text", "text": "a"}], "executed": False, "structured": {}},
        ),
        (
            "session.tool.failed",
            {**CALL, "id": "call_1", "error": {"type": "unknown", "message": "no"}, "content": [], "executed": False},
            "session.tool.failed",
            {
                **CALL,
                **{"callID": "call_1", "error": {"type": "unknown", "message": "no"}, "executed": False},
                "result": {"type": "error", "value": "no"},
            },
        ),
        (
            "session.tool.failed",
            {**CALL, "id": "call_1", "error": {"type": "aborted", "message": "no"}, "executed": False},
            "session.tool.failed",
            {**CALL, "callID": "call_1", "error": {"type": "aborted", "message": "no"}, "executed": False},
        ),
        (
            "permission.asked",
            {"id": "per_1", "source": {"type": "tool", "messageID": "msg_1", "id": "call_1"}, "message": "please"},
            "permission.v2.asked",
            {"id": "per_1", "source": {"type": "tool", "messageID": "msg_1", "callID": "call_1"}},
        ),
        ("permission.replied", {"reply": "once"}, "permission.v2.replied", {"reply": "once"}),
        (
            "form.created",
            {"form": {"id": "frm_1", "metadata": {"kind": "question", "tool": {"messageID": "msg_1", "id": "call_1"}}}},
            "form.created",
            {"form": {"id": "frm_1", "metadata": {"kind": "question", "tool": {"messageID": "msg_1", "callID": "call_1"}}}},
        ),
        (
            "session.forked",
            {"parentID": "ses_0", "boundary": {"type": "before", "messageID": "msg_0"}},
            "session.forked",
            {"parentID": "ses_0", "parentSeq": 0, "from": "msg_0"},
        ),
        ("session.execution.interrupted", {"reason": "inactivity"}, "session.execution.interrupted", {"reason": "shutdown"}),
        ("provider.updated", {}, "catalog.updated", {}),
    ],
)
def test_events(kind: str, data: dict[str, Any], told: str, as_: dict[str, Any]) -> None:
    given = event(kind, data)
    before = json.dumps(data)
    made = V2_JULY.event(given)
    assert made is not None
    assert (made.type, made.data) == (told, as_)
    assert (made.id, made.created, made.seq) == (given.id, given.created, given.seq)
    assert json.dumps(data) == before, "what was given is never changed in place"


@pytest.mark.parametrize("kind", [kind for kind, row in dialect_j.EVENTS.items() if row.type is None])
def test_events_that_j_has_not(kind: str) -> None:
    assert V2_JULY.event(event(kind, {})) is None


def test_a_wish_to_compact_is_not_promoted() -> None:
    assert V2_JULY.event(event("session.inbox.delivered", {"inboxID": "msg_1"}, note="compaction")) is None


def test_results_have_their_first_version() -> None:
    versions = {
        kind: V2_JULY.event(event(kind, {**CALL, "id": "c", "error": {}}))
        for kind in ("session.tool.success", "session.tool.failed")
    }
    assert [made.version for made in versions.values() if made is not None] == [1, 1]


def test_v2_july_gets_only_event_types_that_it_knows() -> None:
    """By its recordings, and by the published list for what did not happen in them."""
    known = {one["type"] for scene in native_scenes() for one in native(scene).events()}
    known |= {row["type"] for row in json.loads((SECOND / "events.json").read_text())["events"]}
    told = {row.type or kind for kind, row in dialect_j.EVENTS.items() if row.type is not None}
    assert told - known == set()


def test_the_table_of_durable_events_is_the_documents() -> None:
    document = json.loads((SECOND / "events.json").read_text())["events"]
    durable = {row["type"]: row["version"] for row in document if row["durable"]}
    assert {kind: durable.get(kind) for kind in VERSIONS} == VERSIONS
    assert all(not kind.startswith("session.") or kind in VERSIONS for kind in durable.keys() - NOT_OURS)
    assert {row["type"] for row in document} >= NO_LOCATION


NOT_OURS = {"session.usage.recorded", "session.instructions.updated"}
"""What the model said of titles, and instructions: the agents' own business."""


# --- what is read ---------------------------------------------------------------------------------------------


def test_messages_that_j_has_not() -> None:
    assert V2_JULY.message({"type": "idle"}) is None
    assert V2_JULY.message({"type": "location-switched"}) is None


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({"status": "streaming", "input": ""}, {"status": "streaming", "input": ""}),
        (
            {"status": "running", "input": {}, "metadata": {"truncated": False, "output": "tick"}},
            {"status": "running", "input": {}, "structured": {"truncated": False}, "content": [{"type": "text", "text": "tick"}]},
        ),
        (
            {"status": "completed", "input": {}, "content": [{"type": "text", "text": "a"}]},
            {"status": "completed", "input": {}, "content": [{"type": "text", "text": "a"}], "structured": {}},
        ),
        (
            {"status": "error", "input": {}, "error": {"type": "unknown", "message": "no"}},
            {
                **{
                    "status": "error",
                    "input": {},
                    "error": {"type": "unknown", "message": "no"},
                    "content": [],
                    "structured": {},
                },
                "result": {"type": "error", "value": "no"},
            },
        ),
    ],
)
def test_calls_of_a_message(state: dict[str, Any], shown: dict[str, Any]) -> None:
    time = {"created": 1, "streamed": 2, "completed": 3}
    message = {"type": "assistant", "time": time, "rawFinish": "x", "content": [{"type": "tool", "id": "c", "state": state}]}
    made = V2_JULY.message(message)
    assert made is not None
    assert (made["time"], "rawFinish" in made) == ({"created": 1, "completed": 3}, False)
    assert made["content"][0]["state"] == shown


def test_a_session() -> None:
    boundary = {"type": "before", "messageID": "msg_0"}
    info = {
        **{"id": "ses_1", "outcome": "failed", "permissions": [], "subpath": "a", "metadata": {}},
        **{"time": {"created": 1, "updated": 2, "idle": 2, "viewed": 2}, "fork": {"sessionID": "ses_0", "boundary": boundary}},
    }
    assert V2_JULY.session(info) == {
        **{"id": "ses_1", "time": {"created": 1, "updated": 2}, "title": ""},
        "fork": {"sessionID": "ses_0", "messageID": "msg_0"},
    }
