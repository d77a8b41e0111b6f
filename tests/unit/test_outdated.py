"""`make outdated`: which packages are watched, and what is said of a newer version. No registry is asked here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools import outdated, packages
from tools.outdated import lines, rows
from tools.packages import Package, RegistryError, newest, numbers, watched_packages
from universal.registry import agents

PI = Package("agent", "pi", "npm", "@earendil-works/pi-coding-agent", "0.87.1")


@pytest.mark.parametrize(
    ("tested", "latest", "verdict"),
    [
        ("0.87.1", "1.5.2", "behind"),
        ("0.87.1", "0.87.1", "current"),
        ("1.10.0", "1.9.9", "current"),
        ("", "1.0.0", "not tested"),
        ("1.0.0", "", "not found"),
    ],
)
def test_verdict_compares_the_numbers_of_versions(tested: str, latest: str, verdict: str) -> None:
    assert outdated.verdict(Package("agent", "x", "npm", "x", tested), latest) == verdict


def test_package_that_cannot_be_adopted_is_held_with_the_reason() -> None:
    amp = Package("agent", "amp", "npm", "@sourcegraph/amp", "0.0.1774569934", "It needs an account. More words.")
    [row] = rows([amp], {("npm", "@sourcegraph/amp"): "0.0.1790142911-g7618fb"})
    assert (row.verdict, row.remedy) == ("held", "It needs an account")


def test_line_of_a_package_behind_names_the_command_that_adopts_it() -> None:
    _, line, _, end = lines(rows([PI], {("npm", PI.package): "1.5.2"}))
    assert re.split(r"  +", line) == [
        "agent",
        "pi",
        PI.package,
        "0.87.1",
        "1.5.2",
        "behind",
        "make adopt AGENT=pi VERSION=1.5.2",
    ]
    assert end == "1 of 1 packages are behind."


@pytest.mark.parametrize(("latest", "code"), [("0.87.1", 0), ("1.5.2", 1)])
def test_exit_code_tells_whether_something_is_behind(
    latest: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outdated, "watched_packages", lambda: [PI])
    monkeypatch.setattr(outdated, "newest", lambda _: {("npm", PI.package): latest})
    assert outdated.main(["--report", str(tmp_path / "build")]) == code
    [report] = (tmp_path / "build").glob("outdated-????-??-??.txt")
    assert report.read_text("utf-8") == capsys.readouterr().out


def test_registry_without_an_answer_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packages, "_run", lambda *_: "")
    monkeypatch.setattr(packages, "program", lambda name: name)
    with pytest.raises(RegistryError, match="npm ping"):
        newest([PI])
    assert outdated.main([]) == 2
    assert "npm knows none of the packages" in capsys.readouterr().err


def test_newest_version_does_not_depend_on_this_machines_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """npm's `latest` is the newest version that runs on this Node; its `wanted` of the tag is the newest."""
    answer = {PI.package: {"wanted": "1.5.2", "latest": "0.74.2", "dependent": "x"}}
    monkeypatch.setattr(packages, "_run", lambda *_: json.dumps(answer))
    monkeypatch.setattr(packages, "program", lambda name: name)
    assert newest([PI]) == {("npm", PI.package): "1.5.2"}


def test_each_tested_agent_with_a_package_is_watched_at_its_newest_tested_version() -> None:
    found = {one.name: one for one in watched_packages() if one.kind == "agent"}
    for name, spec in agents().items():
        if spec.tested:
            assert found[name].tested == max(spec.tested, key=numbers)
    assert {one.kind for one in watched_packages()} == {"agent", "platform", "client", "sdk"}
