"""One server per data directory: a lock file that holds the pid of its owner.

The lock is the kernel's (`flock`), so it ends with the process, also after `kill -9`; the file stays and means
nothing by itself. The descriptor is not inherited by agents.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from shim.errors import StoreError

LOCK_NAME = "server.lock"


class DirectoryLock:
    """The exclusive right to a data directory. Owns one file descriptor while it is held."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_NAME
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take it. Raises StoreError that names the other server's pid, or what is wrong with the directory."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(self._path.parent, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise StoreError(
                f"Another opencode-shim (pid {owner}) is using {self._path.parent}. Stop it, or give this one a data "
                f"directory of its own."
            ) from error
        except OSError as error:
            os.close(fd)
            raise StoreError(
                f"Cannot lock {self._path}: {error.strerror}. Use a data directory on a local file system."
            ) from error
        self._fd = fd
        self._write(f"{os.getpid()}\n")

    def release(self) -> None:
        """Give it back; again is fine."""
        if self._fd is not None:
            self._write("")
            os.close(self._fd)
            self._fd = None

    def _write(self, text: str) -> None:
        """Who holds it. The lock holds without it too, so a full disk is no reason to fail here."""
        assert self._fd is not None
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)


def make_directory(directory: Path) -> None:
    """Make a data directory that only its owner can read; one that exists stays as it is.

    Raises: StoreError if it cannot be made.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(directory, error) from error


def unusable(directory: Path, error: OSError) -> StoreError:
    """The sentence for a data directory that cannot be used."""
    return StoreError(
        f"Cannot use the data directory {directory}: {error.strerror or error}. Make it writable for you (uid {os.geteuid()}), "
        f"or choose another one."
    )
