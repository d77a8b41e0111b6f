"""`opencode-shim alias`: what it writes, what it never overwrites, and what it tells the person."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from shim.cli import alias, screen
from shim.lib.errors import ShimError
from shim.processes.aliases import is_alias


class ConsoleText:
    """A console, and what was written to it."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.console = screen.console(self.stream)

    @property
    def text(self) -> str:
        return self.stream.getvalue()


@pytest.fixture
def console_text() -> ConsoleText:
    return ConsoleText()


def real(folder: Path, name: str = "opencode") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\necho real\n")
    path.chmod(0o755)
    return path


def test_install_writes_a_program_and_remove_removes_it(
    tmp_path: Path, console_text: ConsoleText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert alias.install(tmp_path / "bin", ("opencode", "opencode2"), console_text.console) == 0
    assert all(os.access(tmp_path / "bin" / name, os.X_OK) for name in ("opencode", "opencode2"))
    assert console_text.text == f"Installed: {tmp_path}/bin/opencode\nInstalled: {tmp_path}/bin/opencode2\n"
    assert alias.install(tmp_path / "bin", ("opencode",), console_text.console) == 0, "an alias may take an alias's place"
    assert alias.remove(tmp_path / "bin", console_text.console) == 0
    assert list((tmp_path / "bin").iterdir()) == []
    assert alias.remove(tmp_path / "bin", console_text.console) == 1


def test_install_leaves_a_real_program_as_it_is(tmp_path: Path, console_text: ConsoleText) -> None:
    path = real(tmp_path, "opencode2")
    with pytest.raises(ShimError, match="--force"):
        alias.install(tmp_path, ("opencode", "opencode2"), console_text.console)
    assert path.read_text() == "#!/bin/sh\necho real\n"
    assert not (tmp_path / "opencode").exists(), "all or nothing"


def test_force_keeps_the_real_program_and_remove_puts_it_back(tmp_path: Path, console_text: ConsoleText) -> None:
    path = real(tmp_path)
    alias.install(tmp_path, ("opencode",), console_text.console, force=True)
    alias.install(tmp_path, ("opencode",), console_text.console, force=True)
    assert is_alias(path)
    alias.remove(tmp_path, console_text.console)
    assert path.read_text() == "#!/bin/sh\necho real\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["opencode"]


def test_remove_leaves_a_real_program_as_it_is(tmp_path: Path, console_text: ConsoleText) -> None:
    path = real(tmp_path)
    assert alias.remove(tmp_path, console_text.console) == 1
    assert path.exists()


def test_install_says_when_another_program_comes_first(
    tmp_path: Path, console_text: ConsoleText, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = real(tmp_path / "first")
    monkeypatch.setenv("PATH", f"{tmp_path / 'first'}:{tmp_path / 'bin'}")
    alias.install(tmp_path / "bin", ("opencode",), console_text.console)
    assert f"{first} comes first on PATH" in console_text.text
    assert list(alias.on_path(os.environ["PATH"])) == [
        f"opencode on PATH: {first} (not ours); behind it {tmp_path}/bin/opencode (opencode-shim's alias)"
    ]


def test_install_says_when_the_folder_is_not_on_path(
    tmp_path: Path, console_text: ConsoleText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    alias.install(tmp_path / "bin", ("opencode",), console_text.console)
    assert f'export PATH="{tmp_path}/bin:$PATH"' in console_text.text
