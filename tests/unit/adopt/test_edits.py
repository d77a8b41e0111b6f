"""What an adoption writes: the row of the registry and the pin of the end-to-end tests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools.adopt import edits
from tools.adopt.edits import set_pin, set_tested, version_ranges, with_version
from universal.agents.acp.profiles import CARDS
from universal.registry import agents

SPEC = 'PI = AgentSpec(\n    name=NAME,\n    program=AgentProgram(tested=("0.73.1", "0.87.1")),\n)\n'
PROFILES = """KNOWN = (
    Profile(
        "a-acp",
        AgentProgram(tested=("0.1.0",)),
    ),
    Profile("b-acp", AgentProgram(tested=("2.0.0", "2.1.0"))),
)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pi").mkdir()
    (tmp_path / "pi" / "spec.py").write_text(SPEC)
    (tmp_path / "acp").mkdir()
    (tmp_path / "acp" / "profiles.py").write_text(PROFILES)
    return tmp_path


def test_tested_version_is_written_into_the_agents_row_alone(folder: Path) -> None:
    assert set_tested("pi", "1.5.2", folder) == folder / "pi" / "spec.py"
    assert (folder / "pi" / "spec.py").read_text() == SPEC.replace("0.87.1", "1.5.2")
    assert set_tested("pi", "1.5.2", folder) is None
    assert set_tested("a-acp", "0.2.0", folder) == folder / "acp" / "profiles.py"
    assert (folder / "acp" / "profiles.py").read_text() == PROFILES.replace('("0.1.0",)', '("0.1.0", "0.2.0")')


@pytest.mark.parametrize(
    ("tested", "version", "after"),
    [
        (("1.9.0", "1.10.0"), "1.11.0", ("1.9.0", "1.11.0")),
        (("1.9.0", "1.11.0"), "1.10.0", ("1.9.0", "1.11.0")),
        (("1.9.0",), "1.8.0", ("1.8.0", "1.9.0")),
        ((), "1.0.0", ("1.0.0",)),
    ],
)
def test_tested_versions_are_the_oldest_and_the_newest(tested: tuple[str, ...], version: str, after: tuple[str, ...]) -> None:
    assert with_version(tested, version) == after


def test_each_tested_agent_of_the_registry_has_one_row_on_one_line() -> None:
    for name, spec in agents().items():
        if spec.program.tested and name not in CARDS:
            [row] = version_ranges(name)
            assert row.node.lineno == row.node.end_lineno


def test_a_card_gets_its_first_version_and_keeps_the_oldest(tmp_path: Path) -> None:
    card = tmp_path / "acp" / "cards" / "one.toml"
    card.parent.mkdir(parents=True)
    card.write_text('title = "One"\ninstall_hint = "pip"\n\n[lacks]\n')
    for version in ("1.0.0", "1.2.0", "1.10.0"):
        assert set_tested("one", version, tmp_path) == card
    assert set_tested("one", "1.10.0", tmp_path) is None
    assert card.read_text() == 'title = "One"\ntested = ["1.0.0", "1.10.0"]\ninstall_hint = "pip"\n\n[lacks]\n'


def test_pin_is_left_alone_when_npm_cannot_write_the_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = tmp_path / "package.json"
    manifest.write_text(json.dumps({"dependencies": {"pi": "0.87.1"}}, indent=2))
    before = manifest.read_text()
    seen: list[str] = []

    def run(*_args: Any, **_options: Any) -> subprocess.CompletedProcess[str]:
        seen.append(manifest.read_text())
        return subprocess.CompletedProcess([], 1, "", "npm error notarget")

    monkeypatch.setattr(edits.subprocess, "run", run)
    monkeypatch.setattr(edits, "program", lambda name: name)
    with pytest.raises(RuntimeError, match="notarget"):
        set_pin("pi", "1.5.2", tmp_path)
    assert seen == [before.replace("0.87.1", "1.5.2")]
    assert manifest.read_text() == before
    assert set_pin("not-pinned", "1.0.0", tmp_path) is None
