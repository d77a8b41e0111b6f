"""What an agent inherits."""

from __future__ import annotations

import pytest

from shim.processes.child_environment import DENIED, MARK, agent_shell, child_environment


def test_the_persons_environment_passes() -> None:
    person = {
        "PATH": "/bin",
        "HTTPS_PROXY": "http://proxy",
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": "http://model",
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "CLAUDE_CODE_OAUTH_TOKEN": "t",
        "CLAUDE_CONFIG_DIR": "/c",
        "OPENCODE_CONFIG": "/o",
        "GIT_EDITOR": "vi",
    }
    assert child_environment(person, {}) == person


def test_marks_of_outer_sessions_and_our_secrets_do_not() -> None:
    assert child_environment(dict.fromkeys(DENIED, "x") | {"SHIM_PASSWORD": "p", "SHIM_PORT": "1", "A": "b"}, {}) == {"A": "b"}


def test_the_codec_adds_changes_and_removes() -> None:
    env = child_environment(
        {"A": "1", "B": "2", "CLAUDECODE": "1"}, {"A": None, "B": "3", "C": "4", "D": None, "CLAUDE_EFFORT": "low"}
    )
    assert env == {"B": "3", "C": "4", "CLAUDE_EFFORT": "low"}


def test_the_token_is_added_to_those_of_outer_agents() -> None:
    assert child_environment({}, {}, "inner") == {MARK: "inner"}
    assert child_environment({MARK: "outer"}, {}, "inner") == {MARK: "outer,inner"}
    assert child_environment({MARK: "outer"}, {}) == {MARK: "outer"}


def test_the_callers_environment_is_not_changed() -> None:
    person, changes = {"A": "1", "CLAUDECODE": "1"}, {"A": None}
    child_environment(person, changes, "t")
    assert (person, changes) == ({"A": "1", "CLAUDECODE": "1"}, {"A": None})


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/zsh", "sh", "/bin/dash", ""])
def test_an_agent_keeps_a_shell_that_rules_can_read(shell: str) -> None:
    assert agent_shell({"SHELL": shell}) == {}


@pytest.mark.parametrize("shell", ["/usr/bin/fish", "/opt/nu", "/bin/ksh", "/bin/tcsh"])
def test_an_agent_gets_another_shell_than_one_that_no_rule_can_read(shell: str) -> None:
    assert agent_shell({"SHELL": shell})["SHELL"] in ("/bin/bash", "/bin/sh")
