"""Aliases and real programs on a PATH."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shim.lib.errors import AgentNotFound
from shim.processes import aliases
from shim.processes.hidden_opencode import find_binary
from shim.processes.locate import find
from universal.registry import agents


def program(folder: Path, name: str, text: str = "#!/bin/sh\necho 1.18.33\n") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_the_first_program_that_is_no_alias_is_the_real_one(tmp_path: Path) -> None:
    alias = program(tmp_path / "a", "opencode", aliases.script("/usr/bin/python3", "opencode"))
    real = program(tmp_path / "b", "opencode")
    search_path = os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")])
    assert list(aliases.candidates("opencode", search_path)) == [alias, real]
    assert aliases.find_program("opencode", search_path) == real
    assert aliases.find_program("opencode", str(tmp_path / "a")) is None
    assert aliases.find_program(alias, search_path) is None


def test_the_server_does_not_start_its_own_alias_as_the_agent_opencode(tmp_path: Path) -> None:
    program(tmp_path / "a", "opencode", aliases.script("/usr/bin/python3", "opencode"))
    real = program(tmp_path / "b", "opencode")
    env = {"HOME": str(tmp_path), "PATH": os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")])}
    assert find(agents()["opencode"], env).path == real
    assert find_binary(env) == real


def test_an_alias_that_a_variable_names_is_refused(tmp_path: Path) -> None:
    alias = program(tmp_path, "opencode", aliases.script("/usr/bin/python3", "opencode"))
    env = {"HOME": str(tmp_path), "PATH": "", "SHIM_OPENCODE_BIN": alias}
    assert "opencode-shim itself" in find(agents()["opencode"], env).why
    with pytest.raises(AgentNotFound, match="opencode-shim itself"):
        find_binary(env)


def test_a_python_with_blanks_in_its_path_is_quoted() -> None:
    assert "exec '/my tools/python' -P -m shim.cli.opencode opencode2 \"$@\"" in aliases.script("/my tools/python", "opencode2")
