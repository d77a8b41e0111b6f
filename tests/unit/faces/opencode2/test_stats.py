"""Counting what was done in sessions: spans, days of a time zone, streaks, tools."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from shim.faces.opencode2.stats import Stats
from universal.session.model import SessionRecord

DAY_MS = 24 * 3600 * 1000
NOON = int(datetime(2026, 5, 10, 12, tzinfo=UTC).timestamp() * 1000)
MODEL = {"id": "m", "providerID": "p"}
TOKENS = {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 3, "write": 0}}


def step(ms: int, *tools: tuple[str, str, int], **more: Any) -> dict[str, Any]:
    content = [
        {
            "type": "tool",
            "name": name,
            "state": {"status": status},
            "time": {"created": 0, "ran": 10, **({"completed": 10 + took} if took else {})},
        }
        for name, status, took in tools
    ]
    return {
        "type": "assistant",
        "time": {"created": ms},
        "model": MODEL,
        "cost": 0.5,
        "tokens": TOKENS,
        "content": content,
        **more,
    }


def stats_of(*messages: dict[str, Any], tools: Any = "none", zone: Any = UTC, since: int = 0) -> dict[str, Any]:
    stats = Stats(since, NOON, zone)
    stats.add(SessionRecord("ses_1"), messages)
    return stats.wire(tools)


@pytest.mark.parametrize(
    ("days", "streak"),
    [((0, 1, 2), 3), ((1, 2), 2), ((2, 3), 0), ((0, 2), 1), ((), 0)],
    ids=["to today", "to yesterday", "broken", "a gap", "nothing"],
)
def test_streaks(days: tuple[int, ...], streak: int) -> None:
    assert stats_of(*(step(NOON - day * DAY_MS) for day in days))["streak"] == streak


def test_days_are_the_askers() -> None:
    late = NOON - 1 * 3600 * 1000
    zone = timezone(timedelta(hours=14))
    assert stats_of(step(late))["activity"] == [{"date": "2026-05-10", "steps": 1}]
    assert stats_of(step(late), zone=zone)["activity"] == [{"date": "2026-05-11", "steps": 1}]


def test_only_the_span_counts() -> None:
    old, new = step(NOON - DAY_MS), step(NOON)
    found = stats_of(old, new, {"type": "user", "time": {"created": NOON}}, since=NOON - 1000)
    assert (found["sessions"], found["prompts"], found["steps"], found["cost"]) == (1, 1, 1, 0.5)
    assert found["tokens"] == TOKENS
    assert stats_of(old, since=NOON)["sessions"] == 0


def test_tools() -> None:
    one = step(NOON, ("read", "completed", 10), ("read", "completed", 30), ("shell", "error", 5), ("read", "running", 0))
    found = stats_of(one, tools="detail")["tools"]
    assert found["totals"] == {"calls": 4, "succeeded": 2, "failed": 1, "unfinished": 1}
    assert [(row["name"], row["calls"], row["durationP50"]) for row in found["usage"]] == [("read", 3, 20), ("shell", 1, 5)]
    assert "usage" not in stats_of(one, tools="summary")["tools"]


def test_models_apart_by_variant() -> None:
    found = stats_of(step(NOON), step(NOON), step(NOON, model={**MODEL, "variant": "high"}))
    assert [(row["model"].get("variant"), row["steps"], row["cost"]) for row in found["models"]] == [
        (None, 2, 1.0),
        ("high", 1, 0.5),
    ]
