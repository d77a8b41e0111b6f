"""What agents tell of the limits of a person's plan, and when it is a warning."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from shim.sessions.plan_limits import PlanReports
from universal.limits import PlanLimits, PlanWindow, of_claude, of_codex, windows_of
from universal.session.changes import LimitsReported


def test_claudes_windows_are_all_of_them_or_the_one_that_it_is_about() -> None:
    whole = {"unifiedWindows": {"five_hour": {"utilization": 0.92, "resetsAt": 7}, "seven_day": {"utilization": None}}}
    assert of_claude(whole) == [PlanWindow("five_hour", 0.92, 7)]
    assert of_claude({"rateLimitType": "seven_day", "utilization": 1, "resetsAt": 9}) == [PlanWindow("seven_day", 1, 9)]
    assert of_claude({"status": "allowed"}) == []
    assert of_claude({"unifiedWindows": {"five_hour": {"utilization": True}, "x": 3}}) == []


def test_codexs_windows_have_the_names_of_claudes() -> None:
    primary = {"usedPercent": 92, "windowDurationMins": 300, "resetsAt": 7}
    other = {"usedPercent": 31, "windowDurationMins": 60, "resetsAt": None}
    assert of_codex({"limitId": "codex", "primary": primary, "secondary": other}) == [
        PlanWindow("five_hour", 0.92, 7),
        PlanWindow("60_minute", 0.31, 0),
    ]
    assert of_codex({"limitId": "review", "primary": primary, "secondary": None})[0].name == "review_five_hour"
    assert of_codex({"primary": None, "secondary": None}) == []


def test_a_report_comes_once_and_its_metadata_give_the_windows_back() -> None:
    limits = PlanLimits()
    told = limits.update([PlanWindow("five_hour", 1, 7), PlanWindow("seven_day", 0.5, 99)])
    assert told is not None
    assert windows_of(told) == [PlanWindow("five_hour", 1, 7), PlanWindow("seven_day", 0.5, 99)]
    assert limits.update([PlanWindow("seven_day", 0.5, 99)]) is None
    assert (limits.resets_at, limits.summary) == (7, "five-hour limit: 100% used, seven-day limit: 50% used")


def change(*windows: PlanWindow) -> Any:
    session = SimpleNamespace(agent="claude", record=SimpleNamespace(directory="/p"))
    return SimpleNamespace(changes=(LimitsReported(windows),), session=session, at_ms=5)


def test_use_that_swings_around_the_warning_and_a_reset_that_drifts_warn_once() -> None:
    said: list[str] = []
    reports = PlanReports(lambda agent, words, directory: said.append(words))
    for window in (("five_hour", 0.81, 1_000), ("five_hour", 0.79, 1_001), ("five_hour", 0.82, 1_060), ("weekly", 0.8, 0)):
        reports.note(change(PlanWindow(*window)))
    reports.note(change(PlanWindow("weekly", 0.79, 0)))
    reports.note(change(PlanWindow("weekly", 0.8, 0)))
    assert len(said) == 2
    reports.note(change(PlanWindow("five_hour", 0.9, 19_000)))
    assert len(said) == 3, "a new window, whose beginning nobody has told"


def test_each_window_warns_once_until_it_begins_again() -> None:
    said: list[str] = []
    reports = PlanReports(lambda agent, words, directory: said.append(f"{agent} {words} {directory}"))
    for window in (("five_hour", 0.7, 60), ("five_hour", 0.8, 60), ("five_hour", 0.9, 60), ("seven_day", 0.9, 0)):
        reports.note(change(PlanWindow(*window)))
    five_hours = "claude 80% of the five-hour limit is used. It resets at 01 Jan, 00:01 UTC. /p"
    assert said == [five_hours, "claude 90% of the seven-day limit is used. /p"]
    reports.note(change(PlanWindow("five_hour", 0.1, 18_000)))
    reports.note(change(PlanWindow("five_hour", 0.85, 18_000)))
    assert len(said) == 3
    assert reports.agents["claude"].windows == (PlanWindow("five_hour", 0.85, 18_000),)
