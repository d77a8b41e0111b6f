"""Command lines: whatever a client, an agent or an imported file names, it is a value there and never an option."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shim.agents.directory import NAMES, refuse_options
from shim.host.files import search
from shim.host.git import vcs
from shim.lib.clock import ManualClock
from shim.lib.errors import AgentStartFailed, InvalidRequest
from shim.lib.ids import Ids
from tests.http.conftest import git, repository
from tests.unit.test_layout import OURS, nodes_of, read
from universal.launch import LaunchOptions
from universal.registry import agents

EVIL = ("--dangerously-skip-permissions", "-e", "--upload-pack=touch evil", "--", "-")
STARTS = ("child_process.start", "child_process.connect", "child_process.foreground", "child_process.ask")
MAY_START = {
    "shim/processes/agent_pipes.py": "agents: argv from the codec, which `refuse_options` looked at",
    "shim/processes/hidden_opencode.py": "constants and the located binary",
    "shim/host/terminals/shell_command.py": "the person's own command, as one argument of `-c`",
    "shim/host/terminals/terminal_manager.py": "the person's own terminal",
    "shim/processes/sandbox.py": "bwrap, Landlock, sandbox-exec: constants, to see whether it works",
    "shim/processes/command.py": "git, rg and formatters; callers are checked below, and a formatter gets an absolute path",
    "shim/host/files/formatters.py": "the help of formatters: constants",
    "shim/host/plugins/plugin_hosts.py": "the host of plugins: the located runtime and a file of ours; its files come by stdin",
    "shim/cluster/nats/nats_process.py": "the bundled nats-server: constants, and paths and a port of ours",
    "shim/agents/acp_registry.py": "npx and uvx: constants, and a package of a registry that does not begin with a dash",
    "shim/cli/service.py": "the service manager: constants, and a path of ours",
    "shim/cli/clients.py": "OpenCode's TUI and the browser, for the person at this terminal",
}
"""Every place that starts a program, and why nobody else can put an option into its command line."""


def process_starts(name: str) -> Iterator[ast.Call]:
    text = read(name)
    for node in nodes_of(text) if "child_process" in text else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in STARTS:
            yield node


def test_every_place_that_starts_a_program_is_known() -> None:
    assert {name for name in OURS if any(process_starts(name))} == set(MAY_START)


def test_no_program_is_started_by_a_shell_of_ours() -> None:
    """`shell=True` and the like would make every character a danger."""
    for name in OURS:
        assert not re.search(r"shell=True|create_subprocess_shell|subprocess_shell|os\.(system|popen)\(", read(name)), name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [*EVIL, "a\0b"])
def test_options_are_refused(name: str, value: str) -> None:
    with pytest.raises(AgentStartFailed, match="looks like an option"):
        refuse_options(LaunchOptions("agent", "/", **{name: value}))


@pytest.mark.parametrize("agent", sorted(agents()))
def test_an_accepted_value_is_one_argument(agent: str) -> None:
    """Blanks, quotes and newlines in a value do not make two arguments of it, nor does it begin one."""
    value = "x y --evil 'z\"\n$(touch evil)"
    options = LaunchOptions("/bin/agent", "/", native_session_id=value, resume=True, model=value, variant=value)
    refuse_options(options)
    argv = agents()[agent].make(Ids(ManualClock()).new).launch(options).argv
    assert argv[0] == "/bin/agent"
    for argument in argv:
        assert "--evil" not in argument or argument == value or re.fullmatch(rf"--[a-z-]+={re.escape(value)}", argument), argv


async def test_a_pattern_is_no_option_of_ripgrep(tmp_path: Path) -> None:
    lines = ["--pre=evil", "--files", "-P", "--pcre2"]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    for line in lines:
        assert [match.line.strip() for match in await search.texts(str(tmp_path), f"^{line}$")] == [line]
        assert {match.line.strip() for match in await search.texts(str(tmp_path), line)} >= {line}


async def test_searching_takes_no_time_that_the_pattern_chooses(tmp_path: Path) -> None:
    """ripgrep's own engine is linear; the other one (PCRE2) cannot be reached, not even through a file of settings."""
    (tmp_path / "a.txt").write_text("a" * 50_000 + "b\n")
    (tmp_path / ".ripgreprc").write_text("--pcre2\n")
    async with asyncio.timeout(search.TIMEOUT_S):
        assert await search.texts(str(tmp_path), "(a+)+$") == []
        assert await search.texts(str(tmp_path), "(a|aa)+$") == []
    for pattern in ("(?=a)a", "(a)\\1", "(?>a+)", "((a{1000}){1000}){1000}", "("):
        with pytest.raises(InvalidRequest):
            await search.texts(str(tmp_path), pattern)


async def test_names_in_a_repository_are_no_options_of_git(tmp_path: Path) -> None:
    """A hostile repository can name files and refs as it likes."""
    project = repository(tmp_path / "project", {"--output=evil": "1", "-p": "2", "--": "3", ":(exclude)x": "4"})
    for name in ("--output=evil", "-p", "--", ":(exclude)x"):
        (project / name).write_text("changed\n")
    head = git(project, "rev-parse", "HEAD")
    for ref in ("refs/heads/--output=evil", "refs/remotes/origin/--upload-pack=evil"):
        git(project, "update-ref", ref, head)
    git(project, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/--upload-pack=evil")
    changed = {change.file for change in await vcs.diff(str(project), "git")}
    assert changed == {"--output=evil", "-p", "--", ":(exclude)x"}
    await vcs.diff(str(project), "branch")
    assert (await vcs.branches(str(project))).current == "main"
    assert sorted(path.name for path in project.iterdir()) == ["--", "--output=evil", "-p", ".git", ":(exclude)x"]
