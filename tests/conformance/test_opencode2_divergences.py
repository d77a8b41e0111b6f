"""Each row of `compat_fixtures/opencode2/divergences.toml` is a difference that is there."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from shim.dev.record.packs import read_text, recordings_in
from shim.faces.opencode2.dialects import DIALECTS
from tests.support.opencode2_story import Story
from tools.generate_opencode2 import FIXTURES

EVENTS: list[dict[str, Any]] = tomllib.loads((FIXTURES / "divergences.toml").read_text())["event"]
RECORDINGS = [path for build in ("v2-20260717", "lildax-1.18.18") for path in recordings_in(FIXTURES / build)]


@pytest.mark.parametrize("row", EVENTS, ids=lambda row: row["type"])
def test_native_lists_the_event_and_does_not_send_it(row: dict[str, Any]) -> None:
    declared = {one["type"] for one in json.loads((FIXTURES / "events.json").read_text())["events"]}
    assert row["type"] in declared
    assert RECORDINGS
    assert [path.name for path in RECORDINGS if f'"{row["type"]}"' in read_text(path)] == []


@pytest.mark.parametrize("row", EVENTS, ids=lambda row: row["type"])
def test_the_event_is_sent_to_these_dialects_alone(row: dict[str, Any]) -> None:
    story = Story()
    story.turn()
    sent = [event for event in story.told if event.type == row["type"]]
    assert sent
    told = {name for name, dialect in DIALECTS.items() if all(dialect.event(event) is not None for event in sent)}
    assert told == set(row["dialects"])
