"""Files are opened inside of folders: a link that is put there after the look leads nowhere, and nothing waits for a pipe."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from shim.faces.opencode2.errors import FileUnreadable
from shim.faces.opencode2.routes import fs
from shim.host.files import contents as files
from shim.host.files import file_actions, prompt_files
from shim.host.git import vcs
from shim.host.terminals import host_calls
from shim.host.trust import project_settings
from shim.lib import disk
from shim.lib.errors import InvalidRequest, RequestError
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
    done = host_calls.carry_out(ReadText("1", str(inside / NAME)), [str(inside)])
    return str(done)


def write_for_agent(inside: Path) -> str:
    done = host_calls.carry_out(WriteText("1", str(inside / NAME), "written"), [str(inside)])
    return str(done)


def show_in_viewer(inside: Path) -> str:
    try:
        return str(files._read(str(inside), NAME))
    except InvalidRequest as error:
        return str(error)


def attach_to_prompt(inside: Path) -> str:
    return str(prompt_files._file_url((inside / NAME).as_uri(), "text/plain", "f", [str(inside)]))


def read_for_program(inside: Path) -> str:
    try:
        return str(file_actions.read(file_actions.Place(str(inside)), NAME))
    except RequestError as error:
        return str(error)


def write_for_program(inside: Path) -> str:
    try:
        return str(file_actions.write(file_actions.Place(str(inside)), NAME, b"written"))
    except RequestError as error:
        return str(error)


def unpack_for_program(inside: Path) -> str:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo(NAME)
        member.size = 7
        tar.addfile(member, io.BytesIO(b"written"))
    try:
        return str(file_actions.unpack(file_actions.Place(str(inside)), ".", archive.getvalue()))
    except RequestError as error:
        return str(error)


def show_untracked(inside: Path) -> str:
    return str(vcs._content(inside / NAME, str(inside)))


def read_for_opencode2(inside: Path) -> str:
    try:
        return str(fs._read(str(inside), NAME))
    except FileUnreadable as error:
        return str(error)


def write_for_opencode2(inside: Path) -> str:
    try:
        return str(fs._write(str(inside / NAME), b"written", [inside]))
    except OSError as error:
        return str(error)


def look_at_settings(inside: Path) -> str:
    """Settings of a project are shown to the person who is asked about them."""
    look = project_settings._Look(str(inside))
    look.stamp(str(inside / NAME))
    try:
        return look._read(str(inside / NAME))
    except project_settings._Unreadable as error:
        return str(error)


READERS = [read_for_agent, show_in_viewer, attach_to_prompt, read_for_program, show_untracked, read_for_opencode2]
READERS += [look_at_settings]
WRITERS = [write_for_agent, write_for_program, unpack_for_program, write_for_opencode2]


@pytest.mark.parametrize("use", [*READERS, *WRITERS])
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


@pytest.mark.parametrize("use", [*READERS, write_for_agent, write_for_opencode2])
def test_a_pipe_without_another_end_does_not_block(inside: Path, use: Callable[[Path], str]) -> None:
    (inside / NAME).unlink()
    os.mkfifo(inside / NAME)
    said = use(inside)
    words = ("no file", "Not a file", "no regular file", "cannot be written", "None", "No such device")
    assert any(part in said for part in words), said


def test_links_of_proc_lead_nowhere(inside: Path) -> None:
    (inside / NAME).unlink()
    (inside / NAME).symlink_to(f"/proc/self/root{inside.parent}/outside/file.txt")
    with pytest.raises(disk.OutsideError):
        disk.head(inside / NAME, 100, [str(inside)])


def test_a_file_is_written_in_its_place_and_folders_above_are_made(inside: Path) -> None:
    (inside / "link.txt").symlink_to("folder/file.txt")
    for name in ("link.txt", "new/below/file.txt"):
        with disk.open_confined_for_writing(inside / name, [str(inside)]) as (file, state):
            assert disk.is_regular(state)
            file.write(b"written")
            file.truncate()
    assert (inside / NAME).read_text() == (inside / "new/below/file.txt").read_text() == "written"
    assert (inside / "link.txt").is_symlink()


def test_a_file_is_put_beside_its_place_first_and_keeps_its_mode(inside: Path) -> None:
    (inside / NAME).chmod(0o640)
    (inside / "link.txt").symlink_to(NAME)
    for name in ("link.txt", "new/below/file.txt"):
        disk.put(inside / name, b"written", [str(inside)])
    assert (inside / NAME).read_text() == (inside / "new/below/file.txt").read_text() == "written"
    assert ((inside / NAME).stat().st_mode & 0o777, (inside / "link.txt").is_symlink()) == (0o640, True)
    assert sorted(os.listdir(inside / "folder")) == ["file.txt"]


def test_a_file_that_cannot_be_put_leaves_nothing_behind(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        disk.put(inside / NAME, b"written", [str(inside)])
    assert (sorted(os.listdir(inside / "folder")), (inside / NAME).read_text()) == (["file.txt"], "inside")
