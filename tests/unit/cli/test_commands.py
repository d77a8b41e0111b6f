"""The commands that people and programs call often: what they do not load, and what the help shows."""

from __future__ import annotations

import ast
import inspect
import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shim.cli import team_commands
from shim.cli.commands import COMPLETE_VARIABLE, cli

WAIT_S = 20
QUICK_S, RUNS = 0.25, 8
YARD, YARDS = "import typer, pydantic", 3
"""Work that each of them does, and how often its time a quick command may take where the machine is slow or busy."""
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


QUICK = pytest.mark.parametrize(
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
"""Each with its environment, exit code, and a text that it prints."""


def cpu_s() -> float:
    """Processor time of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(home: Path, program: str, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    homes = {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home), "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, **homes, **environment},
        cwd=home,
    )


@QUICK
def test_a_quick_command_loads_neither_the_server_nor_its_libraries(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], code: int, text: str
) -> None:
    done = run(tmp_path, PROGRAM.format(heavy=HEAVY), arguments, environment)
    assert (done.returncode, done.stderr) == (code, "")
    assert text in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded:"


@QUICK
def test_a_quick_command_takes_a_quarter_of_a_second_of_the_processor(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], code: int, text: str
) -> None:
    """At its best of some runs, since other work on the machine makes all of them dearer."""
    spent: list[float] = []
    yards: list[float] = []
    for _ in range(RUNS):
        before = cpu_s()
        done = run(tmp_path, "from shim.cli import main; main()", arguments, environment)
        spent.append(cpu_s() - before)
        assert (done.returncode, text in done.stdout) == (code, True)
        if min(spent) < QUICK_S:
            return
        before = cpu_s()
        run(tmp_path, YARD, [], {})
        yards.append(cpu_s() - before)
        if min(spent) < YARDS * min(yards):
            return
    raise AssertionError((spent, yards))


@pytest.mark.parametrize("group", ["", "config", "service", "cluster", "pair", "alias"])
def test_the_help_of_a_group_shows_whole_sentences(group: str) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*group.split(), "--help"], prog_name="opencode-shim").output
    assert shown.count("\n  ") > 3
    assert [line for line in shown.splitlines() if line.endswith("...") and not line.startswith("Usage")] == []


def test_the_help_shows_brackets_as_they_are() -> None:
    assert "an agent of [agents.NAME]" in " ".join(CliRunner().invoke(cli, ["record", "--help"]).output.split())


def _job_calls() -> list[ast.Call]:
    tree = ast.parse(Path(team_commands.__file__).read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "ask_server"]


@pytest.mark.parametrize("call", _job_calls(), ids=lambda call: ".".join(map(ast.literal_eval, call.args[2:4])))
def test_a_job_with_a_server_takes_what_its_command_gives_it(call: ast.Call) -> None:
    """It is found by its name, which no type checker sees. In: the settings, the server, the arguments, the output."""
    module, work = map(ast.literal_eval, call.args[2:4])
    job = getattr(import_module(f"shim.cli.{module}"), work)
    assert len(inspect.signature(job).parameters) == 3 + len(call.args[4:])
