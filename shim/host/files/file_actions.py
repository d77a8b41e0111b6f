"""Lists, reads, writes, moves, removes and unpacks files of a session's directory, for `/v1/fs`. Blocking: use a thread.

Paths are relative to the directory or absolute below it. Paths that lead out (`..`, links) are refused, unless `anywhere` is
set. Writes are atomic, so that no reader sees half of a file. A link is listed and removed as a link, and never followed out.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shim.host.files import archives
from shim.host.files.contents import confine
from shim.lib import disk
from shim.lib.clock import rfc3339
from shim.lib.disk import printable
from shim.lib.errors import FileTooLarge, InvalidRequest, PathExists, PathForbidden, PathNotFound, RequestError

READ_LIMIT_BYTES = 64 * 2**20
"""Maximum size of one file to read. Request bodies have the same bound."""
LIST_LIMIT = 10_000
LISTED_PATHS_LIMIT = 1024
"""Maximum paths in the answer to an upload."""


@dataclass(frozen=True, slots=True)
class Place:
    """The directory that paths are relative to. `anywhere`: they may also lead out of it."""

    directory: str
    anywhere: bool = False

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that must hold the files."""
        return ("/",) if self.anywhere else (os.path.realpath(self.directory),)

    def path(self, path: str, *, follow: bool = True) -> Path:
        """Resolve a path. `follow`: also resolve a link at its end. Raises InvalidRequest."""
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
    """A file or folder. `path` is absolute, `size` in bytes, `modified` RFC 3339."""

    name: str
    path: str
    kind: Literal["file", "directory"]
    size: int
    modified: str


def _request_error(action: str, path: str, error: OSError) -> RequestError:
    message = f"Cannot {action} {path}: {error.strerror or error}."
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
    """Describe the file or folder at a path. Raises RequestError."""
    where = place.path(path)
    try:
        return _entry(where, where.stat())
    except OSError as error:
        raise _request_error("look at", path, error) from error


def entries(place: Place, path: str) -> list[FileEntry]:
    """List a folder's entries, folders first, then by name; at most LIST_LIMIT. Raises RequestError."""
    folder = place.path(path)
    listed: list[FileEntry] = []
    try:
        with os.scandir(folder) as scan:
            for _, entry in zip(range(LIST_LIMIT), scan, strict=False):
                with suppress(FileNotFoundError):
                    state = entry.stat(follow_symlinks=not entry.is_symlink() or _inside(place, entry.path))
                    listed.append(_entry(folder / entry.name, state))
    except OSError as error:
        raise _request_error("list", path, error) from error
    return sorted(listed, key=lambda entry: (entry.kind != "directory", entry.name.casefold()))


def _inside(place: Place, path: str) -> bool:
    """Whether a link leads to an existing path that the client may see."""
    try:
        return place.path(path).exists()
    except Exception:  # whatever the error, the caller then lists the link itself
        return False


def read(place: Place, path: str) -> bytes:
    """Read a file's bytes. Raises RequestError; FileTooLarge above READ_LIMIT_BYTES."""
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
    """Write a file; missing folders are created. Raises RequestError."""
    where = place.path(path)
    try:
        if where.is_dir():
            raise InvalidRequest(f"{path} is a directory.", None)
        disk.put(where, data, place.folders)
    except OSError as error:
        raise _request_error("write", path, error) from error
    return where


def make_folder(place: Place, path: str) -> Path:
    """Create a folder and its parents; an existing one is no error. Raises RequestError."""
    where = place.path(path)
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _request_error("make", path, error) from error
    return where


def remove(place: Place, path: str, *, recursive: bool) -> Path:
    """Remove a file, a link, or an empty folder; a full folder only if `recursive`. Raises RequestError.

    It refuses to remove the session's own directory.
    """
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
    """Move or rename. Raises RequestError; PathExists if the target exists and may not be overwritten."""
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
    """Unpack a tar archive (also .gz, .bz2, .xz) below a folder. Raises RequestError.

    All members must be files or folders below it. Out: paths of the files, at most LISTED_PATHS_LIMIT, and whether there were
    more.
    """
    folder = place.path(path)
    paths: list[str] = []
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
                if count <= LISTED_PATHS_LIMIT:
                    paths.append(str(target))
    except archives.FAULTS as error:
        raise InvalidRequest(f"The body is no tar archive that can be read: {error}.", None) from error
    except OSError as error:
        raise _request_error("unpack into", path, error) from error
    return paths, count > LISTED_PATHS_LIMIT
