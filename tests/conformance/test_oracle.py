"""The judge itself: it accepts what real OpenCode sent, refuses planted faults, and finds stale divergences."""

from __future__ import annotations

import copy
import json
import tomllib
from typing import Any

import pytest

from tests.support import oracle
from tests.support.oracle import FIXTURES, Oracle, Violation

DOCUMENT = json.loads((FIXTURES / "openapi.json").read_text())
DIVERGENCES = tomllib.loads((FIXTURES / "divergences.toml").read_text())
ROWS = [json.loads(line) for line in (FIXTURES / "native" / "answers.jsonl").read_text().splitlines()]

PART = {
    "id": "evt_1ffd76098001QZLcaHTEk6UFLA",
    "type": "message.part.updated",
    "properties": {
        "sessionID": "ses_e002443f4ffeLOJ75TSClkenVm",
        "time": 1795293953035,
        "part": {
            "id": "prt_1ffd76098001QZLcaHTEk6UFLA",
            "sessionID": "ses_e002443f4ffeLOJ75TSClkenVm",
            "messageID": "msg_1ffd76098001QZLcaHTEk6UFLA",
            "type": "text",
            "text": "hello",
        },
    },
}


def change_at(value: Any, path: str, new: Any) -> Any:
    """A copy with one place changed; None removes it."""
    made = copy.deepcopy(value)
    *steps, last = path.split("/")
    inner = made
    for step in steps:
        inner = inner[step]
    if new is None:
        del inner[last]
    else:
        inner[last] = new
    return made


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['path']}{row.get('query', '')}")
def test_native_answers_pass(row: dict[str, Any]) -> None:
    name = oracle.oracle().operation_of(row["method"], row["path"])
    assert name is not None
    oracle.check_response(name, row["status"], row["body"])


def test_a_good_event_passes() -> None:
    oracle.check_event(PART)
    oracle.check_global_event({"directory": "/d", "project": "p", "payload": PART})


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("id", "x_1"),
        ("type", "message.part.nosuch"),
        ("extra", 1),
        ("properties/sessionID", None),
        ("properties/time", "now"),
        ("properties/part/text", None),
        ("properties/part/type", "nosuch"),
        ("properties/part/id", "part_1"),
    ],
)
def test_a_faulty_event_is_refused(path: str, new: Any) -> None:
    faulty = change_at(PART, path, new)
    with pytest.raises(Violation):
        oracle.check_event(faulty)
    with pytest.raises(Violation):
        oracle.check_global_event({"directory": "/d", "payload": faulty})


@pytest.mark.parametrize(
    "item",
    [{"payload": PART}, {"directory": "/d"}, {"directory": 1, "payload": PART}, {"directory": "/d", "payload": PART, "x": 1}],
)
def test_a_faulty_wrapper_is_refused(item: dict[str, Any]) -> None:
    with pytest.raises(Violation):
        oracle.check_global_event(item)


@pytest.mark.parametrize(
    ("operation", "status", "body"),
    [
        ("path.get", 200, {"home": "/"}),
        ("path.get", 200, None),
        ("global.health", 200, {"healthy": False, "version": "1"}),
        ("session.list", 200, [{}]),
        ("path.get", 418, {}),
        ("path.get", 404, {"message": "no"}),
        ("path.get", 501, {"name": "UnsupportedError", "data": {"message": "m"}}),
        ("path.get", 400, {"name": "Other", "data": {}}),
    ],
)
def test_a_faulty_answer_is_refused(operation: str, status: int, body: Any) -> None:
    with pytest.raises(Violation):
        oracle.check_response(operation, status, body)


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/session/status", "session.status"),
        ("GET", "/session/ses_1", "session.get"),
        ("GET", "/session/ses_1/", "session.get"),
        ("POST", "/session/ses_1/message", "session.prompt"),
        ("GET", "/project/current", "project.current"),
        ("GET", "/api/fs/read/a/b", "v2.fs.read"),
        ("PUT", "/session", None),
        ("GET", "/nosuch", None),
    ],
)
def test_operation_of(method: str, path: str, name: str | None) -> None:
    assert oracle.oracle().operation_of(method, path) == name


def test_every_event_kind_is_known() -> None:
    kinds = DOCUMENT["components"]["schemas"]["Event"]["anyOf"]
    assert len(kinds) == 89
    with pytest.raises(Violation, match="not declared"):
        oracle.check_event({"id": "evt_1", "type": "nosuch", "properties": {}})


# --- divergences -----------------------------------------------------------------------------------------


def test_no_divergence_is_stale() -> None:
    assert oracle.oracle().stale() == []


def test_divergences_have_reasons() -> None:
    assert all(len(one.reason) > 40 for one in oracle.oracle().divergences)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (
            {"operation": "path.get", "status": 200, "pointer": "/home", "example": {"home": "x"}},
            "does not allow its own example",
        ),
        ({"operation": "nosuch.get", "status": 200, "pointer": "/", "example": {}}, "no such operation"),
        ({"operation": "mcp.status", "status": 200, "pointer": "/", "example": {}}, "allows its example"),
        ({"operation": "event:message.part.updated", "status": 0, "pointer": "/", "example": PART}, "allows its example"),
    ],
)
def test_stale_divergences_are_found(row: dict[str, Any], why: str) -> None:
    judge = Oracle(DOCUMENT, {**DIVERGENCES, "divergence": [{**row, "reason": "planted"}]})
    assert any(why in line for line in judge.stale())


def test_a_pointer_excuses_only_its_place() -> None:
    row = {"operation": "path.get", "status": 200, "pointer": "/home", "reason": "planted", "example": {}}
    judge = Oracle(DOCUMENT, {"divergence": [row]})
    good = {"home": "/", "state": "/", "config": "/", "worktree": "/", "directory": "/"}
    judge.check_response("path.get", 200, good | {"home": 5})
    with pytest.raises(Violation, match="/state"):
        judge.check_response("path.get", 200, good | {"home": 5, "state": 5})
