"""Files of a session's directory, for programs: listed, read, written, moved, removed, unpacked. For `/v1/fs`.

Paths are relative to the directory or absolute below it; what leads out (`..`, links) is refused, unless `anywhere` is set.
A file is written beside its place and then put there, so that nobody reads half of one. Links are listed and removed as
what they are, never followed out. All functions block: call them in a thread.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shim.clock import rfc3339
from shim.errors import FileTooLarge, InvalidRequest, PathExists, PathForbidden, PathNotFound, RequestError
from shim.host import archives, disk
from shim.host.disk import printable
from shim.host.files import confine

READ_LIMIT_BYTES = 64 * 2**20
"""Of one file that is read or written; requests have the same bound."""
LIST_LIMIT = 10_000
TOLD_PATHS = 1024
"""Paths in the answer of an upload."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where paths are taken from."""

    directory: str
    anywhere: bool = False

    @property
    def folders(self) -> tuple[str, ...]:
        """What files must lie in."""
        return ("/",) if self.anywhere else (os.path.realpath(self.directory),)

    def path(self, path: str, *, follow: bool = True) -> Path:
        """The place that a path means. `follow`: links at its end too. Raises InvalidRequest."""
        if "\0" in path or not path:
            raise InvalidRequest("A path has at least one character, and no NUL.", None)
        if self.anywhere:
            whole = Path(self.directory, path)
            return Path(os.path.realpath(whole)) if follow else Path(os.path.realpath(whole.parent), whole.name)
        if follow:
            return confine(self.directory, path)
        whole = Path(os.path.normpath(Path(self.directory, path)))
        return confine(self.directory, str(whole.parent)) / whole.name


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file or folder. `path` is absolute; `modified` RFC 3339."""

    name: str
    path: str
    kind: Literal["file", "directory"]
    size: int
    modified: str


def _request_error(what: str, path: str, error: OSError) -> RequestError:
    message = f"Cannot {what} {path}: {error.strerror or error}."
    match error:
        case FileNotFoundError():
            return PathNotFound(message)
        case FileExistsError():
            return PathExists(message)
        case PermissionError():
            return PathForbidden(message)
        case _:
            return InvalidRequest(message, None)


def _entry(path: Path, state: os.stat_result) -> FileEntry:
    kind: Literal["file", "directory"] = "directory" if stat.S_ISDIR(state.st_mode) else "file"
    return FileEntry(printable(path.name), printable(str(path)), kind, state.st_size, rfc3339(state.st_mtime_ns // 1_000_000))


def look(place: Place, path: str) -> FileEntry:
    """What is there. Raises RequestError."""
    where = place.path(path)
    try:
        return _entry(where, where.stat())
    except OSError as error:
        raise _request_error("look at", path, error) from error


def entries(place: Place, path: str) -> list[FileEntry]:
    """A folder's entries, folders first, each by name; at most LIST_LIMIT. Raises RequestError."""
    folder = place.path(path)
    out: list[FileEntry] = []
    try:
        with os.scandir(folder) as found:
            for _, one in zip(range(LIST_LIMIT), found, strict=False):
                with suppress(FileNotFoundError):
                    out.append(
                        _entry(folder / one.name, one.stat(follow_symlinks=not one.is_symlink() or _inside(place, one.path)))
                    )
    except OSError as error:
        raise _request_error("list", path, error) from error
    return sorted(out, key=lambda one: (one.kind != "directory", one.name.casefold()))


def _inside(place: Place, path: str) -> bool:
    """Whether a link leads to something that may be seen and is there."""
    try:
        return place.path(path).exists()
    except Exception:  # whatever is wrong with it: the link itself is told then
        return False


def read(place: Place, path: str) -> bytes:
    """A file's bytes. Raises RequestError; FileTooLarge above READ_LIMIT_BYTES."""
    where = place.path(path)
    try:
        with disk.open_confined(where, place.folders) as (file, state):
            if not disk.is_regular(state):
                raise InvalidRequest(f"{path} is no file.", None)
            if state.st_size > READ_LIMIT_BYTES:
                raise FileTooLarge(f"{path} has {state.st_size} bytes; at most {READ_LIMIT_BYTES} are read.")
            return file.read(READ_LIMIT_BYTES)
    except OSError as error:
        raise _request_error("read", path, error) from error


def write(place: Place, path: str, data: bytes) -> Path:
    """Put these bytes there; missing folders are made. Raises RequestError."""
    where = place.path(path)
    try:
        if where.is_dir():
            raise InvalidRequest(f"{path} is a directory.", None)
        disk.put(where, data, place.folders)
    except OSError as error:
        raise _request_error("write", path, error) from error
    return where


def make_folder(place: Place, path: str) -> Path:
    """A folder and those above it; one that is there is fine. Raises RequestError."""
    where = place.path(path)
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _request_error("make", path, error) from error
    return where


def remove(place: Place, path: str, *, recursive: bool) -> Path:
    """A file, a link itself, an empty folder; a full one only if `recursive`. Never the directory itself. Raises RequestError."""
    where = place.path(path, follow=False)
    if where == Path(os.path.realpath(place.directory)):
        raise InvalidRequest("The session's own directory is not removed.", None)
    try:
        if where.is_dir() and not where.is_symlink():
            if recursive:
                shutil.rmtree(where)
            else:
                where.rmdir()
        else:
            where.unlink()
    except OSError as error:
        raise _request_error("remove", path, error) from error
    return where


def move(place: Place, source: str, target: str, *, overwrite: bool) -> tuple[Path, Path]:
    """Move or rename. Raises RequestError; PathExists if the target is there and may not be overwritten."""
    start, end = place.path(source, follow=False), place.path(target, follow=False)
    try:
        start.lstat()
        if os.path.lexists(end):
            if not overwrite:
                raise PathExists(f"{target} is there already; give overwrite to replace it.")
            if end.is_dir() and not end.is_symlink():
                raise PathExists(f"{target} is a directory, which is not replaced.")
        end.parent.mkdir(parents=True, exist_ok=True)
        start.replace(end)
    except OSError as error:
        raise _request_error(f"move {source} to", target, error) from error
    return start, end


def unpack(place: Place, path: str, archive: bytes) -> tuple[list[str], bool]:
    """A tar archive (also .gz, .bz2, .xz) below a folder. Only files and folders, all below it. Raises RequestError.

    Out: paths of the files, at most TOLD_PATHS, and whether there were more.
    """
    folder = place.path(path)
    told: list[str] = []
    count = 0
    try:
        with archives.open_archive(archive) as (tar, members):
            inner = Place(str(folder))
            targets = [(member, inner.path(member.name.lstrip("/") or ".")) for member in members]
            folder.mkdir(parents=True, exist_ok=True)
            for member, target in targets:
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                file = tar.extractfile(member)
                assert file is not None
                disk.put(target, file.read(), place.folders, 0o755 if member.mode & 0o100 else 0o644)
                count += 1
                if count <= TOLD_PATHS:
                    told.append(str(target))
    except archives.FAULTS as error:
        raise InvalidRequest(f"The body is no tar archive that can be read: {error}.", None) from error
    except OSError as error:
        raise _request_error("unpack into", path, error) from error
    return told, count > TOLD_PATHS
