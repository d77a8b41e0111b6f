"""Files that a tool writes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools import generated_files, setup
from tools.generated_files import ROOT, settle
from universal.registry import agents

TYPES = sorted((ROOT / "shim" / "faces").glob("opencode*/_generated/*types.py"))
DOCSTRING = re.compile(r'"""(.|\n)*?"""')


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(generated_files, "ROOT", tmp_path)
    (tmp_path / "current.md").write_text("same")
    (tmp_path / "stale.md").write_text("old")
    return tmp_path


def wanted_texts(root: Path) -> dict[Path, str]:
    return {root / "current.md": "same", root / "stale.md": "new", root / "folder" / "missing.md": "first"}


def test_check_lists_stale_and_missing_files_and_writes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert settle(wanted_texts(root), check=True, command="make docs") == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "stale.md is not current: run `make docs`",
        "folder/missing.md is not current: run `make docs`",
    ]
    assert (root / "stale.md").read_text() == "old"
    assert not (root / "folder").exists()


def test_only_stale_and_missing_files_are_written(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert settle(wanted_texts(root), check=False) == 0
    assert capsys.readouterr().out.splitlines() == ["wrote stale.md", "wrote folder/missing.md"]
    assert {path: path.read_text() for path in wanted_texts(root)} == wanted_texts(root)
    assert settle(wanted_texts(root), check=True) == 0


@pytest.mark.parametrize("module", TYPES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_each_generated_type_is_used(module: Path) -> None:
    """By the face's own code, or in another type. Those that nothing uses are taken out of the generator's table."""
    source = module.read_text("utf-8")
    names = {
        node.name if isinstance(node, ast.ClassDef) else ast.unparse(node.target)
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef | ast.AnnAssign)
    }
    texts = [path.read_text("utf-8") for path in module.parents[1].rglob("*.py") if path != module]
    words = re.findall(r"\w+", DOCSTRING.sub("", "\n".join([source, *texts])))
    assert names
    assert sorted(name for name in names if words.count(name) < 2) == []


def test_every_key_of_the_configuration_has_its_row() -> None:
    assert set(setup.ROWS) == setup.keys()


def test_the_row_of_mcp_names_each_agent() -> None:
    row = next(line for line in setup.render().splitlines() if line.startswith("| `mcp` |"))
    titles = [spec.title for spec in agents().values() if spec.name != "mock"]
    assert [title for title in titles if f"{title}," not in row and f"{title} " not in row and f"{title}." not in row] == []
