"""The report of an adoption: which verdict, and what is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shim.dev.record.report import compare
from tools.adopt.verdict import Findings, Verdict, report

GOOD = Findings("pi", "1.5.2", installed="the package", scenes=30, drove=20, before="0.86.1", difference=compare({}, {}))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (GOOD, "adopt"),
        (replace(GOOD, failed={"mcp": "no"}), "adopt"),
        (replace(GOOD, failed={"text": "no"}, new_failures=["text"]), "needs code"),
        (replace(GOOD, nothing_new=True), "nothing to do"),
        (replace(GOOD, nothing_new=True, driven=["test_a_permission"]), "needs code"),
        (replace(GOOD, unparsed=["text: line 1"]), "needs code"),
        (replace(GOOD, replays=["test_a_recording[x]"]), "needs code"),
        (replace(GOOD, driven=["test_a_permission"]), "needs code"),
        (replace(GOOD, scenes=0), "needs code"),
        (replace(GOOD, installed=""), "cannot install"),
    ],
)
def test_verdict_stands_in_the_first_line(found: Findings, verdict: Verdict) -> None:
    assert found.verdict == verdict
    assert report(found)[0] == f"pi 1.5.2: {verdict}"


def test_report_of_nothing_new_is_short() -> None:
    assert len(report(GOOD)) < 16


def test_scenes_that_fail_alike_are_reported_once() -> None:
    found = replace(GOOD, failed={"text": "It ends.", "long": "It ends.", "mcp": "No tool."})
    assert [line for line in report(found) if "ends" in line or "tool" in line] == [
        "  - text, long: It ends.",
        "  - mcp: No tool.",
    ]


def test_new_abilities_of_the_agent_are_reported() -> None:
    assert "  - mcp (mcp)" in report(replace(GOOD, possible={"mcp": ["mcp"]}))
