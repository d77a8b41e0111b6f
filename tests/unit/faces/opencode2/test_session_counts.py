"""Counting what was done in sessions: spans, days of a time zone, streaks, tools."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest

from shim.faces.opencode2._generated.host_types import SessionStatsInfo
from shim.faces.opencode2.session_counts import CountedCall, CountedStep, Detail, Stats, Summary
from universal.session.values import ModelRef, SessionRecord, Usage

DAY_MS = 24 * 3600 * 1000
NOON = int(datetime(2026, 5, 10, 12, tzinfo=UTC).timestamp() * 1000)
MODEL = ModelRef("p", "m")
USAGE = Usage(input=1, output=2, cache_read=3)


def step(ms: int, *calls: CountedCall, model: ModelRef = MODEL) -> CountedStep:
    return CountedStep(ms, model, USAGE, 0.5, calls)


def stats_of(
    *steps: CountedStep, prompts: tuple[int, ...] = (), tools: Detail = "none", zone: tzinfo = UTC, since: int = 0
) -> SessionStatsInfo:
    stats = Stats(since, NOON, zone)
    stats.add(Summary(1, SessionRecord("ses_1"), prompts, steps))
    return stats.info(tools)


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
    found = stats_of(old, new, prompts=(NOON - DAY_MS, NOON), since=NOON - 1000)
    assert (found["sessions"], found["prompts"], found["steps"], found["cost"]) == (1, 1, 1, 0.5)
    assert found["tokens"] == {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 3, "write": 0}}
    assert stats_of(old, prompts=(NOON - DAY_MS,), since=NOON)["sessions"] == 0
    assert stats_of(prompts=(NOON,), since=NOON)["sessions"] == 1


def test_tools() -> None:
    one = step(
        NOON,
        CountedCall("read", "succeeded", 10),
        CountedCall("read", "succeeded", 30),
        CountedCall("shell", "failed", 5),
        CountedCall("read", "unfinished", None),
    )
    found = stats_of(one, tools="detail")["tools"]
    assert found["mode"] == "detail"
    assert found["totals"] == {"calls": 4, "succeeded": 2, "failed": 1, "unfinished": 1}
    assert [(row["name"], row["calls"], row.get("durationP50")) for row in found["usage"]] == [("read", 3, 20), ("shell", 1, 5)]
    assert "usage" not in stats_of(one, tools="summary")["tools"]


def test_models_apart_by_variant() -> None:
    found = stats_of(step(NOON), step(NOON), step(NOON, model=replace(MODEL, variant="high")))
    assert [(row["model"].get("variant"), row["steps"], row["cost"]) for row in found["models"]] == [
        (None, 2, 1.0),
        ("high", 1, 0.5),
    ]
