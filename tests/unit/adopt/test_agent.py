"""An adoption that is run again: what it leaves as it was, and what it writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shim.dev.record.packs import PACK, pack_folder, read_text, recordings_in
from shim.dev.record.take import RecordingResult, scenes_in
from tools.adopt import agent
from tools.adopt.install import InstalledProgram
from tools.adopt.verdict import Findings

PI = "pi/1.6.0"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recordings of Pi 1.6.0 and their goldens, in a copy; nothing is installed, run or generated."""
    for name in ("RECORDINGS", "GOLDENS"):
        monkeypatch.setattr(agent, name, tmp_path / name)
    shutil.copytree(agent.ROOT / "compat_fixtures" / "agents" / PI, tmp_path / "RECORDINGS" / PI)
    (tmp_path / "GOLDENS" / "pi").mkdir(parents=True)
    (tmp_path / "GOLDENS" / f"{PI}.jsonl.xz").write_bytes(b"goldens")
    monkeypatch.setattr(agent, "install_version", lambda *_: InstalledProgram(tmp_path, "", "package"))
    monkeypatch.setattr(agent, "drive", lambda *_: (21, []))
    monkeypatch.setattr(agent, "compare", lambda *_: None)
    monkeypatch.setattr(agent, "write", lambda *_: None)
    monkeypatch.setattr(agent.subprocess, "run", lambda *_, **__: None)
    return tmp_path / "RECORDINGS" / PI


def adopt_again(folder: Path, monkeypatch: pytest.MonkeyPatch, new: dict[str, str], failed: dict[str, str]) -> Findings:
    """Adopt 1.6.0 once more: the recorder writes `new`, and what clients saw differs too."""
    scenes = sorted((scenes_in(folder) | new.keys()) - failed.keys())

    def record(*_: object) -> RecordingResult:
        for name, text in new.items():
            (folder / f"{name}.jsonl").write_text(text)
        pack_folder(folder)
        return RecordingResult("pi", "1.6.0", folder, scenes, failed=failed)

    def replay(_: RecordingResult) -> list[str]:
        (agent.GOLDENS / f"{PI}.jsonl.xz").write_bytes(b"other goldens")
        return []

    monkeypatch.setattr(agent, "record", record)
    monkeypatch.setattr(agent, "replay_new_recordings", replay)
    return agent.adopt("pi", "1.6.0")


def bytes_below(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.parents[2].rglob("*") if path.is_file()}


def test_a_version_that_shows_nothing_new_leaves_all_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = bytes_below(folder)
    other_ids = read_text(folder / "text.jsonl").replace('"t": ', '"t": 1')
    assert adopt_again(folder, monkeypatch, {"text": other_ids}, {}).verdict == "nothing to do"
    assert bytes_below(folder) == before


def test_a_new_scene_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = adopt_again(folder, monkeypatch, {"new": read_text(folder / "text.jsonl")}, {})
    assert found.verdict == "adopt"
    assert folder / "new.jsonl" in recordings_in(folder)
    assert (agent.GOLDENS / f"{PI}.jsonl.xz").read_bytes() == b"other goldens"


def test_a_failed_adoption_that_holds_now_keeps_its_recordings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = (folder / PACK).read_bytes()
    (folder / agent.REPORT).write_text("pi 1.6.0: needs code\n")
    assert adopt_again(folder, monkeypatch, {"text": read_text(folder / "text.jsonl")}, {}).verdict == "adopt"
    assert (folder / PACK).read_bytes() == pack
    assert (folder / agent.REPORT).read_text().startswith("pi 1.6.0: adopt\n")


def test_a_scene_that_was_recorded_before_and_fails_needs_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = adopt_again(folder, monkeypatch, {}, {"text": "It ends.", "no_such_scene": "It never worked."})
    assert (found.verdict, found.new_failures) == ("needs code", ["text"])
