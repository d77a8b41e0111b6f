"""`make outdated`: which packages are watched, and what is said of a newer version. No registry is asked here."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from tools import outdated, packages
from tools.outdated import HEADS, PAGE, lines, page_table, rows
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


@pytest.mark.parametrize(("program", "verdict"), [("7.7.9", "held"), ("7.8.1", "behind"), ("", "behind")])
def test_version_without_a_program_for_this_machine_is_held(program: str, verdict: str) -> None:
    kilo = [Package("agent", "kilo", "npm", "kilo", "7.7.9"), Package("platform", "kilo", "npm", "kilo-here", "7.7.9")]
    row = rows(kilo, {("npm", "kilo"): "7.8.1", ("npm", "kilo-here"): program})[0]
    assert row.verdict == verdict
    assert ("kilo-here, ends at 7.7.9" in row.remedy) == (verdict == "held")


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
        if spec.program.tested:
            assert found[name].tested == max(spec.program.tested, key=numbers)
    assert {one.kind for one in watched_packages()} == {"agent", "platform", "client", "sdk"}


def test_age_counts_the_days_from_the_tested_to_the_newest_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    days = {("npm", PI.package, "0.87.1"): date(2026, 9, 1), ("npm", PI.package, "1.5.2"): date(2026, 11, 10)}
    monkeypatch.setattr(outdated, "watched_packages", lambda: [PI])
    monkeypatch.setattr(outdated, "newest", lambda _: {("npm", PI.package): "1.5.2"})
    monkeypatch.setattr(outdated, "release_days", lambda versions: {one: days[one] for one in versions})
    assert outdated.main(["--json"]) == 1
    [row] = json.loads(capsys.readouterr().out)
    assert (row["tested"], row["newest"], row["age_days"], row["tested_on"]) == ("0.87.1", "1.5.2", 70, "2026-09-01")
    [made] = rows([PI], {("npm", PI.package): "1.5.2"})
    assert (made.age_days, replace(made, verdict="current").age_days) == (None, 0)
    table = page_table([replace(made, tested_on=date(2026, 9, 1), newest_on=date(2026, 11, 10))], "2026-11-29")
    assert "| agent | `pi` | `@earendil-works/pi-coding-agent` | 0.87.1 | 1.5.2 | 70 | behind |" in table.splitlines()


def test_days_of_publication_come_from_both_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = """[[packages]]
name = "opencode-py"
version = "0.8.0"
sdist = { url = "https://x/y.tar.gz", upload-time = 2026-07-13T01:00:00Z }
wheels = [{ url = "https://x/y.whl", upload-time = 2026-07-12T15:03:12Z }]
"""
    times = {"created": "2026-01-01T00:00:00Z", "1.0.0-g12": "2026-02-01T23:00:00+00:00"}
    monkeypatch.setattr(packages, "program", lambda name: name)
    monkeypatch.setattr(packages, "_run", lambda argv, *_: json.dumps(times) if argv[0] == "npm" else lock)
    wanted: list[packages.Release] = [
        ("npm", "amp", "1.0.0"),
        ("npm", "amp", "9.0.0"),
        ("pypi", "opencode-py", "0.8.0"),
    ]
    assert packages.release_days(wanted) == {wanted[0]: date(2026, 2, 1), wanted[2]: date(2026, 7, 12)}


def test_page_has_a_row_for_each_watched_package_at_its_tested_version() -> None:
    """If this fails: `make outdated ARGS=--write`."""
    text = PAGE.read_text("utf-8")
    block = text[text.index(outdated.BEGIN) : text.index(outdated.END)].splitlines()
    assert re.fullmatch(r"Asked on 2\d{3}-\d\d-\d\d\.", block[1])
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in block if line.startswith("| ")]
    assert found[0] == list(HEADS)
    watched = [[one.kind, f"`{one.name}`", f"`{one.package}`", one.tested or "–"] for one in watched_packages()]
    assert [row[:4] for row in found[1:]] == watched
    for _, _, _, tested, latest, age, said in found[1:]:
        assert re.fullmatch(r"\d+(\.\d+)+\S*|–", latest)
        assert re.fullmatch(r"0" if said == "current" else r"\d+|–", age)
        behind = tested != "–" and numbers(latest) > numbers(tested)
        assert behind == (said in ("behind", "held"))


def test_the_page_names_the_newest_tested_version_of_each_agent() -> None:
    page = PAGE.read_text().partition("## Which agents were run?")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    stale = {
        name: spec.program.tested[-1]
        for name, spec in agents().items()
        if spec.program.tested
        if not any(f"`{name}`" in row[1] and re.search(rf"\b{re.escape(spec.program.tested[-1])}\b", row[2]) for row in rows)
    }
    assert stale == {}
