"""Settings files of one process, through a directory of agents whose program tells what it was started with."""

from __future__ import annotations

import asyncio
import json
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from shim.agents import directory
from shim.agents.directory import AgentDirectory
from shim.lib.clock import ManualClock
from shim.lib.errors import AgentStartFailed
from shim.lib.ids import Ids
from shim.store.memory import MemoryStore
from tests.support.specs import change
from universal.agents.amp.codec import AmpCodec
from universal.agents.amp.spec import AMP
from universal.items import Json
from universal.launch import Exit, LaunchOptions, LaunchSpec, SettingsFile
from universal.permissions import rules_from_config

LIMIT_S = 20.0
"""For a small script to start and to end."""
TELLS = """#!/bin/sh
if [ "$1" = --version ]; then echo 1.0.0; exit 0; fi
while [ $# -gt 1 ]; do shift; done
stat -c %a "$1" > "$HOME/mode"; echo "$1" > "$HOME/path"
cat "$1" > "$HOME/settings.new"; mv "$HOME/settings.new" "$HOME/settings"
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def add_entry(own: Mapping[str, Json]) -> Mapping[str, Json]:
    return {**own, "ours": True}


def write_settings(*sources: Path) -> tuple[LaunchSpec, Path]:
    settings = SettingsFile("--settings-file", tuple(map(str, sources)), add_entry)
    return directory.write(LaunchSpec(("/bin/amp", "--execute"), "/"), settings)


def test_the_file_is_private_and_has_the_persons_settings(tmp_path: Path, temporary: Path) -> None:
    own = tmp_path / "own.jsonc"
    own.write_text('{"a": 1, // why\n}')
    launch, folder = write_settings(tmp_path / "missing.json", own)
    *argv, path = launch.argv
    assert argv == ["/bin/amp", "--execute", "--settings-file"] and folder.parent == temporary
    assert json.loads(Path(path).read_text()) == {"a": 1, "ours": True}
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600 and stat.S_IMODE(folder.stat().st_mode) == 0o700
    directory.remove(folder)
    assert list(temporary.iterdir()) == []


def test_a_holder_removes_the_file_with_its_own_folder(tmp_path: Path, temporary: Path) -> None:
    settings, held = SettingsFile("--settings-file", (), add_entry), tmp_path / "held" / "a"
    launch, folder = directory.write(LaunchSpec(("/bin/amp",), "/"), settings, held)
    assert (folder, Path(launch.argv[-1]).parent, stat.S_IMODE(held.stat().st_mode)) == (held, held, 0o700)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("content", ['{"a": ', "\xff\xfe"])
def test_settings_that_cannot_be_read_are_an_error_that_names_the_file(tmp_path: Path, temporary: Path, content: str) -> None:
    own = tmp_path / "own.json"
    own.write_text(content, "latin-1")
    with pytest.raises(AgentStartFailed, match=r"own\.json cannot be read.*Correct that file"):
        write_settings(own)
    assert list(temporary.iterdir()) == []


async def test_amp_gets_its_rules_in_a_file_that_is_removed_at_its_end(tmp_path: Path, temporary: Path) -> None:
    program = tmp_path / "amp"
    program.write_text(TELLS)
    program.chmod(0o755)
    own = tmp_path / ".config" / "amp" / "settings.json"
    own.parent.mkdir(parents=True)
    own.write_text('{"amp.permissions": [{"tool": "Bash", "action": "allow"}], "amp.proxy": "x"}')
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    clock, store, exits = ManualClock(), MemoryStore(), asyncio.Queue[Exit]()
    await store.open()
    directory = AgentDirectory({"amp": change(AMP, login=None)}, clock=clock, ids=Ids(clock), store=store, environ=environ)
    try:
        async with asyncio.timeout(LIMIT_S):
            await directory.start()
            options = LaunchOptions("", str(tmp_path), rules=rules_from_config({"bash": "deny"}))
            agent, codec = directory.get("amp"), AmpCodec(Ids(clock).new)
            assert agent is not None
            await directory.spawn(agent, options, codec, lambda _: None, exits.put_nowait)
            assert (await exits.get()).code == 0
    finally:
        await directory.close()
        await store.close()
    settings = json.loads((tmp_path / "settings").read_text())
    assert settings["amp.permissions"][-1] == {"tool": "Bash", "action": "allow"} and settings["amp.proxy"] == "x"
    assert settings["amp.permissions"][-2]["action"] == "reject" and "Bash" in settings["amp.tools.disable"]
    assert (tmp_path / "mode").read_text() == "600\n"
    assert Path((tmp_path / "path").read_text().strip()).is_relative_to(temporary) and list(temporary.iterdir()) == []
