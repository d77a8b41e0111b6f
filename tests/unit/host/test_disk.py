"""Files are opened inside of folders: a link that is put there after the look leads nowhere, and nothing waits for a pipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shim.errors import InvalidRequest
from shim.host import agent_files, disk, files, prompt_files
from universal.host import ReadText, WriteText

SECRET = "the secret that lies outside"
NAME = "folder/file.txt"


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """A project with a file, beside a folder outside that has a secret under the same name."""
    for folder, text in (("project/folder", "inside"), ("outside", SECRET)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file.txt").write_text(text)
    return Path(os.path.realpath(tmp_path / "project"))


def read_for_agent(inside: Path) -> str:
    done = agent_files.carry_out(ReadText("1", str(inside / NAME)), [str(inside)])
    return str(done)


def write_for_agent(inside: Path) -> str:
    done = agent_files.carry_out(WriteText("1", str(inside / NAME), "written"), [str(inside)])
    return str(done)


def show_in_viewer(inside: Path) -> str:
    try:
        return str(files._read(str(inside), NAME))
    except InvalidRequest as error:
        return str(error)


def attach_to_prompt(inside: Path) -> str:
    return str(prompt_files._file_url((inside / NAME).as_uri(), "text/plain", "f", [str(inside)]))


@pytest.mark.parametrize("use", [read_for_agent, write_for_agent, show_in_viewer, attach_to_prompt])
def test_a_folder_that_becomes_a_link_after_the_look_leads_nowhere(
    inside: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], str]
) -> None:
    real = os.open

    def swap_and_open(path: str | Path, *arguments: int, **more: int | None) -> int:
        """An agent swaps the folder for a link out of the project between the look and the opening."""
        if not (inside / "folder").is_symlink():
            (inside / "folder").rename(inside / "kept")
            (inside / "folder").symlink_to(inside.parent / "outside")
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", swap_and_open)
    assert SECRET not in use(inside)
    assert (inside.parent / "outside" / "file.txt").read_text() == SECRET


@pytest.mark.parametrize("use", [read_for_agent, write_for_agent, show_in_viewer, attach_to_prompt])
def test_a_pipe_without_another_end_holds_nobody(inside: Path, use: Callable[[Path], str]) -> None:
    (inside / NAME).unlink()
    os.mkfifo(inside / NAME)
    said = use(inside)
    assert any(words in said for words in ("no file", "Not a file", "no regular file", "cannot be written"))


def test_links_of_proc_lead_nowhere(inside: Path) -> None:
    (inside / NAME).unlink()
    (inside / NAME).symlink_to(f"/proc/self/root{inside.parent}/outside/file.txt")
    with pytest.raises(disk.OutsideError):
        disk.head(inside / NAME, 100, [str(inside)])


def test_a_file_is_written_in_its_place_and_folders_above_are_made(inside: Path) -> None:
    (inside / "link.txt").symlink_to("folder/file.txt")
    for name in ("link.txt", "new/below/file.txt"):
        with disk.confined_for_writing(inside / name, [str(inside)]) as (file, state):
            assert disk.is_regular(state)
            file.write(b"written")
            file.truncate()
    assert (inside / NAME).read_text() == (inside / "new/below/file.txt").read_text() == "written"
    assert (inside / "link.txt").is_symlink()
