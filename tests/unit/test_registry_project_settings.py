"""Agents that can be started without what a project would run are started so; see docs/trust.md for what was tried."""

from __future__ import annotations

import json
from itertools import count

import pytest

from universal.launch import LaunchOptions, LaunchSpec
from universal.registry import agents

NUMBERS = count()
DIRECTORY = '/home/me/a "quoted".project'


def launch(name: str, *, trusted: bool, version: str | None = None, **environment: str) -> LaunchSpec:
    codec = agents()[name].make(lambda kind: f"{kind}_{next(NUMBERS)}")
    return codec.launch(
        LaunchOptions(binary="/bin/x", directory=DIRECTORY, project_settings=trusted, version=version, environment=environment)
    )


def test_claude_reads_the_persons_settings_alone_and_the_projects_instructions() -> None:
    spec = launch("claude", trusted=False)
    assert "--setting-sources=user" in spec.argv
    assert f"--add-dir={DIRECTORY}" in spec.argv
    assert spec.env["CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD"] == "1"


def test_codex_does_not_trust_the_directory() -> None:
    spec = launch("codex", trusted=False)
    assert spec.argv[1:] == ("-c", 'projects={"/home/me/a \\"quoted\\".project"={trust_level="untrusted"}}', "app-server")


@pytest.mark.parametrize(
    ("version", "trusted", "flag"),
    [
        ("0.87.1", True, "--approve"),
        ("0.87.1", False, "--no-approve"),
        ("0.73.1", True, None),
        ("0.73.1", False, "--no-extensions"),
        (None, False, "--no-extensions"),
    ],
)
def test_pi_gets_the_flags_that_its_version_knows(version: str | None, trusted: bool, flag: str | None) -> None:
    argv = launch("pi", trusted=trusted, version=version).argv
    assert {arg for arg in argv if "approve" in arg or "extensions" in arg} == ({flag} if flag else set())


def test_opencode_leaves_out_the_projects_config_and_reads_its_instructions() -> None:
    env = launch("opencode", trusted=False).env
    assert env["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"
    assert "AGENTS.md" in (env["OPENCODE_CONFIG_CONTENT"] or "")


def test_opencode_keeps_the_configuration_that_the_person_has_in_a_variable() -> None:
    own = {"permission": {"bash": "deny"}, "instructions": ["{file:~/mine.md}"]}
    env = launch("opencode", trusted=False, OPENCODE_CONFIG_CONTENT=json.dumps(own)).env
    instructions = ["{file:~/mine.md}", f"{DIRECTORY}/AGENTS.md"]
    assert json.loads(env["OPENCODE_CONFIG_CONTENT"] or "") == {**own, "instructions": instructions}


@pytest.mark.parametrize("content", ['{"permission": {"bash": "deny"}} // mine', "[]", '{"instructions": "x"}', "{"])
def test_opencode_gets_the_persons_variable_unchanged_if_it_cannot_be_added_to(content: str) -> None:
    assert "OPENCODE_CONFIG_CONTENT" not in launch("opencode", trusted=False, OPENCODE_CONFIG_CONTENT=content).env


@pytest.mark.parametrize("name", ["claude", "codex", "opencode"])
def test_nothing_is_left_out_of_a_trusted_project(name: str) -> None:
    spec = launch(name, trusted=True)
    said = " ".join(spec.argv) + " ".join(spec.env)
    assert "setting-sources" not in said
    assert "trust_level" not in said
    assert "PROJECT_CONFIG" not in said
