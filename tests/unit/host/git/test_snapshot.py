"""Snapshots of real directories with the real git: what they keep, what they leave alone, and what is put back."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from shim.host.git import snapshot
from shim.host.git.snapshot import NoSnapshots, SnapshotError, Snapshots
from shim.lib.clock import ManualClock

WAIT_S = 10.0


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def trees(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path / "snapshots", tmp_path / "home", ManualClock())


def state(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Every file: what it is (link, executable or not) and its bytes."""
    found: dict[str, tuple[str, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        elif path.is_file() and ".git" not in path.relative_to(folder).parts:
            kind = "executable" if path.stat().st_mode & stat.S_IXUSR else "file"
            found[name] = (kind, path.read_bytes())
    return found


def repository(folder: Path) -> None:
    """A repository with one commit of everything that is there."""
    who = ["-c", "user.name=u", "-c", "user.email=u@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})


def digest(folder: Path) -> str:
    """Everything below `.git`, names, times and bytes."""
    lines = [f"{p} {p.lstat().st_mtime_ns} {p.read_bytes() if p.is_file() else ''}" for p in sorted(folder.rglob("*"))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


async def test_made_changed_deleted_and_renamed_files_are_restored(trees: Snapshots, project: Path) -> None:
    for name, content in {"a.txt": "a\n", "gone.txt": "bye\n", "old.txt": "same\n" * 9, "d/e/f.txt": "deep\n"}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(content)
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "link").symlink_to("a.txt")
    before, was = await trees.track(str(project)), state(project)

    (project / "a.txt").write_bytes(b"a\r\n\0\xff")
    (project / "gone.txt").unlink()
    (project / "old.txt").rename(project / "new name \u00e4\u65e5.txt")
    (project / "run.sh").chmod(0o755)
    (project / "empty").touch()
    (project / "made/by/it").mkdir(parents=True)
    (project / "made/by/it/x").write_text("x")
    (project / "link").unlink()
    (project / "link").write_text("a file now")
    (project / "d/e/f.txt").unlink()
    (project / "d/e").rmdir()
    (project / "d/e").write_text("a file where a folder was")
    after, is_now = await trees.track(str(project)), state(project)

    names = await trees.changed_files(str(project), before, after)
    assert {"old.txt", "new name \u00e4\u65e5.txt", "gone.txt", "empty", "run.sh", "d/e", "d/e/f.txt", "link"} <= set(names)
    assert await trees.restore(str(project), dict.fromkeys(names, before)) == []
    assert state(project) == was
    assert not (project / "made").exists()
    assert await trees.restore(str(project), dict.fromkeys(names, after)) == []
    assert state(project) == is_now
    assert await trees.track(str(project)) == after


async def test_a_file_is_restored_where_a_folder_has_only_empty_folders(trees: Snapshots, project: Path) -> None:
    """A file that was made and deleted below leaves them. `tests/properties/test_undo.py` found that they kept the file away."""
    (project / "d").write_text("a file")
    before = await trees.track(str(project))
    (project / "d").unlink()
    (project / "d/e").mkdir(parents=True)
    await trees.track(str(project))
    assert await trees.restore(str(project), {"d": before}) == []
    assert (project / "d").read_text() == "a file"


async def test_the_persons_repository_is_not_touched(trees: Snapshots, project: Path) -> None:
    (project / "a.txt").write_text("a\n")
    (project / ".gitattributes").write_text("* text=auto eol=crlf\n")
    repository(project)
    was = digest(project / ".git")
    (project / "a.txt").write_bytes(b"one\r\ntwo\n")
    before = await trees.track(str(project))
    (project / "a.txt").write_bytes(b"changed\n")
    await trees.track(str(project))
    await trees.restore(str(project), {"a.txt": before})
    assert (project / "a.txt").read_bytes() == b"one\r\ntwo\n"
    assert digest(project / ".git") == was


async def test_ignored_files_and_inner_repositories_are_left_alone(trees: Snapshots, project: Path) -> None:
    repository(project)
    (project / ".gitignore").write_text("*.log\n")
    (project / ".git/info/exclude").write_text("mine\n")
    (project / "x.log").write_text("1")
    (project / "mine").write_text("1")
    for name in ("with_commit", "without"):
        (project / name).mkdir()
        (project / name / "f").write_text("inner")
    repository(project / "with_commit")
    subprocess.run(["git", "init", "-q"], cwd=project / "without", check=True)
    before = await trees.track(str(project))
    for name in ("x.log", "mine", "with_commit/f", "without/f"):
        (project / name).write_text("2")
    (project / "new").write_text("new")
    assert await trees.changed_files(str(project), before, await trees.track(str(project))) == ["new"]


async def test_a_folder_of_a_repository_has_its_rules_and_no_more_than_its_own_files(trees: Snapshots, project: Path) -> None:
    repository(project)
    (project / ".gitignore").write_text("*.log\n")
    (project / "sub").mkdir()
    before = await trees.track(str(project / "sub"))
    (project / "sub/x.log").write_text("1")
    (project / "sub/a.txt").write_text("1")
    (project / "outside.txt").write_text("1")
    after = await trees.track(str(project / "sub"))
    assert await trees.changed_files(str(project / "sub"), before, after) == ["a.txt"]
    assert [c.file for c in await trees.diff(str(project / "sub"), before, after, ["a.txt"], 3)] == ["a.txt"]
    await trees.restore(str(project / "sub"), {"a.txt": before})
    assert not (project / "sub/a.txt").exists()
    assert (project / "outside.txt").exists()


async def test_large_new_files_are_left_out(trees: Snapshots, project: Path) -> None:
    before = await trees.track(str(project))
    with (project / "big").open("wb") as file:
        file.truncate(snapshot.FILE_LIMIT_BYTES + 1)
    with (project / "just").open("wb") as file:
        file.truncate(snapshot.FILE_LIMIT_BYTES)
    assert await trees.changed_files(str(project), before, await trees.track(str(project))) == ["just"]


@pytest.mark.parametrize("change", ["changed", "deleted"])
@pytest.mark.parametrize("where", ["", "sub"])
async def test_a_large_file_of_the_repository_comes_back(trees: Snapshots, project: Path, change: str, where: str) -> None:
    folder = project / where
    folder.mkdir(exist_ok=True)
    (folder / "package-lock.json").write_bytes(b"x" * 4_000_000)
    repository(project)
    before, was = await trees.track(str(folder)), state(project)
    if change == "changed":
        (folder / "package-lock.json").write_bytes(b"y" * 3_000_000)
    else:
        (folder / "package-lock.json").unlink()
    after = await trees.track(str(folder))
    assert await trees.changed_files(str(folder), before, after) == ["package-lock.json"]
    assert await trees.restore(str(folder), {"package-lock.json": before}) == []
    assert state(project) == was


async def test_a_directory_tells_whether_it_has_had_a_snapshot(
    trees: Snapshots, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not trees.has_taken(str(project))
    await trees.track(str(project))
    assert trees.has_taken(str(project))
    monkeypatch.setattr(snapshot, "FILES_LIMIT", 0)
    (project / "new.txt").write_text("new")
    with pytest.raises(NoSnapshots):
        await trees.track(str(project))
    assert not trees.has_taken(str(project))


async def test_too_many_files_switch_it_off(trees: Snapshots, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "FILES_LIMIT", 3)
    for number in range(4):
        (project / str(number)).touch()
    with pytest.raises(NoSnapshots, match="more than 3 files"):
        await trees.track(str(project))
    (project / "0").unlink()
    with pytest.raises(NoSnapshots):  # until the server starts anew: it would be slow each time
        await trees.track(str(project))


@pytest.mark.parametrize("where", ["home", "home/..", "/"])
async def test_a_home_directory_gets_none(trees: Snapshots, tmp_path: Path, where: str) -> None:
    (tmp_path / "home").mkdir()
    with pytest.raises(NoSnapshots, match="home directory"):
        await trees.track(str(tmp_path / where))


async def test_nothing_of_a_person_is_overwritten_where_a_file_cannot_go(trees: Snapshots, project: Path) -> None:
    (project / "a").write_text("was")
    (project / "d").mkdir()
    (project / "d/f").write_text("was")
    before = await trees.track(str(project))
    (project / "a").unlink()
    (project / "a").mkdir()
    (project / "a/theirs").write_text("keep me")
    outside = project.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("keep me")
    (project / "d/f").unlink()
    (project / "d").rmdir()
    (project / "d").symlink_to(outside)
    problems = await trees.restore(str(project), {"a": before, "d/f": before, "d/g": before})
    assert [p.split(" was")[0] for p in problems] == ["a", "d/f"]
    assert (project / "a/theirs").read_text() == "keep me"
    assert (outside / "f").read_text() == "keep me"


@pytest.mark.parametrize("inside", [False, True], ids=["to nothing", "to a folder with the same names"])
async def test_a_link_in_the_place_of_a_folder_is_undone(trees: Snapshots, project: Path, *, inside: bool) -> None:
    (project / "d").mkdir()
    (project / "d" / "a").write_text("was here\n")
    if inside:
        (project / "e").mkdir()
        (project / "e" / "a").write_text("another\n")
    was = state(project)
    before = await trees.track(str(project))
    (project / "d" / "a").unlink()
    (project / "d").rmdir()
    (project / "d").symlink_to("e")
    after = await trees.track(str(project))
    assert await trees.changed_files(str(project), before, after) == ["d", "d/a"]
    assert await trees.restore(str(project), {"d": before, "d/a": before}) == []
    assert state(project) == was


async def test_a_tree_that_is_gone_changes_nothing(trees: Snapshots, project: Path) -> None:
    (project / "a").write_text("a")
    before = await trees.track(str(project))
    (project / "a").write_text("b")
    with pytest.raises(SnapshotError):
        await trees.restore(str(project), {"a": before, "b": "0" * 40})
    assert (project / "a").read_text() == "b"


async def test_a_lock_that_a_killed_server_left_is_removed(trees: Snapshots, project: Path, tmp_path: Path) -> None:
    await trees.track(str(project))
    (lock,) = [p.parent / "index.lock" for p in (tmp_path / "snapshots").glob("*/HEAD")]
    lock.touch()
    (project / "a").touch()
    assert await trees.track(str(project))
    assert not lock.exists()


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The git commands of ours that were begun."""
    begun: list[str] = []
    plain = snapshot.git_in

    async def run_and_note(git_dir: Path, directory: str, *arguments: str, **options: Any) -> Any:
        begun.extend(word for word in arguments if word in ("ls-files", "update-index", "write-tree"))
        return await plain(git_dir, directory, *arguments, **options)

    monkeypatch.setattr(snapshot, "git_in", run_and_note)
    return begun


async def test_callers_meanwhile_share_the_next_snapshot(trees: Snapshots, project: Path, commands: list[str]) -> None:
    (project / "a").write_text("1")
    first = asyncio.create_task(trees.track(str(project)))
    async with asyncio.timeout(WAIT_S):
        while "ls-files" not in commands:
            await asyncio.sleep(0)
    (project / "a").write_text("two")  # of this the first one may know or not; those who ask now must know
    given_up, *others = [asyncio.create_task(trees.track(str(project))) for _ in range(5)]
    await asyncio.sleep(0)
    given_up.cancel()
    names = await asyncio.gather(*others)
    assert commands.count("ls-files") == 2
    assert len(set(names)) == 1
    (project / "a").unlink()
    gone = await trees.track(str(project))
    await trees.restore(str(project), {"a": names[0]})
    assert (project / "a").read_text() == "two"
    assert len({await first, names[0], gone}) >= 2
    await trees.close()


async def test_unchanged_files_are_not_written_again(trees: Snapshots, project: Path, commands: list[str]) -> None:
    (project / "a").write_text("1")
    before = await trees.track(str(project))
    commands.clear()
    assert await trees.track(str(project)) == before
    assert commands == ["ls-files"]
    (project / "a").write_text("22")
    after = await trees.track(str(project))
    (project / "a").unlink()
    (project / "b").touch()
    assert len({before, after, await trees.track(str(project))}) == 3
    (project / "b").unlink()
    (project / "a").write_text("1")
    assert await trees.track(str(project)) == before


async def test_a_failed_snapshot_fails_for_all_callers_and_the_next_is_taken(trees: Snapshots, project: Path) -> None:
    moved = project.rename(project.with_name("moved"))
    asked = await asyncio.gather(*(trees.track(str(project)) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in asked] == [SnapshotError] * 3
    moved.rename(project)
    assert await trees.track(str(project))


async def test_closing_ends_what_is_being_made(trees: Snapshots, project: Path) -> None:
    asked = asyncio.create_task(trees.track(str(project)))
    await asyncio.sleep(0)
    await trees.close()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_two_at_once_wait_for_each_other(trees: Snapshots, project: Path) -> None:
    for number in range(20):
        (project / str(number)).write_text(str(number))
    names = await asyncio.gather(*(trees.track(str(project)) for _ in range(5)))
    assert len(set(names)) == 1


async def test_a_folder_that_is_gone_is_tidied_away(trees: Snapshots, project: Path, tmp_path: Path) -> None:
    await trees.track(str(project))
    await trees.tidy()
    assert list((tmp_path / "snapshots").glob("*/shim-tidied"))
    project.rmdir()
    await trees.tidy()
    assert not list((tmp_path / "snapshots").iterdir())


async def test_a_file_is_opened_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[threading.Thread] = []
    real = os.open

    def note_call(*arguments: object) -> int:
        opened.append(threading.current_thread())
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", note_call)
    descriptor = await snapshot.open_descriptor(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    os.close(descriptor)
    assert opened and threading.main_thread() not in opened


async def test_a_descriptor_that_comes_too_late_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()
    descriptors: list[int] = []
    closed = asyncio.Event()
    real_open, real_close = os.open, os.close

    def slow(*arguments: object) -> int:
        began.set()
        assert go_on.wait(WAIT_S)
        descriptors.append(real_open(*arguments))  # type: ignore[arg-type]
        return descriptors[0]

    def note_call(descriptor: int) -> None:
        real_close(descriptor)
        if descriptor in descriptors:
            closed.set()

    monkeypatch.setattr(os, "open", slow)
    monkeypatch.setattr(os, "close", note_call)
    task = asyncio.ensure_future(snapshot.open_descriptor(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600))
    assert await asyncio.to_thread(began.wait, WAIT_S)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    go_on.set()
    await asyncio.wait_for(closed.wait(), WAIT_S)


async def test_a_snapshot_is_private_whatever_the_umask(project: Path, trees: Snapshots, tmp_path: Path) -> None:
    (project / "a.txt").write_text("mine")
    before = os.umask(0)
    try:
        await trees.track(str(project))
        (project / "a.txt").write_text("mine again")
        await trees.track(str(project))
    finally:
        os.umask(before)
    open_to_others = [path for path in (tmp_path / "snapshots").rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    assert open_to_others == []
