"""Skills of a project lie in the project."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from shim.host.config import skills
from shim.host.config.skills import Skill, SkillFolders


@pytest.mark.parametrize("link", [".claude", ".claude/skills", ".claude/skills/x", ".claude/skills/x/SKILL.md"])
def test_links_of_a_project_do_not_lead_out(tmp_path: Path, link: str) -> None:
    for place in (tmp_path / "else" / ".claude/skills/x", tmp_path / "home" / ".claude/skills"):
        place.mkdir(parents=True)
    (tmp_path / "else" / ".claude/skills/x/SKILL.md").write_text("secret")
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / link).parent.mkdir(parents=True, exist_ok=True)
    (project / link).symlink_to(tmp_path / "else" / link)
    assert find(project, tmp_path / "home") == []


def test_links_of_the_person_may_lead_anywhere(tmp_path: Path) -> None:
    (tmp_path / "dotfiles" / "x").mkdir(parents=True)
    (tmp_path / "dotfiles" / "x" / "SKILL.md").write_text("mine")
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    (tmp_path / "home" / ".claude" / "skills").symlink_to(tmp_path / "dotfiles")
    assert [skill.content for skill in find(tmp_path, tmp_path / "home")] == ["mine"]


def put(folder: Path, name: str, head: str = "description: d") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {Path(name).name}\n{head}\n---\nText.\n")


def find(
    project: Path, home: Path, mine: Sequence[str] = (), projects: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> list[Skill]:
    folders = SkillFolders(home, (home / ".config" / "opencode", home / ".opencode"), environ or {})
    return folders.find(str(project), {"skills": {"paths": list(mine)}}, {"skills": {"paths": list(projects)}})


def test_each_skill_is_found_with_its_place(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    for number, folder in enumerate(skills.IN_PROJECT):
        put(project / folder, f"p{number}")
    personal = (".claude/skills", ".config/opencode/skill", ".config/opencode/skills", ".opencode/skills", ".agents/skills")
    for number, folder in enumerate(personal):
        put(home / folder, f"h{number}")
    places = [(skill.name, skill.place, skill.is_of_project) for skill in find(project, home)]
    mine = [("h0", "~/.claude/skills"), ("h1", ""), ("h2", ""), ("h3", ""), ("h4", "~/.agents/skills")]
    theirs = [("p0", ".claude/skills"), ("p1", ""), ("p2", ""), ("p3", ".agents/skills")]
    assert places == [*((*row, False) for row in mine), *((*row, True) for row in theirs)]


def test_a_collection_of_skills_is_a_folder_of_them(tmp_path: Path) -> None:
    put(tmp_path / ".opencode" / "skills", "pack/deep/one")
    put(tmp_path / ".opencode" / "skills", "pack/deep/one/inner")
    put(tmp_path / ".opencode" / "skills", "a/b/c/d/e")
    assert [skill.name for skill in find(tmp_path, tmp_path / "home")] == ["one"]


def test_paths_of_the_configuration_are_looked_into_and_a_projects_lie_in_it(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    (project / ".git").mkdir(parents=True)
    for folder, name in ((project / "own", "near"), (home / "mine", "mine"), (tmp_path / "else", "far")):
        put(folder, name)
    far = str(tmp_path / "else")
    assert [(skill.name, skill.is_of_project) for skill in find(project, home, ["~/mine", far], ["own"])] == [
        ("far", False), ("mine", False), ("near", True),
    ]  # fmt: skip
    assert find(project, home, [], [far, "~/mine", "../else"]) == []


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        ("OPENCODE_DISABLE_CLAUDE_CODE", ["agents", "own"]),
        ("OPENCODE_DISABLE_CLAUDE_CODE_SKILLS", ["agents", "own"]),
        ("OPENCODE_DISABLE_EXTERNAL_SKILLS", ["own"]),
        ("OPENCODE_DISABLE_AUTOUPDATE", ["agents", "claude", "own"]),
    ],
)
def test_variables_of_opencode_take_folders_away(tmp_path: Path, variable: str, names: list[str]) -> None:
    for folder, name in ((".claude/skills", "claude"), (".agents/skills", "agents"), (".opencode/skills", "own")):
        put(tmp_path / folder, name)
    assert [skill.name for skill in find(tmp_path, tmp_path / "home", environ={variable: "1"})] == names


def test_an_agent_gets_each_skill_in_a_line_and_the_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Skill(name, name, "for\n  this and that", f"/{name}/SKILL.md", "") for name in "abc"]
    assert skills.lines([]) == ""
    assert skills.lines(rows[:1]) == f"{skills.HEADING}\n- a: for this and that (file: /a/SKILL.md)"
    monkeypatch.setattr(skills, "LISTED_LIMIT", 2)
    monkeypatch.setattr(skills, "DESCRIPTION_LIMIT", 8)
    assert skills.lines(rows).splitlines()[1:] == ["- a: for this (file: /a/SKILL.md)", "- b: for this (file: /b/SKILL.md)"]


def test_skills_of_the_persons_urls_are_copied_and_stay_while_the_page_is_gone(tmp_path: Path) -> None:
    """Again only in another version; a name or file that leads elsewhere is left out, and of a project no URL is asked."""
    asked: list[str] = []
    names = {"good": ["SKILL.md", "deep/run.sh"], "../up": ["SKILL.md"], "out": ["SKILL.md", "../../x"], "bare": ["a.md"]}
    index = {"skills": [{"name": name, "version": "1", "files": files} for name, files in names.items()]}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(index).encode() if self.path.endswith(".json") else b"---\ndescription: d\n---\nText.\n")

    folders = SkillFolders(tmp_path / "home", copies=tmp_path / "data")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        values = {"skills": {"urls": [f"http://127.0.0.1:{server.server_port}/all", "file:///etc"]}}
        assert folders.find(str(tmp_path), {}, values) == []
        assert asked == []
        found: list[Skill] = []
        for _ in range(2):
            folders.due.clear()
            found = folders.find(str(tmp_path), values, {})
        server.shutdown()
    (skill,) = found
    assert (skill.id, skill.content, skill.is_of_project) == ("good", "Text.", False)
    assert Path(skill.path).with_name("deep").joinpath("run.sh").is_file()
    assert asked == ["/all/index.json", "/all/good/SKILL.md", "/all/good/deep/run.sh", "/all/index.json"]
    assert [row.id for row in folders.find(str(tmp_path), values, {})] == ["good"], "the page is gone"
