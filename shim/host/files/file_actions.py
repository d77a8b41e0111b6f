"""Lists, reads, writes, moves, removes and unpacks files of a session's directory, for `/v1/fs`. Blocking: use a thread.

Paths are relative to the directory or absolute below it. Paths that lead out (`..`, links) are refused, unless `anywhere` is
set. Writes are atomic, so that no reader sees half of a file. A link is listed and removed as a link, and never followed out.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import SEEK_SET, BytesIO
from pathlib import Path
from typing import IO, Literal, cast

from shim.host.files.contents import confine
from shim.lib import disk
from shim.lib.clock import rfc3339
from shim.lib.disk import printable
from shim.lib.errors import FileTooLarge, InvalidRequest, PathExists, PathForbidden, PathNotFound, RequestError

# --- archives that nobody trusts --------------------------------------------------------------------------------

UNPACK_LIMIT_BYTES = 512 * 2**20
"""Maximum unpacked size of all files of an archive together."""
UNPACK_LIMIT_FILES = 20_000
HEADER_LIMIT_BYTES = 64 * 2**10
"""Maximum size of one read of a header. File names and attributes fit into it."""
HEADERS_LIMIT_BYTES = 32 * 2**20
"""Maximum size of all headers of an archive together."""
NAME_LIMIT = 4096
XZ_LIMIT_BYTES = 128 * 2**20
"""Maximum memory for unpacking xz. Its highest preset needs 65 MiB."""
CHUNK_BYTES = 2**20
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
FAULTS = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError, OverflowError, RecursionError)
"""Exceptions that the libraries raise for broken or malicious archives."""


class _LimitedReader:
    """A file object for `tarfile` over the unpacked bytes that limits the size of each read and the position."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._headers = 0
        self.in_headers = True

    def read(self, size: int = -1) -> bytes:
        if self.in_headers:
            self._headers += max(size, 0)
            if not 0 <= size <= HEADER_LIMIT_BYTES or self._headers > HEADERS_LIMIT_BYTES:
                raise too_large(f"headers of more than {HEADER_LIMIT_BYTES} bytes each or {HEADERS_LIMIT_BYTES} together")
        return self._file.read(size)

    def seek(self, position: int, whence: int = SEEK_SET) -> int:
        if not 0 <= position <= UNPACK_LIMIT_BYTES + HEADERS_LIMIT_BYTES:
            raise too_large(f"more than {UNPACK_LIMIT_BYTES} bytes")
        return self._file.seek(position, whence)

    def tell(self) -> int:
        return self._file.tell()


def too_large(excess: str) -> FileTooLarge:
    """The error for an archive that exceeds a bound."""
    return FileTooLarge(f"The archive has {excess}. Nothing was unpacked.")


@contextmanager
def open_archive(archive: bytes) -> Generator[tuple[tarfile.TarFile, list[tarfile.TarInfo]]]:
    """Open a tar archive (also .gz, .bz2, .xz) and list its members. Raises RequestError, and one of FAULTS.

    An archive with members other than files and folders is refused.
    """
    limited = _LimitedReader(_unpack(archive))
    with tarfile.open(fileobj=cast("IO[bytes]", limited), mode="r:") as tar:
        members = _members(tar)
        limited.in_headers = False
        yield tar, members


def _unpack(archive: bytes) -> IO[bytes]:
    kind = next((kind for magic, kind in MAGIC.items() if archive.startswith(magic)), None)
    match kind:
        case "gzip":
            return cast("IO[bytes]", gzip.GzipFile(fileobj=BytesIO(archive)))
        case "bzip2":
            return cast("IO[bytes]", bz2.BZ2File(BytesIO(archive)))
        case "xz":
            _check_xz(archive)
            return cast("IO[bytes]", lzma.LZMAFile(BytesIO(archive)))
        case _:
            return BytesIO(archive)


def _check_xz(archive: bytes) -> None:
    """Unpack the archive once with a memory limit, which `lzma.LZMAFile` lacks. Raises FileTooLarge, lzma.LZMAError."""
    size, rest = 0, archive
    while rest:
        decompressor = lzma.LZMADecompressor(memlimit=XZ_LIMIT_BYTES)
        data = rest
        while not decompressor.eof:
            size += len(decompressor.decompress(data, CHUNK_BYTES))
            if size > UNPACK_LIMIT_BYTES + HEADERS_LIMIT_BYTES:
                raise too_large(f"more than {UNPACK_LIMIT_BYTES} bytes")
            if decompressor.needs_input and not data:
                raise EOFError("it ends in the middle")
            data = b""
        rest = decompressor.unused_data.lstrip(b"\0")


def _members(tar: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """List the files and folders of an archive. It stops at the first member that exceeds a bound."""
    members: list[tarfile.TarInfo] = []
    size = 0
    for member in tar:
        members.append(member)
        size += member.size
        if not (member.isfile() or member.isdir()) or member.issparse():
            raise InvalidRequest(f"{member.name[:200]} in the archive is neither file nor folder. Nothing was unpacked.", None)
        if member.size < 0 or len(member.name) > NAME_LIMIT:
            raise InvalidRequest(f"{member.name[:200]} in the archive has an impossible size or name.", None)
        if size > UNPACK_LIMIT_BYTES or len(members) > UNPACK_LIMIT_FILES:
            raise too_large(f"more than {UNPACK_LIMIT_FILES} entries or {UNPACK_LIMIT_BYTES} bytes")
    return members


# --- files of a directory ---------------------------------------------------------------------------------------

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
        with open_archive(archive) as (tar, members):
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
    except FAULTS as error:
        raise InvalidRequest(f"The body is no tar archive that can be read: {error}.", None) from error
    except OSError as error:
        raise _request_error("unpack into", path, error) from error
    return paths, count > LISTED_PATHS_LIMIT
