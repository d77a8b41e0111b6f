"""The edge: which dialect a client speaks, and what is rewritten on the way in and out."""

from __future__ import annotations

import pytest

from shim.faces.opencode2._generated.operations import OPERATIONS
from shim.faces.opencode2.dialects import DIALECTS, V2_JULY
from shim.faces.opencode2.dialects import v2_july as j
from shim.faces.opencode2.probes import Probes
from shim.faces.opencode2.rewrite_rules import NoContent
from shim.http.operations import RequestInput


@pytest.mark.parametrize("name", DIALECTS)
def test_rows_are_of_operations_that_there_are(name: str) -> None:
    rows = {alias.row for alias in DIALECTS[name].aliases}
    for alias in DIALECTS[name].aliases:
        assert alias.operation in OPERATIONS, alias
        wanted = {part for part in OPERATIONS[alias.operation].path.split("/") if part.startswith("{")}
        assert wanted <= set(alias.path.split("/")), alias
    if name == "v2_july":
        assert set(j.REQUESTS) <= set(OPERATIONS)
        assert set(j.ANSWERS) <= set(OPERATIONS) | rows


@pytest.mark.parametrize(
    ("operation", "said", "meant"),
    [
        ("session.permission.reply", {"reply": "once"}, {"decision": "once"}),
        ("session.fork", {"messageID": "msg_1"}, {"before": "msg_1"}),
        ("session.fork", {}, {}),
        ("session.command", {"command": "a", "arguments": "b"}, {"name": "a", "text": "b"}),
        ("session.command", {"command": "a"}, {"name": "a", "text": ""}),
        ("experimental.session.skill", {"skill": "x", "resume": True}, {"id": "x", "resume": True}),
        ("session.prompt", {"text": "reply"}, {"text": "reply"}),
        ("session.fork", None, None),
        ("session.command", [1], [1]),
    ],
)
def test_requests(operation: str, said: object, meant: object) -> None:
    asked = RequestInput({"a": "b"}, said)
    assert V2_JULY.request(operation, asked) == RequestInput({"a": "b"}, meant)
    assert asked.body == said


def test_answers_are_made_and_nothing_is_changed_in_place() -> None:
    item = {"id": "msg_1", "sessionID": "ses_1", "time": {"created": 5}, "type": "user", "payload": {"text": "x"}}
    said = {"data": {**item, "delivery": "queue"}}
    made = V2_JULY.answer("session.prompt", said)
    assert made["data"]["timeCreated"] == 5
    assert made["data"]["data"] == {"text": "x"}
    assert said["data"]["time"] == {"created": 5}
    compaction = {**item, "type": "compaction", "payload": {}, "delivery": "steer"}
    assert set(V2_JULY.answer("session.compact", {"data": compaction})["data"]) == {
        "admittedSeq",
        "id",
        "sessionID",
        "timeCreated",
        "type",
    }
    source = {"type": "tool", "messageID": "msg_1", "id": "call_1"}
    [asked] = V2_JULY.answer("session.permission.list", {"data": [{"id": "per_1", "source": source}]})["data"]
    assert asked == {"id": "per_1", "source": {"type": "tool", "messageID": "msg_1", "callID": "call_1"}}
    assert V2_JULY.answer("session.interrupt", {"interrupted": True}) == NoContent()
    assert V2_JULY.answer("agent.list", said) is said


def test_the_last_probe_counts_and_old_clients_are_forgotten() -> None:
    probes = Probes(2)
    a, b, c = (("1", name) for name in "abc")
    probes.note(a, "v2_july")
    probes.note(b, "v2_july")
    probes.note(a, "v2_0")
    assert (probes.last(a), probes.last(b)) == ("v2_0", "v2_july")
    probes.note(c, "v2_july")
    assert (probes.last(a), probes.last(b), probes.last(c)) == (None, "v2_july", "v2_july")
