"""The digest of what an agent reads when it starts: it changes with each of these files, and with nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shim.agents import start_state


def digest(project: Path) -> str | None:
    home = project.parent
    return start_state.digest(
        [str(home), str(project)], ["RULES.md", ".agent"], [home / "own", home / "folder"], {home / "state.json": ("servers",)}
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".agent").mkdir(parents=True)
    (tmp_path / "folder").mkdir()
    return tmp_path / "project"


@pytest.mark.parametrize("name", ["RULES.md", "../RULES.md", ".agent/a/b.json", "../own", "../folder/x"])
def test_a_file_that_comes_changes_or_goes_changes_the_digest(project: Path, name: str) -> None:
    before = digest(project)
    file = project / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("one")
    came = digest(project)
    file.write_text("other")
    changed = digest(project)
    file.unlink()
    assert len({before, came, changed, None}) == 4
    assert digest(project) != changed


@pytest.mark.parametrize("name", ["other.md", ".agent/node_modules/x.js", ".agent/package.json"])
def test_other_files_do_not_change_it(project: Path, name: str) -> None:
    before = digest(project)
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("one")
    assert digest(project) == before


def test_of_a_file_that_is_written_all_the_time_only_some_values_count(project: Path) -> None:
    state = project.parent / "state.json"
    values = {"starts": 1, "servers": {"a": 1}, "projects": {"/p": {"servers": {"b": 1}, "cost": 1}}}
    state.write_text(json.dumps(values))
    before = digest(project)
    values["starts"] = 2
    values["projects"] = {"/p": {"servers": {"b": 1}, "cost": 2}}
    state.write_text(json.dumps(values))
    assert digest(project) == before
    values["projects"] = {"/p": {"servers": {"b": 2}, "cost": 2}}
    state.write_text(json.dumps(values))
    assert digest(project) != before


def test_a_link_is_followed(project: Path) -> None:
    target = project.parent / "elsewhere"
    target.write_text("one")
    (project / "RULES.md").symlink_to(target)
    before = digest(project)
    target.write_text("other")
    assert digest(project) != before


def test_unreadable_or_too_many_files_have_no_digest(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.parent / "state.json").write_text("no JSON")
    assert digest(project) is None
    (project.parent / "state.json").unlink()
    (project / ".agent" / "loop").symlink_to(project / ".agent")
    assert digest(project) is None
    (project / ".agent" / "loop").unlink()
    assert digest(project) is not None
    monkeypatch.setattr(start_state, "FILES_LIMIT", 2)
    for number in range(5):
        (project / ".agent" / str(number)).write_text("")
    assert digest(project) is None
