"""Codex's commands: the line that rules read, without the shell that runs it."""

from __future__ import annotations

import shlex

import pytest

from universal.agents.codex.tools import bare_command
from universal.shell import parse_shell_line


@pytest.mark.parametrize("shell", ["/bin/bash -lc", "/bin/sh -c", "/usr/bin/zsh -lc", "dash -c"])
def test_a_shell_that_rules_can_read_is_left_out(shell: str) -> None:
    assert bare_command({"command": f"{shell} {shlex.quote('ls -l && pwd')}"}) == "ls -l && pwd"


@pytest.mark.parametrize(
    "shell", ["/usr/bin/fish -c", "nu -c", "ksh -c", "xonsh -c", "pwsh -NoProfile -Command", "powershell -c"]
)
def test_a_line_of_another_shell_is_never_understood(shell: str) -> None:
    item = {"command": f"{shell} {shlex.quote('ls')}", "commandActions": [{"type": "read", "command": "ls"}]}
    command = bare_command(item)
    assert command == item["command"]
    assert not parse_shell_line(command).understood


def test_a_command_that_codex_has_parsed_is_its_action() -> None:
    assert bare_command({"command": "'unclosed", "commandActions": [{"command": "ls"}]}) == "ls"
