"""Reads untrusted tar archives within bounds, whatever their headers claim. Blocking: call it in a thread.

A few kilobytes can unpack to gigabytes, a header can claim to be that large, and xz can ask for that much memory. The reader
checks each bound before it reads, and it lists all members before the caller writes the first one.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from io import SEEK_SET, BytesIO
from typing import IO, cast

from shim.lib.errors import FileTooLarge, InvalidRequest

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
