"""Looking at a disk that others write to, without surprises. Blocking: call these in a thread.

`pathlib` raises for names that are too long and for folders that may not be entered; here such a place is simply not there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

is_folder: Callable[[str | Path], bool] = os.path.isdir
"""Whether a folder is there. Raises nothing."""
is_file: Callable[[str | Path], bool] = os.path.isfile
"""Whether a regular file is there, or a link to one. Raises nothing."""


@contextmanager
def opened(place: Path) -> Generator[tuple[BinaryIO, os.stat_result]]:
    """A file to be read, with what it is now (`is_regular`). `place`: links are resolved in it. Raises OSError.

    Not blocking: a pipe without a writer would hold the thread for ever. No link: one was put there since, and may lead out.
    """
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        yield file, os.fstat(descriptor)


def head(path: str | Path, limit: int) -> tuple[bytes, int]:
    """The first `limit` bytes of a file and its size; links are followed. Raises OSError, also for what has no contents of its
    own: reading a device may never end."""
    with opened(Path(os.path.realpath(path))) as (file, state):
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
