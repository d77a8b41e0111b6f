"""The set-up of a directory: what of a configuration is in it, and what clients change of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from shim.host.config.config_reader import Source, merge
from shim.host.config.instruction_files import InstructionFiles
from shim.host.config.opencode_config import OpenCodeConfig, rules_of_values
from shim.host.config.setups import SERVERS_LIMIT, Setups
from shim.host.config.skills import SkillFolders
from shim.lib.errors import LimitReached, McpServerNotFound
from universal.permissions import Rule
from universal.registry import agents
from universal.setup import NO_AGENT, McpServer

NEAR = {"type": "local", "command": ["near", "-x"], "environment": {"A": "b"}, "timeout": 7}
FAR = {"type": "remote", "url": "https://far.invalid", "headers": {"h": "v"}}


def setups(mine: dict[str, Any], projects: dict[str, Any] | None = None) -> Setups:
    sources = (Source("mine", "personal", mine), Source("project", "project", projects or {}))
    config = OpenCodeConfig(merge(sources), sources=sources)
    return Setups(lambda _: config)


def names(made: Setups, *, with_project: bool = True) -> list[str]:
    return [server.name for server in made.now("/p", with_project=with_project).servers]


def test_servers_are_local_or_remote_and_those_that_are_off_are_left_out() -> None:
    made = setups({"mcp": {"near": NEAR, "far": FAR, "off": {**NEAR, "enabled": False}}, "experimental": {"mcp_timeout": 9}})
    near = McpServer("near", command=("near", "-x"), environment={"A": "b"}, timeout_ms=7)
    far = McpServer("far", url="https://far.invalid", headers={"h": "v"}, timeout_ms=9)
    assert made.now("/p", with_project=True).servers == (near, far)
    assert made.switches("/p", with_project=True) == {"near": True, "far": True, "off": False}


def test_a_projects_servers_and_switches_count_only_with_the_project() -> None:
    made = setups({"mcp": {"near": NEAR}}, {"mcp": {"theirs": FAR, "near": {"enabled": False}}})
    assert names(made) == ["theirs"]
    assert names(made, with_project=False) == ["near"]
    assert made.switches("/p", with_project=False) == {"near": True, "theirs": False}


def test_a_server_of_the_project_is_known_as_such() -> None:
    made = setups({"mcp": {"near": NEAR}}, {"mcp": {"theirs": FAR, "near": FAR}})
    assert [name for name in ("near", "theirs", "nobodys") if made.is_of_project("/p", name)] == ["theirs"]


def test_a_switch_without_a_server_starts_nothing() -> None:
    made = setups({"mcp": {"elsewhere": {"enabled": True}}})
    assert (names(made), made.switches("/p", with_project=True)) == ([], {})


def test_clients_add_and_switch_servers_of_one_directory() -> None:
    made = setups({"mcp": {"near": NEAR}})
    made.add("/p", "new", FAR)
    made.switch("/p", "near", on=False)
    assert names(made) == ["new"]
    assert [server.name for server in made.now("/q", with_project=True).servers] == ["near"]
    made.switch("/p", "near", on=True)
    made.add("/p", "new", {**FAR, "enabled": False})
    assert names(made) == ["near"]


def test_an_unknown_server_cannot_be_switched() -> None:
    with pytest.raises(McpServerNotFound):
        setups({}).switch("/p", "near", on=True)


def test_clients_add_a_bounded_number_of_servers() -> None:
    made = setups({})
    for number in range(SERVERS_LIMIT):
        made.add("/p", f"s{number}", NEAR)
    made.add("/p", "s0", FAR)
    with pytest.raises(LimitReached):
        made.add("/p", "one more", NEAR)


def test_secrets_of_a_server_are_not_in_its_repr() -> None:
    shown = repr(setups({"mcp": {"near": NEAR, "far": FAR}}).now("/p", with_project=True))
    assert "'b'" not in shown
    assert "'v'" not in shown


def test_a_set_up_is_made_once_for_each_configuration() -> None:
    made = setups({"mcp": {"near": NEAR}})
    before = made.now("/p", with_project=True)
    assert made.now("/p", with_project=True) is before
    made.switch("/p", "near", on=False)
    assert made.now("/p", with_project=True).servers == ()


def test_an_agent_has_its_own_text_and_a_projects_one_only_with_the_project() -> None:
    made = setups({"agent": {"scribe": {"prompt": "MINE", "steps": 3}}}, {"agent": {"scribe": {"prompt": "THEIRS"}}})
    assert "THEIRS" in made.now("/p", "scribe", with_project=True).text
    text = made.now("/p", "scribe", with_project=False).text
    assert ("MINE" in text, "at most 3 steps" in text, "THEIRS" in text) == (True, True, False)
    assert made.now("/p", "build", with_project=True).text == made.now("/p", "plan", with_project=True).text == NO_AGENT


def test_subagents_are_those_that_are_not_primary_and_not_chosen() -> None:
    rows = {"one": {"mode": "primary"}, "two": {"mode": "subagent"}, "three": {}, "off": {"disable": True}, "general": {}}
    made = setups({"agent": rows, "mode": {"old": {"prompt": "p"}}})
    assert [agent.name for agent in made.now("/p", with_project=True).subagents] == ["two", "three"]
    assert [agent.name for agent in made.now("/p", "three", with_project=True).subagents] == ["two"]
    assert list(OpenCodeConfig({"agent": {"one": {}, "two": {"mode": "subagent"}, "build": {}}}).primary_agents) == ["one"]


def test_an_agent_has_its_own_rules_and_not_those_of_build() -> None:
    rows = {
        "build": {"permission": {"edit": "deny"}},
        "scribe": {"permission": {"bash": "allow"}},
        "bypass": {"color": "#000000"},
    }
    values = {"permission": {"webfetch": "ask"}, "agent": rows}
    assert rules_of_values(values, "scribe") == (Rule("webfetch", "*", "ask"), Rule("bash", "*", "allow"))
    assert Rule("edit", "*", "deny") in rules_of_values(values, "bypass")
    assert Rule("edit", "*", "deny") in rules_of_values(values, "unknown")


@pytest.mark.parametrize(
    ("agent", "mode", "rules", "told", "withheld"),
    [
        (None, "", {}, ["agents", "claude", "mine", "own", "theirs"], []),
        ("claude", "", {}, ["agents", "mine", "own"], []),
        ("codex", "", {}, ["claude", "own", "theirs"], []),
        ("pi", "", {}, ["claude", "own", "theirs"], []),
        ("codex", "plan", {}, ["claude", "theirs"], []),
        ("codex", "", {"agents": "deny", "theirs": "ask"}, ["claude", "own"], ["agents"]),
        ("codex", "", {"*": "ask", "own": "allow"}, ["own"], ["agents", "mine"]),
        ("pi", "", {"agents": "deny"}, ["claude", "mine", "own", "theirs"], ["agents"]),  # it can hide only all of its own
        ("claude", "", {"own": "deny", "claude": "deny"}, ["agents", "mine"], ["claude"]),  # its tool asks
    ],
)
async def test_each_agent_gets_the_skills_that_it_does_not_find_by_itself(
    agent: str | None, mode: str, rules: dict[str, str], told: list[str], withheld: list[str], tmp_path: Path
) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    for folder in (
        home / ".agents/skills/mine", home / ".config/opencode/skill/own",
        project / ".claude/skills/claude", project / ".claude/skills/theirs", project / ".agents/skills/agents",
    ):  # fmt: skip
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {folder.name}\ndescription: d\n---\n")
    (project / ".git").mkdir()
    values = {"permission": {"skill": rules}, "agent": {"plan": {"permission": {"skill": {"own": "deny"}}}}}
    config = OpenCodeConfig(values, sources=(Source("mine", "personal", values),))
    files = InstructionFiles(home, home, SkillFolders(home, (home / ".config/opencode",)))
    made = Setups(lambda _: config, files)
    await made.refresh(str(project))
    spec = agents()[agent] if agent is not None else None
    setup = made.now(str(project), mode, spec, with_project=True)
    assert sorted(re.findall(r"^- (\w+):", setup.text, re.MULTILINE)) == told
    assert [Path(path).parent.name for path in setup.withheld_skills] == withheld
    alone = made.now(str(project), mode, spec, with_project=False)
    assert not {"agents", "claude", "theirs"} & set(re.findall(r"^- (\w+):", alone.text, re.MULTILINE))
