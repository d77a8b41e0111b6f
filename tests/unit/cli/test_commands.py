"""The commands that people and programs call often: what they do not load, and what the help shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shim.cli.commands import COMPLETE_VARIABLE, cli

WAIT_S = 20
HEAVY = ("aiohttp", "asyncio", "rich", "structlog", "shim.faces", "shim.http", "shim.main", "shim.processes", "shim.sessions")
"""Modules that a quick command does not load. Together they cost four times what the rest of the command does."""
PROGRAM = """
import sys
from shim.cli import main
try:
    main()
finally:
    print("loaded:", *(name for name in {heavy} if name in sys.modules))
"""
TAB = {COMPLETE_VARIABLE: "complete_bash", "COMP_WORDS": "opencode-shim ser", "COMP_CWORD": "1"}


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "text"),
    [
        (["--help"], {}, 0, "Usage: opencode-shim"),
        (["--version"], {}, 0, "0."),
        (["serve", "--help"], {}, 0, "--port N"),
        (["completion", "bash"], {}, 0, COMPLETE_VARIABLE),
        ([], TAB, 0, "serve\nservice\n"),
        (["health"], {}, 1, "No server answers."),
    ],
    ids=["help", "version", "help of a command", "completion", "tab", "health"],
)
def test_a_quick_command_loads_neither_the_server_nor_its_libraries(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], code: int, text: str
) -> None:
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(heavy=HEAVY), *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, **home, **environment},
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert text in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("group", ["", "config", "service", "cluster", "pair", "alias"])
def test_the_help_of_a_group_shows_whole_sentences(group: str) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*group.split(), "--help"], prog_name="opencode-shim").output
    assert shown.count("\n  ") > 3
    assert [line for line in shown.splitlines() if line.endswith("...") and not line.startswith("Usage")] == []


def test_the_help_shows_brackets_as_they_are() -> None:
    assert "an agent of [agents.NAME]" in " ".join(CliRunner().invoke(cli, ["record", "--help"]).output.split())
