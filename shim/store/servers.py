"""Finds the servers of a data directory: each has a file in `servers/`, locked for as long as its process lives.

The kernel's lock (`flock`) ends with the process, also after `kill -9`. A file without a lock belongs to a dead server. It stays
until another server has ended what the dead one left behind (`forget`).
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shim.lib.errors import StoreError

FOLDER = "servers"
SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class ServerRef:
    """A server. `url` is empty until it listens; `host` names its machine if that may be another one; `name` is for people."""

    id: str
    pid: int = 0
    url: str = ""
    host: str = ""
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or str(self)

    def __str__(self) -> str:
        name = f"pid {self.pid} on {self.host}" if self.host else f"pid {self.pid}"
        return f"{name}, {self.url}" if self.url else name


@dataclass(frozen=True, slots=True)
class Present:
    """The servers of a data directory: living ones by id, and ids of dead ones with a file."""

    living: dict[str, ServerRef]
    dead: tuple[str, ...] = ()


def new_server_id() -> str:
    """A new unique id of a server."""
    return secrets.token_hex(8)


def present(directory: Path) -> Present:
    """Find the servers of a data directory. Blocking; changes nothing."""
    living: dict[str, ServerRef] = {}
    dead: list[str] = []
    for file in sorted((directory / FOLDER).glob(f"*{SUFFIX}")):
        server_id = file.name.removesuffix(SUFFIX)
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # it has just left, or belongs to another user
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            dead.append(server_id)
        except BlockingIOError:
            living[server_id] = _read(server_id, file)
        finally:
            os.close(descriptor)
    return Present(living, tuple(dead))


def forget(directory: Path, server_id: str) -> None:
    """Remove the file of a dead server, of which nothing is left."""
    (directory / FOLDER / f"{server_id}{SUFFIX}").unlink(missing_ok=True)


def _read(server_id: str, file: Path) -> ServerRef:
    try:
        content = json.loads(file.read_text("utf-8"))
        return ServerRef(server_id, int(content["pid"]), str(content["url"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ServerRef(server_id)  # the server is about to write it


class Presence:
    """This server's file. Owns one file descriptor between `enter` and `leave`."""

    def __init__(self, directory: Path, server_id: str) -> None:
        self._path = directory / FOLDER / f"{server_id}{SUFFIX}"
        self._descriptor: int | None = None

    def enter(self) -> None:
        """Create and lock this server's file. Raises StoreError. Its name is given after the lock, so it never looks dead."""
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            early = self._path.with_suffix(".new")
            descriptor = os.open(early, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._descriptor = descriptor
            self.announce("")
            early.rename(self._path)
        except OSError as error:
            raise StoreError(
                f"Cannot lock {self._path}: {error.strerror or error}. Use a data directory on a local file system that you may"
                " write to."
            ) from error

    def announce(self, url: str) -> None:
        """Write where this server listens. A full disk is no error: others then know only that the server exists."""
        if self._descriptor is not None:
            with suppress(OSError):
                text = json.dumps({"pid": os.getpid(), "url": url}).encode()
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, text, 0)

    def leave(self) -> None:
        """Remove this server's file. May be called again."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = None
