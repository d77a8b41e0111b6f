"""Commands in files: what each agent's table finds is what the real program listed in the same folders."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shim.agents import command_files
from shim.agents.command_files import CommandFiles
from universal.agent_spec import AgentSpec
from universal.agents.acp.spec import ACP_AGENTS
from universal.agents.claude.spec import CLAUDE
from universal.agents.codex.spec import CODEX
from universal.agents.opencode.spec import OPENCODE
from universal.agents.opencode2.spec import OPENCODE2
from universal.agents.pi.spec import PI
from universal.slash_commands import SlashCommand

ACP = {spec.name: spec for spec in ACP_AGENTS}
SKILL = "---\nname: {name}\ndescription: skill {name}\n---\nbody\n"
FILES = {
    "home/.claude/commands/personal.md": "home",
    "home/.claude/skills/mine/SKILL.md": SKILL.format(name="mine"),
    "project/.claude/commands/sub/dir/deep.md": '---\ndescription: Deep one\nargument-hint: "[file]"\n---\nDo $ARGUMENTS',
    "project/.claude/commands/plain.md": "\n# Just a body line\nmore",
    "project/.claude/commands/empty.md": "",
    "project/.claude/commands/UPPER.MD": "no command",
    "project/.claude/commands/two words.md": "cannot be typed",
    "project/.claude/commands/x/SKILL.md": "---\ndescription: a skill among commands\n---\n",
    "project/.claude/skills/folder/SKILL.md": SKILL.format(name="other-name"),
    "project/.claude/skills/quiet/SKILL.md": "---\nuser-invocable: false\nname: quiet\ndescription: for the model\n---\n",
    "project/.claude/skills/group/inner/SKILL.md": "---\ndescription: too deep for Claude, no name for OpenCode\n---\n",
    "project/.agents/skills/shared/SKILL.md": SKILL.format(name="shared"),
    "project/.agents/skills/group/nested/SKILL.md": SKILL.format(name="nested"),
    "project/.agents/skills/bare/SKILL.md": "no description",
    "project/.codex/skills/cx/SKILL.md": SKILL.format(name="cx"),
    "project/.codex/prompts/never.md": "Codex's app server has no prompts",
    "project/.pi/prompts/pip.md": "---\ndescription: pi prompt\n---\nbody",
    "project/.pi/prompts/sub/never.md": "below",
    "project/.pi/skills/pisk/SKILL.md": SKILL.format(name="pisk"),
    "project/.pi/skills/pisk/part/SKILL.md": SKILL.format(name="part"),
    "project/.opencode/skills/oc/SKILL.md": SKILL.format(name="oc"),
    "project/a/b/.claude/commands/inner.md": "b",
}
CLAUDES = ["other-name", "empty", "plain", "x", "sub:dir:deep", "mine", "personal"]
OPENCODES = ["oc", "other-name", "quiet", "shared", "nested", "mine"]
LISTED: list[tuple[AgentSpec, list[str]]] = [
    (CLAUDE, CLAUDES),
    (ACP["claude-agent-acp"], CLAUDES),
    (CODEX, ["shared", "nested", "cx"]),
    (PI, ["pip", "skill:pisk", "skill:shared", "skill:nested"]),
    (OPENCODE, OPENCODES),
    (OPENCODE2, OPENCODES),
    (ACP["opencode-acp"], OPENCODES),
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    for name, source in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path / "project"


def files_of(project: Path) -> CommandFiles:
    return CommandFiles({"HOME": str(project.parent / "home")})


def find(project: Path, spec: AgentSpec, below: str = "", *, with_project: bool = True) -> dict[str, SlashCommand]:
    found = files_of(project).find(str(project / below), spec.abilities.command_sources, with_project=with_project)
    return {command.name: command for command in found}


@pytest.mark.parametrize(("spec", "names"), LISTED, ids=[spec.name for spec, _ in LISTED])
def test_an_agents_table_finds_what_its_program_lists(project: Path, spec: AgentSpec, names: list[str]) -> None:
    assert sorted(find(project, spec)) == sorted(names)


@pytest.mark.parametrize("spec", [spec for spec, _ in LISTED], ids=[spec.name for spec, _ in LISTED])
def test_nothing_of_a_project_is_found_without_it(project: Path, spec: AgentSpec) -> None:
    assert set(find(project, spec, with_project=False)) <= {"mine", "personal"}


def test_a_command_has_the_words_of_its_head_or_of_its_first_line(project: Path) -> None:
    found = find(project, CLAUDE)
    assert found["sub:dir:deep"] == SlashCommand("sub:dir:deep", "Deep one", "[file]", is_file=True)
    assert found["plain"].description == "Just a body line"
    assert found["empty"].description == "Custom command"


def test_folders_above_count_where_the_agent_looks_there(project: Path) -> None:
    assert {"inner", "plain"} <= set(find(project, CLAUDE, "a/b"))
    assert sorted(find(project, PI, "a/b")) == ["skill:nested", "skill:shared"]


def test_codex_takes_a_skill_after_its_own_mark(project: Path) -> None:
    assert find(project, CODEX)["cx"].mark == "$"


def test_a_change_is_seen_at_the_next_look(project: Path) -> None:
    files, path = files_of(project), project / ".claude/commands/plain.md"

    def description() -> str | None:
        found = files.find(str(project), CLAUDE.abilities.command_sources, with_project=True)
        return next((command.description for command in found if command.name == "plain"), None)

    assert description() == "Just a body line"
    path.write_text("Another line")
    assert description() == "Another line"
    path.unlink()
    assert description() is None


def test_a_link_out_of_the_repository_is_not_followed(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("a secret")
    (project / ".claude/commands/file.md").symlink_to(outside / "secret.md")
    (project / ".claude/commands/folder").symlink_to(outside)
    (project / ".claude/commands/again").symlink_to(project / ".claude/commands")
    os.mkfifo(project / ".claude/commands/pipe.md")
    assert not {"file", "folder:secret", "pipe"} & set(find(project, CLAUDE))


def test_a_look_is_bounded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_files, "FILES_LIMIT", 3)
    monkeypatch.setattr(command_files, "FILE_LIMIT_BYTES", 10)
    found = find(project, CLAUDE)
    assert "sub:dir:deep" not in found, "too large"
    assert len([name for name in found if name not in ("mine", "personal")]) <= 3


def test_plugins_that_the_project_switches_on_bring_their_commands(project: Path) -> None:
    plugin = project.parent / "home/.claude/plugins/cache/market/plug/1.0.0"
    for name, source in {"commands/sub/pd.md": "y", "skills/ps/SKILL.md": SKILL.format(name="ps")}.items():
        (plugin / name).parent.mkdir(parents=True)
        (plugin / name).write_text(source)
    rows = {"plug@market": [{"scope": "project", "installPath": str(plugin)}], "off@market": [{"installPath": str(plugin)}]}
    (project.parent / "home/.claude/plugins/installed_plugins.json").write_text(json.dumps({"version": 2, "plugins": rows}))
    (project / ".claude/settings.json").write_text(json.dumps({"enabledPlugins": {"plug@market": True, "off@market": False}}))
    assert {name for name in find(project, CLAUDE) if ":p" in name} == {"plug:sub:pd", "plug:ps"}
    assert not any(":p" in name for name in find(project, CLAUDE, with_project=False))


def test_a_damaged_list_of_plugins_brings_none(project: Path) -> None:
    (project / ".claude/settings.json").write_text('{"enabledPlugins": {"plug@market": true}}')
    (project.parent / "home/.claude/plugins").mkdir()
    (project.parent / "home/.claude/plugins/installed_plugins.json").write_text('{"plugins": {"plug@market": 3')
    assert sorted(find(project, CLAUDE)) == sorted(CLAUDES)
