"""`scripts/recordings` shows, packs and unpacks recordings by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import recording_packs


@pytest.fixture
def fixtures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Recordings of an agent, of the mock and of OpenCode 2."""
    monkeypatch.setattr(recording_packs, "FIXTURES", tmp_path)
    monkeypatch.setattr(recording_packs, "WRITTEN_BY_TESTS", tmp_path / "agents" / "mock")
    claude = ("agents/claude/2.1/text", "agents/claude/2.1/bash")
    for name in (*claude, "agents/mock/text", "opencode2/july/text", "opencode2/answers"):
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"cmd":"{name}"}}\n')
    return tmp_path


def test_recordings_are_packed_and_shown_by_name(fixtures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert recording_packs.main(["pack"]) == 0
    left = sorted(str(path.relative_to(fixtures)) for path in fixtures.rglob("*") if path.is_file())
    assert left == [
        "agents/claude/2.1/scenes.jsonl.xz", "agents/mock/text.jsonl", "opencode2/answers.jsonl", "opencode2/july/scenes.jsonl.xz"
    ]  # fmt: skip
    assert recording_packs.main(["show", "agents/claude", "*july/t*"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "3 recordings packed",
        *("# agents/claude/2.1/bash", '{"cmd":"agents/claude/2.1/bash"}'),
        *("# agents/claude/2.1/text", '{"cmd":"agents/claude/2.1/text"}'),
        *("# opencode2/july/text", '{"cmd":"opencode2/july/text"}'),
    ]


def test_one_folder_is_unpacked(fixtures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording_packs.main(["pack"])
    assert recording_packs.main(["unpack", "agents/claude/2.1/text"]) == 0
    assert sorted(path.name for path in fixtures.glob("agents/claude/2.1/*")) == ["bash.jsonl", "text.jsonl"]
    assert not (fixtures / "opencode2/july/text.jsonl").exists()
    assert capsys.readouterr().out == "3 recordings packed\n2 recordings unpacked\n"


def test_an_unknown_name_is_an_error(fixtures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert recording_packs.main(["show", "agents/nobody"]) == 1
    assert "No recording is called agents/nobody." in capsys.readouterr().err
