"""What an agent takes of a set-up, and what is said of the rest."""

from __future__ import annotations

import subprocess

import pytest

from universal.setup import NO_SETUP, TAKES_NOTHING, DirectorySetup, McpServer, SetupUse, setup_notice

SERVERS = DirectorySetup((McpServer("near", command=("near",)),))


def test_gaps_are_the_parts_that_are_there_and_not_taken() -> None:
    assert TAKES_NOTHING.gaps(SERVERS) == ("mcp",)
    assert TAKES_NOTHING.gaps(NO_SETUP) == ()
    assert SetupUse(frozenset({"mcp"})).gaps(SERVERS) == ()
    assert SetupUse(reads_own=True).gaps(SERVERS) == ()


def test_a_notice_names_agent_and_keys() -> None:
    assert setup_notice("Pi", ("MCP servers (`mcp`)", "x")).startswith("Pi does not")
    assert "MCP servers (`mcp`), x." in setup_notice("Pi", ("MCP servers (`mcp`)", "x"))


def test_a_server_starts_in_its_folder() -> None:
    argv = McpServer("near", command=("/bin/sh", "-c", 'pwd; echo "$0"', "a b"), cwd="/usr").argv
    assert subprocess.run(argv, capture_output=True, text=True, check=True, timeout=10).stdout == "/usr\na b\n"


@pytest.mark.parametrize(
    ("use", "new", "resumed"),
    [
        (SetupUse(text="start"), True, True),
        (SetupUse(text="new"), True, False),
        (SetupUse(), False, False),
        (SetupUse(reads_own=True), True, True),
    ],
)
def test_instructions_go_with_a_prompt_where_an_agent_takes_no_system_text(use: SetupUse, new: bool, resumed: bool) -> None:
    assert (use.has_text(resumes=False), use.has_text(resumes=True)) == (new, resumed)
