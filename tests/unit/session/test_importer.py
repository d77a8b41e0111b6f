"""OpenCode 1's JSON is read into typed values and given back field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shim.faces.opencode1 import read
from universal.session import importer
from universal.session.model import Session
from universal.session.record_json import record_json, record_of
from universal.session.values import OtherPart

PLACE = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1"}
TOKENS = {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}}
ENDED = {"start": 1, "end": 2}
FILE = {**PLACE, "id": "prt_2", "type": "file", "mime": "image/png", "url": "data:,"}
BASH = {"type": "tool", "callID": "c", "tool": "bash"}
COMPLETED = {"status": "completed", "input": {}, "output": "o", "title": "t", "metadata": {}}
PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "hi"},
    {"type": "text", "text": "hi", "synthetic": False, "ignored": True, "metadata": {"a": 1}, "time": {"start": 1}},
    {"type": "text", "text": "hi", "time": {"start": 1, "end": 2, "more": 3}},
    {"type": "text"},
    {"type": "reasoning", "text": "so", "time": {"start": 1, "end": 2}},
    {"type": "file", "mime": "image/png", "url": "data:,", "filename": "a", "source": {"type": "file"}},
    {"type": "agent", "name": "general", "source": {"value": "@general", "start": 0, "end": 8}},
    {"type": "subtask", "prompt": "p", "description": "d", "agent": "general", "model": {"providerID": "a", "modelID": "b"}},
    {"type": "compaction", "auto": True, "overflow": True},
    {"type": "compaction"},
    {"type": "step-start"},
    {"type": "step-finish", "reason": "stop", "cost": 0.5, "tokens": TOKENS},
    {"type": "patch", "hash": "abc", "files": ["/p/a"]},
    {"type": "retry", "attempt": 1, "error": {"name": "APIError"}, "time": {"created": 1}},
    {"type": "snapshot", "snapshot": "abc"},
    {"type": "of tomorrow", "anything": [1, {"b": None}]},
    {**BASH, "state": {"status": "pending", "input": {}, "raw": ""}},
    {**BASH, "state": {"status": "running", "input": {"command": "ls"}, "time": {"start": 1}}},
    {**BASH, "metadata": {"x": 1}, "state": {**COMPLETED, "time": {**ENDED, "compacted": 3}, "attachments": [FILE]}},
    {**BASH, "state": {"status": "error", "input": {}, "error": "e", "time": ENDED}},
    {**BASH, "state": {"status": "of tomorrow"}},
]


@pytest.mark.parametrize("fields", PARTS, ids=lambda fields: json.dumps(fields)[:60])
def test_a_part_is_returned_as_it_came(fields: dict[str, Any]) -> None:
    wire = {**PLACE, **fields}
    assert read.part(importer.part(wire), "ses_1", "msg_1") == wire


@pytest.mark.parametrize("fields", [{"type": "text"}, {"type": "retry"}, {"type": "tool", "state": {"status": "of tomorrow"}}])
def test_a_part_without_the_form_of_its_type_is_kept_as_it_is(fields: dict[str, Any]) -> None:
    assert isinstance(importer.part({**PLACE, **fields}), OtherPart)


def native_export() -> dict[str, Any]:
    """A session with all parts there are, as native `opencode export` wrote it."""
    file = Path(__file__).parents[3] / "compat_fixtures" / "opencode" / "1.18.33" / "export" / "all_parts.json"
    return json.loads(file.read_text("utf-8"))


def test_an_exported_session_is_returned_as_it_came() -> None:
    document = native_export()
    session = Session(importer.session(document["info"]), "opencode")
    for message in document["messages"]:
        session.add(importer.message(message))
    assert read.export(session) == document


def test_a_stored_record_is_the_same_when_it_is_read_back() -> None:
    record = importer.session(native_export()["info"])
    assert record_of(json.loads(json.dumps(record_json(record)))) == record
