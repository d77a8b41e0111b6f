"""Skills of a project lie in the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from shim.host.config import skills
from universal.permissions import Rule


@pytest.mark.parametrize("link", [".claude", ".claude/skills", ".claude/skills/x", ".claude/skills/x/SKILL.md"])
def test_links_of_a_project_do_not_lead_out(tmp_path: Path, link: str) -> None:
    for place in (tmp_path / "else" / ".claude/skills/x", tmp_path / "home" / ".claude/skills"):
        place.mkdir(parents=True)
    (tmp_path / "else" / ".claude/skills/x/SKILL.md").write_text("secret")
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / link).parent.mkdir(parents=True, exist_ok=True)
    (project / link).symlink_to(tmp_path / "else" / link)
    assert skills.find(str(project), tmp_path / "home") == []


def test_links_of_the_person_may_lead_anywhere(tmp_path: Path) -> None:
    (tmp_path / "dotfiles" / "x").mkdir(parents=True)
    (tmp_path / "dotfiles" / "x" / "SKILL.md").write_text("mine")
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    (tmp_path / "home" / ".claude" / "skills").symlink_to(tmp_path / "dotfiles")
    assert [skill.content for skill in skills.find(str(tmp_path), tmp_path / "home")] == ["mine"]


def put(folder: Path, name: str, head: str = "description: d") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\n{head}\n---\nText.\n")


def lines(place: Path, *rules: Rule, of_project: bool = True) -> list[str]:
    """The lines that an agent is told, without their heading."""
    return skills.list_text(str(place / "project"), place / "home", rules, of_project=of_project).splitlines()[1:]


def test_an_agent_gets_the_skills_that_only_opencode_reads(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for number, folder in enumerate(skills.IN_PROJECT):
        put(project / folder, f"p{number}")
    put(tmp_path / "home" / ".config/opencode/skills", "mine", "description: |\n  for\n  this")
    file = project / ".opencode" / "{}" / "SKILL.md"
    assert lines(tmp_path) == [
        f"- {name}: d (file: {str(file).format(f'{folder}/{name}')})" for name, folder in (("p1", "skill"), ("p2", "skills"))
    ]
    [mine] = lines(tmp_path, of_project=False)
    assert mine == f"- mine: for this (file: {tmp_path}/home/.config/opencode/skills/mine/SKILL.md)"


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        ([Rule("skill", "*", "allow")], ["free", "held"]),
        ([Rule("skill", "held", "deny")], ["free"]),
        ([Rule("skill", "h*", "ask")], ["free"]),
        ([Rule("*", "*", "ask"), Rule("skill", "free", "allow")], ["free"]),
        ([Rule("skill", "folder", "deny")], ["free", "held"]),
    ],
)
def test_a_skill_that_rules_deny_or_ask_about_is_left_out(tmp_path: Path, rules: list[Rule], names: list[str]) -> None:
    for name in ("free", "held"):
        put(tmp_path / "project" / ".opencode" / "skills", name)
    assert [line.split(":")[0] for line in lines(tmp_path, *rules)] == [f"- {name}" for name in names]


def test_the_list_of_skills_for_an_agent_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skills, "LISTED_LIMIT", 2)
    monkeypatch.setattr(skills, "DESCRIPTION_LIMIT", 5)
    for name in "abc":
        put(tmp_path / "project" / ".opencode" / "skills", name, "description: 0123456789")
    assert [line.split(" (")[0] for line in lines(tmp_path)] == ["- a: 01234", "- b: 01234"]
