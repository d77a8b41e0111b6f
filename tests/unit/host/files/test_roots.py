"""What a disk is like in which a session works."""

from __future__ import annotations

from pathlib import Path

import pytest

from shim.host.files.roots import folds_case


@pytest.fixture(autouse=True)
def fresh() -> None:
    folds_case.cache_clear()


def test_a_disk_on_which_both_names_are_one_file_folds_case(tmp_path: Path) -> None:
    (tmp_path / ".env").touch()
    (tmp_path / ".ENV").hardlink_to(tmp_path / ".env")
    assert folds_case(str(tmp_path))


@pytest.mark.parametrize("names", [(), ("123",), (".env",), (".env", ".ENV")])
def test_a_disk_on_which_they_are_two_does_not(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).write_text(name)
    assert not folds_case(str(tmp_path))
    assert not folds_case(str(tmp_path / "missing"))
