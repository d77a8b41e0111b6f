"""How git is run: its environment, and what happens when a repository's settings cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shim.host.git.git_command import FLAGS, git, git_in, harmless_settings, scratch_folder
from shim.host.git.vcs import changes

STAND_IN = """#!/bin/sh
echo "$@" >> {told}
case " $* " in
  *" config --show-scope "*) {config} ;;
  *) env; exit 0 ;;
esac
"""


@pytest.fixture
def command_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in for git writes its command lines; it prints its environment."""
    return stand_in(tmp_path, monkeypatch, "exit 1")


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, config: str) -> Path:
    program = folder / "bin" / "git"
    program.parent.mkdir(exist_ok=True)
    program.write_text(STAND_IN.format(told=folder / "told", config=config))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return folder / "told"


@pytest.mark.parametrize("config", ["exit 128", "kill -9 $$", "exec yes"])
async def test_nothing_runs_when_the_settings_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    """Filters of the repository would run otherwise."""
    command_log = stand_in(tmp_path, monkeypatch, config)
    done = await git(str(tmp_path), "reset", "--hard")
    assert not done.ok
    assert b"cannot read the settings" in done.stderr
    assert " reset --hard" not in command_log.read_text()
    assert await harmless_settings(str(tmp_path)) is None
    await changes(str(tmp_path))
    assert " diff --no-ext-diff" not in command_log.read_text()


async def test_no_command_reaches_the_network_or_another_repository(
    tmp_path: Path, command_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file:ext")
    for done in (await git(str(tmp_path), "status"), await git_in(tmp_path / "dir", str(tmp_path), "gc")):
        environment = done.text.split("\n")
        assert {"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0"} <= set(environment)
        assert "GIT_DIR=/elsewhere" not in environment


@pytest.mark.parametrize("command", sorted(FLAGS))
async def test_commands_that_show_differences_run_no_diff_tool(tmp_path: Path, command_log: Path, command: str) -> None:
    await git(str(tmp_path), command, "a", "--", "b")
    assert command_log.read_text().splitlines()[-1].endswith(f"{command} --no-ext-diff --no-textconv a -- b")


async def test_no_git_is_a_git_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = await git(str(tmp_path), "rev-parse", "HEAD")
    assert (done.code, done.stderr) == (None, b"git is not installed, or not on PATH")
    gone = await git(os.path.join(tmp_path, "gone"), "rev-parse", "HEAD")
    assert not gone.ok


async def test_a_scratch_folder_is_removed_with_what_is_in_it(tmp_path: Path) -> None:
    async with scratch_folder("try-", tmp_path) as folder:
        Path(folder, "file").write_text("x")
        assert [place.name.startswith("try-") for place in tmp_path.iterdir()] == [True]
    assert list(tmp_path.iterdir()) == []
