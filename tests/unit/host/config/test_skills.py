"""Skills of a project lie in the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from shim.host.config import skills


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
