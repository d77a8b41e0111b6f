"""Locks a data directory: servers share it, or one program has it alone.

    alone     while the schema is migrated, a damaged file is moved aside, a backup is restored
    shared    while a server runs

The kernel's lock (`flock`) ends with the process, also after `kill -9`. The file stays, and means nothing by itself. Agents do
not inherit the descriptor. Servers of older versions always lock it alone.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from shim.lib.errors import StoreError
from shim.store.servers import present

LOCK_NAME = "server.lock"
SHARE_S = 3.0
"""Seconds that a server waits for a program that has the directory alone. A migration takes less."""
LOOK_EVERY_S = 0.05


class DirectoryLock:
    """The lock of a data directory. Owns one file descriptor while it is held."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / LOCK_NAME
        self._fd: int | None = None

    def acquire(self) -> None:
        """Lock it alone. Raises StoreError that names the user of the directory, or its fault."""
        self._open()
        if not self._flock(fcntl.LOCK_EX):
            raise self._in_use_error()
        self._write(f"{os.getpid()}\n")

    def join(self) -> bool:
        """Lock it alone if it is unused (True), else shared with other servers (False). Blocks for at most SHARE_S.

        Raises StoreError as `acquire`, if another program has it alone all the time.
        """
        self._open()
        until = time.monotonic() + SHARE_S
        while True:
            if self._flock(fcntl.LOCK_EX):
                self._write(f"{os.getpid()}\n")
                return True
            if self._flock(fcntl.LOCK_SH):
                return False
            if time.monotonic() > until:
                raise self._in_use_error()
            time.sleep(LOOK_EVERY_S)

    def share(self) -> None:
        self._write("")
        assert self._fd is not None
        fcntl.flock(self._fd, fcntl.LOCK_SH)  # another server that has it alone for a moment will share it

    def _open(self) -> None:
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(self._directory, error) from error

    def _flock(self, how: int) -> bool:
        assert self._fd is not None
        try:
            fcntl.flock(self._fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            self._close()
            raise StoreError(
                f"Cannot lock {self._path}: {error.strerror}. Use a data directory on a local file system."
            ) from error
        return True

    def _in_use_error(self) -> StoreError:
        assert self._fd is not None
        pids = [str(server.pid) for server in present(self._directory).living.values()]
        owner = ", ".join(pids) or os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
        self._close()
        return StoreError(
            f"Another opencode-shim (pid {owner}) is using {self._directory}. Stop it, or give this one a data directory of its "
            "own."
        )

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def release(self) -> None:
        """Release the lock. May be called again."""
        if self._fd is not None:
            self._write("")
            self._close()

    def _write(self, text: str) -> None:
        """Write the holder's pid into the file. The lock holds without it, so a full disk is no error."""
        assert self._fd is not None
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)


def make_directory(directory: Path) -> None:
    """Create a data directory that only its owner can read. An existing one is not changed.

    Raises StoreError if it cannot be created.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(directory, error) from error


def unusable(directory: Path, error: OSError) -> StoreError:
    """The error text for an unusable data directory."""
    return StoreError(
        f"Cannot use the data directory {directory}: {error.strerror or error}. Make it writable for you (uid {os.geteuid()}), "
        f"or choose another one."
    )
