"""File access that is safe on disks that other programs write to. Blocking: call it in a thread.

`pathlib` raises for names that are too long and for folders without access. These functions report such paths as missing.
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

from universal.lib.paths import is_in

is_folder: Callable[[str | Path], bool] = os.path.isdir
"""Whether a folder exists. Never raises."""
exists: Callable[[str | Path], bool] = os.path.exists
"""Whether the path exists. Never raises."""
is_file: Callable[[str | Path], bool] = os.path.isfile
"""Whether the path is a regular file or a link to one. Never raises."""

WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open a folder for path traversal only, and never follow a link."""
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
WRITE = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags of READ and WRITE open no link and do not wait for the other end of a pipe."""


@contextmanager
def open_file(place: Path) -> Generator[tuple[BinaryIO, os.stat_result]]:
    """Open a file for reading; yield it with its state (see `is_regular`). Links in `place` are resolved. Raises OSError.

    It does not block: a pipe without a writer would hold the thread forever. It refuses a link, because another program may
    have put it there after the caller's check.
    """
    descriptor = os.open(place, READ)
    with os.fdopen(descriptor, "rb") as file:
        yield file, os.fstat(descriptor)


class OutsideError(OSError):
    """The path leaves its allowed folders, through `..` or a link."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(errno.EACCES, "it lies outside of the folders that may be read", str(path))


@contextmanager
def open_confined(path: str | Path, folders: Sequence[str]) -> Generator[tuple[BinaryIO, os.stat_result]]:
    """Open a file below one of `folders` for reading; yield it with its state (see `is_regular`).

    In: `folders`, absolute and resolved; if empty, any path is allowed. Links may point elsewhere inside of the folders. After
    resolving them, it walks from the folder to the file without following links, so that a link created meanwhile cannot
    lead out.
    Raises OutsideError, OSError, and ValueError for a NUL in the path.
    """
    if not folders:
        with open_file(Path(os.path.realpath(path))) as file_and_state:
            yield file_and_state
        return
    with _folder_above(path, folders) as (descriptor, name):
        opened = os.open(name, READ, dir_fd=descriptor)
    with os.fdopen(opened, "rb") as file:
        yield file, os.fstat(opened)


@contextmanager
def open_confined_for_writing(path: str | Path, folders: Sequence[str]) -> Generator[tuple[BinaryIO, os.stat_result]]:
    """Open a file for writing in place, confined as in `open_confined`. Missing folders and the file are created.

    It does not truncate the file: check `is_regular` first, then write and truncate.
    Raises OutsideError, OSError, and ValueError for a NUL in the path.
    """
    with _folder_above(path, folders, make=True) as (descriptor, name):
        opened = os.open(name, WRITE, 0o666, dir_fd=descriptor)
    with os.fdopen(opened, "wb") as file:
        yield file, os.fstat(opened)


def put(path: str | Path, data: bytes, folders: Sequence[str], mode: int | None = None) -> None:
    """Write a file in one of `folders` atomically, so that no reader sees half of it.

    Missing folders are created. The mode is `mode`, else that of the replaced file. It follows no link on the way, so that a link
    created meanwhile cannot lead out. Raises OutsideError, OSError, and ValueError for a NUL in the path.
    """
    with _folder_above(path, folders, make=True) as (above, name):
        temporary = f".upload-{secrets.token_hex(8)}"
        descriptor = os.open(
            temporary,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o666 if mode is None else mode,
            dir_fd=above,
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                if mode is None:
                    with suppress(FileNotFoundError):
                        before = os.stat(name, dir_fd=above, follow_symlinks=False)
                        mode = stat.S_IMODE(before.st_mode) if is_regular(before) else None
                if mode is not None:
                    os.fchmod(descriptor, mode)
            os.replace(temporary, name, src_dir_fd=above, dst_dir_fd=above)
        except BaseException:  # whatever happens, no temporary file stays
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=above)
            raise


@contextmanager
def _folder_above(path: str | Path, folders: Sequence[str], *, make: bool = False) -> Generator[tuple[int, str]]:
    """Open the parent of a path in one of `folders`, walking from the folder without following a link.

    Yields (descriptor, name in it). Raises OutsideError, and OSError for the folder itself.
    """
    place = os.path.realpath(path)
    folder = next((allowed for allowed in folders if is_in(place, (allowed,))), None)
    if folder is None or place == folder:
        raise OutsideError(path) if folder is None else IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
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


def head(path: str | Path, limit: int, folders: Sequence[str] = ()) -> tuple[bytes, int]:
    """Read the first `limit` bytes of a file in `folders` (if empty: anywhere), and its size in bytes.

    It follows links inside of `folders`. Raises OutsideError, and OSError, also for devices and pipes, whose reading may never
    end.
    """
    with open_confined(path, folders) as (file, state):
        if not is_regular(state):
            raise OSError(errno.EINVAL, "it is no regular file")
        return file.read(limit), state.st_size


def read_small(path: str | Path, limit: int, folders: Sequence[str] = ()) -> bytes:
    """Read a file of at most `limit` bytes, as `head`. Raises OSError for a larger one too."""
    data, _ = head(path, limit + 1, folders)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit} bytes")
    return data


def put_private(path: Path, text: str) -> None:
    """Write a file that only this user may read, atomically, with missing folders above it. Follows a link. Raises OSError."""
    private_folder(path.parent)
    place = path.resolve()
    put(place, text.encode(), (str(place.parent),), 0o600)


def private_folder(folder: Path) -> None:
    """Create a folder, and missing parents, with mode 0700 whatever the umask. Raises OSError."""
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def is_regular(state: os.stat_result) -> bool:
    """Whether this is a regular file: no folder, pipe or device."""
    return stat.S_ISREG(state.st_mode)


def printable(name: str) -> str:
    """A file name that JSON can hold: bytes that are not UTF-8 are replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
