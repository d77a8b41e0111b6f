"""Looking at a disk that others write to, without surprises. Blocking: call these in a thread.

`pathlib` raises for names that are too long and for folders that may not be entered; here such a place is simply not there.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

is_folder: Callable[[str | Path], bool] = os.path.isdir
"""Whether a folder is there. Raises nothing."""
exists: Callable[[str | Path], bool] = os.path.exists
"""Whether anything is there. Raises nothing."""
is_file: Callable[[str | Path], bool] = os.path.isfile
"""Whether a regular file is there, or a link to one. Raises nothing."""

WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a folder on the way to a file is opened: to go on from, not to read, and never a link."""
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
WRITE = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a file is opened: never a link, and without waiting for the other end of a pipe."""


@contextmanager
def open_file(place: Path) -> Generator[tuple[BinaryIO, os.stat_result]]:
    """A file to be read, with what it is now (`is_regular`). `place`: links are resolved in it. Raises OSError.

    Not blocking: a pipe without a writer would hold the thread for ever. No link: one was put there since, and may lead out.
    """
    descriptor = os.open(place, READ)
    with os.fdopen(descriptor, "rb") as file:
        yield file, os.fstat(descriptor)


class OutsideError(OSError):
    """The path leads out of the folders that it must lie in, by `..` or by a link."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(errno.EACCES, "it lies outside of the folders that may be read", str(path))


@contextmanager
def open_confined(path: str | Path, folders: Sequence[str]) -> Generator[tuple[BinaryIO, os.stat_result]]:
    """Open a file for reading that lies in one of `folders`, with what it is now (`is_regular`).

    In: `folders`, absolute and resolved; none means anywhere. Links may lead from place to place inside of them. The way from
    the folder to the file is walked without following links, so that one that is put there meanwhile does not lead out.
    Raises OutsideError, OSError, and ValueError for a NUL in the path.
    """
    place = os.path.realpath(path)
    if not folders:
        with open_file(Path(place)) as both:
            yield both
        return
    folder = next((one for one in folders if is_inside(place, one)), None)
    if folder is None or place == folder:
        raise OutsideError(path) if folder is None else IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with _folder_above(place, folder) as (descriptor, name):
        found = os.open(name, READ, dir_fd=descriptor)
    with os.fdopen(found, "rb") as file:
        yield file, os.fstat(found)


@contextmanager
def confined_for_writing(path: str | Path, folders: Sequence[str]) -> Generator[tuple[BinaryIO, os.stat_result]]:
    """Open a file for writing in its place, as `confined` does for reading; missing folders and the file are made.

    What is there stays until it is written over: look at what it is (`is_regular`) first, then truncate.
    Raises OutsideError, OSError, and ValueError for a NUL in the path.
    """
    place = os.path.realpath(path)
    folder = next((one for one in folders if is_inside(place, one)), None)
    if folder is None or place == folder:
        raise OutsideError(path) if folder is None else IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with _folder_above(place, folder, make=True) as (descriptor, name):
        found = os.open(name, WRITE, 0o666, dir_fd=descriptor)
    with os.fdopen(found, "wb") as file:
        yield file, os.fstat(found)


def put(path: str | Path, data: bytes, folders: Sequence[str], mode: int | None = None) -> None:
    """Write a file in one of `folders` beside its place and then put it there, so that nobody reads half of one.

    Missing folders are made. Its mode is `mode`, else the one of the file that was there. No link is followed on the way, so one
    that is put there meanwhile does not lead out. Raises OutsideError, OSError, and ValueError for a NUL in the path.
    """
    place = os.path.realpath(path)
    folder = next((one for one in folders if is_inside(place, one)), None)
    if folder is None or place == folder:
        raise OutsideError(path) if folder is None else IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with _folder_above(place, folder, make=True) as (above, name):
        temporary = f".upload-{secrets.token_hex(8)}"
        made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=above)
        try:
            with os.fdopen(made, "wb") as file:
                file.write(data)
                if mode is None:
                    with suppress(FileNotFoundError):
                        before = os.stat(name, dir_fd=above, follow_symlinks=False)
                        mode = stat.S_IMODE(before.st_mode) if is_regular(before) else None
                if mode is not None:
                    os.fchmod(made, mode)
            os.replace(temporary, name, src_dir_fd=above, dst_dir_fd=above)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=above)
            raise


@contextmanager
def _folder_above(place: str, folder: str, *, make: bool = False) -> Generator[tuple[int, str]]:
    """A descriptor of the folder that holds `place`, reached from `folder` without following a link, and the name in it."""
    *above, name = Path(place).relative_to(folder).parts
    descriptor = os.open(folder, WALK)
    try:
        for step in above:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(step, dir_fd=descriptor)
            below = os.open(step, WALK, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor, name
    finally:
        os.close(descriptor)


def is_inside(place: str, folder: str) -> bool:
    """Whether a resolved path is this resolved folder or lies below it."""
    return place == folder or place.startswith(folder.rstrip(os.sep) + os.sep)


def head(path: str | Path, limit: int, folders: Sequence[str] = ()) -> tuple[bytes, int]:
    """The first `limit` bytes of a file in `folders` (none: anywhere) and its size; links are followed inside of them.

    Raises OSError, also for what has no contents of its own (reading a device may never end), and OutsideError.
    """
    with open_confined(path, folders) as (file, state):
        if not is_regular(state):
            raise OSError(errno.EINVAL, "it is no regular file")
        return file.read(limit), state.st_size


def private_folder(folder: Path) -> None:
    """Make a folder for its owner alone, and those above it that are missing, whatever the umask. Raises OSError."""
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def is_regular(state: os.stat_result) -> bool:
    """Whether that is a file with contents: no folder, pipe or device."""
    return stat.S_ISREG(state.st_mode)


def printable(name: str) -> str:
    """A name as it can stand in JSON: what is no UTF-8 is replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
