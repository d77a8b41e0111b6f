"""How Claude Code is started, and what a prompt changes of its settings."""

from __future__ import annotations

import pytest

from universal.agents.claude.codec import ClaudeCodec
from universal.agents.claude.settings import Settings
from universal.codec import LaunchOptions, Prompt, WriteLine
from universal.permissions import Rule

DENIED = (Rule("bash", "*", "deny"),)


@pytest.mark.parametrize(
    ("rules", "trusted", "is_off"),
    [
        ((), True, False),
        ((Rule("bash", "*", "allow"),), True, False),
        ((Rule("bash", "rm *", "deny"),), True, True),
        ((Rule("*", "*", "ask"),), True, True),
        ((), False, True),
    ],
)
@pytest.mark.parametrize(
    ("version", "is_asked"),
    [(None, False), ("2.1.331 (Claude Code)", False), ("2.1.332 (Claude Code)", True), ("3.0", True), ("later", False)],
)
def test_shell_lines_of_skills_are_off_where_a_rule_could_forbid_them_and_no_hook_asks(
    rules: tuple[Rule, ...], trusted: bool, is_off: bool, version: str | None, is_asked: bool
) -> None:
    options = LaunchOptions("claude", "/p", rules=rules, project_settings=trusted, version=version)
    argv = Settings().launch(options).argv
    assert any("disableSkillShellExecution" in word for word in argv) is (is_off and not is_asked)


def test_a_rule_that_comes_later_leaves_shell_lines_to_the_hook_that_asks() -> None:
    settings = Settings()
    settings.launch(LaunchOptions("claude", "/p", version="2.1.332"))
    assert list(settings.changes_for(Prompt("itm_1", "x", rules=DENIED))) == []


def test_shell_lines_of_skills_are_switched_off_by_a_rule_that_comes_later() -> None:
    settings = Settings()
    settings.launch(LaunchOptions("claude", "/p"))
    denied = Prompt("itm_1", "x", rules=(Rule("bash", "*", "deny"),))
    lines = [output.data for output in settings.changes_for(denied) if isinstance(output, WriteLine)]
    assert [b"disableSkillShellExecution" in line for line in lines] == [True]
    assert list(settings.changes_for(denied)) == []


@pytest.mark.parametrize(("text", "rules", "count"), [("/peek", DENIED, 1), ("/peek", (), 0), ("peek", DENIED, 0)])
def test_a_notice_says_once_that_shell_lines_are_off(text: str, rules: tuple[Rule, ...], count: int) -> None:
    codec = ClaudeCodec(lambda kind: f"{kind}_1")
    codec.launch(LaunchOptions("claude", "/p", rules=rules))
    outputs = [output for key in ("a", "b") for output in codec.send(Prompt(key, text, rules=rules))]
    assert repr(outputs).count("Shell lines") == count


def test_claude_runs_lines_in_bash_and_in_the_project() -> None:
    environment = Settings().launch(LaunchOptions("claude", "/p")).env
    assert (environment["CLAUDE_CODE_SHELL"], environment["CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR"]) == ("/bin/bash", "1")
