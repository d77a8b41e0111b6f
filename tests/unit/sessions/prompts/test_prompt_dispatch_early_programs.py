"""Settings that may name a program which runs at a prompt."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shim.sessions.prompts.prompt_dispatch import FILE_LIMIT_BYTES, may_run
from universal.agent_spec import HeldCalls
from universal.agents.claude.spec import CLAUDE

CALLS = HeldCalls((".agent/settings.json",), ("~/.agent/settings.json", "$AGENT_HOME/settings.json"), ('"hooks"', '"plugins"'))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder in a repository, below the person's home."""
    folder = tmp_path / "repository" / "folder"
    folder.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    return folder


def look(project: Path, tmp_path: Path, **more: str) -> bool:
    return may_run(CALLS, str(project), {"HOME": str(tmp_path), **more})


def put(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(text)


def test_nothing_runs_without_settings(project: Path, tmp_path: Path) -> None:
    assert not look(project, tmp_path)


def test_settings_that_name_no_program_are_let_pass(project: Path, tmp_path: Path) -> None:
    put(tmp_path / ".agent", '{"model": "opus", "disableAllHooks": true}')
    put(project / ".agent", "{}")
    assert not look(project, tmp_path)


@pytest.mark.parametrize("where", [".agent", "repository/.agent", "repository/folder/.agent"])
@pytest.mark.parametrize("word", ["hooks", "plugins"])
def test_each_word_in_each_place_counts(project: Path, tmp_path: Path, where: str, word: str) -> None:
    put(tmp_path / where, f'{{"{word}": {{}}}}')
    assert look(project, tmp_path)


def test_a_folder_that_a_variable_moves_counts(project: Path, tmp_path: Path) -> None:
    put(tmp_path / "moved", '{"hooks": {}}')
    assert look(project, tmp_path, AGENT_HOME=str(tmp_path / "moved"))
    assert not look(project, tmp_path)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_large_file(path: Path) -> None:
    path.write_bytes(b" " * (FILE_LIMIT_BYTES + 1))


@pytest.mark.parametrize("make", [a_folder, a_pipe, a_large_file])
def test_an_unreadable_file_may_name_anything(project: Path, tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / ".agent").mkdir()
    make(tmp_path / ".agent" / "settings.json")
    assert look(project, tmp_path)


def test_a_link_is_followed(project: Path, tmp_path: Path) -> None:
    (tmp_path / "settings").write_text('{"hooks": {}}')
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "settings.json").symlink_to(tmp_path / "settings")
    assert look(project, tmp_path)


@pytest.mark.parametrize("name", ["settings.json", "plugins/installed_plugins.json"])
def test_hooks_and_plugins_of_claude_code_are_seen(project: Path, tmp_path: Path, name: str) -> None:
    calls = CLAUDE.rules.held_calls
    assert calls is not None
    file = tmp_path / ".claude" / name
    file.parent.mkdir(parents=True)
    environ = {"HOME": str(tmp_path)}
    file.write_text('{"plugins": {}}')
    before = may_run(calls, str(project), environ)
    file.write_text('{"plugins": {"a": [{"installPath": "/a"}]}, "hooks": {}}')
    assert (before, may_run(calls, str(project), environ)) == (False, True)
