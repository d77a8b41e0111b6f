"""What the mock does to files: exactly one more line, and nothing outside of its directory."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.processes.mock.scenes import MAX_BYTES, EditRefused, apply, lines_of, prepare, unified_diff

PIECES = st.sampled_from(["one", "two", "\n", "\r\n", " ", "\u2028", "\x0c", "ü", ""])


@given(st.lists(PIECES, max_size=12).map("".join))
def test_an_edit_is_exact(content: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "f").write_bytes(content.encode())
        edit = prepare(directory, "f")
        assert edit.before == content
        assert edit.old == "" or content.count(edit.old) == 1
        assert content.replace(edit.old, edit.new) == edit.after if edit.old else edit.after == edit.new
        assert edit.after.startswith(content) and len(lines_of(edit.after)) == len(lines_of(content)) + 1
        apply(edit)
        assert (directory / "f").read_bytes() == edit.after.encode()
        subprocess.run(
            ["git", "apply", "-R", "--whitespace=nowarn", "--unsafe-paths", "-"],
            cwd=directory,
            input=edit.diff.encode(),
            check=True,
        )
        assert (directory / "f").read_bytes() == content.encode()


def test_the_mock_edits_nothing_outside_its_folder(tmp_path: Path) -> None:
    directory = tmp_path / "project"
    directory.mkdir()
    (tmp_path / "secret").write_text("secret")
    (directory / "link").symlink_to(tmp_path / "secret")
    (directory / "folder").mkdir()
    (directory / "binary").write_bytes(b"\xff\xfe\x00")
    (directory / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    for name in ("../secret", str(tmp_path / "secret"), "link", "folder", "binary", "large", ".", "x" * 300, "nul\0"):
        with pytest.raises(EditRefused):
            prepare(directory, name)
    assert (tmp_path / "secret").read_text() == "secret"


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    edit = prepare(tmp_path, "new/file.txt")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file.txt").write_text("somebody else's")
    with pytest.raises(EditRefused):
        apply(edit)
    assert (tmp_path / "new" / "file.txt").read_text() == "somebody else's"


def test_the_diff_of_no_change_is_empty() -> None:
    assert unified_diff("f", "a\n", "a\n") == ""
