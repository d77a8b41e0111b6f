"""A private file for queued events for which memory has no room, while NATS takes nothing.

    put(events) -> Extent -> read(extent) -> the same events -> free(extent)

The file has no name: nobody else can open it, and the operating system removes it with the process, also after `kill -9`. Its
events were acknowledged to nobody (docs/adr/0031). It is written at its end, and emptied when no extent is left.

Places in the file are given out in the event loop; threads only read and write at them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from zlib import crc32

from shim.lib.errors import StoreError

LENGTH = "Q"
"""The type of the lengths before the events of an extent."""
LENGTH_BYTES = array(LENGTH).itemsize
UNREADABLE = (
    "Queued events cannot be read back from the disk: {reason}. It is tried again once a second. If the disk stays as it is, stop"
    " this server; another one then ends the turn with what NATS has."
)


@dataclass(frozen=True, slots=True)
class Extent:
    """A place in the file: `count` events, with their lengths before them. `checksum`: of all its bytes."""

    offset: int
    size: int
    count: int
    checksum: int


class Spool:
    """The file. It is created by the first `put`.

    In: `directory`, in which the disk has room for it (None: the one for temporary files); `limit`, its maximum bytes.
    """

    def __init__(self, directory: Path | None, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._lock = threading.Lock()
        self._file: FileIO | None = None
        self._end = self._used = 0
        self._is_long = self._is_closed = False

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._end

    async def put(self, events: Sequence[bytes]) -> Extent:
        """Write events; one call at a time. Raises StoreError if the file or the disk is full, or fails."""
        offset, size = self._end, sum(map(len, events)) + len(events) * LENGTH_BYTES
        if offset + size > self._limit:
            raise StoreError(f"the file for queued events has reached its maximum of {self._limit} bytes")
        self._end += size
        self._used += size
        try:
            checksum = await asyncio.to_thread(self._write, offset, events)
        except OSError as error:
            self._end = offset
            self._forget(size)
            place = self._directory or gettempdir()
            raise StoreError(f"queued events cannot be written to disk in {place}: {error.strerror or error}") from error
        return Extent(offset, size, len(events), checksum)

    async def read(self, extent: Extent) -> tuple[bytes, ...]:
        """The events of an extent. Raises StoreError if the disk does not give back what was written."""
        try:
            return await asyncio.to_thread(self._read, extent)
        except OSError as error:
            raise StoreError(UNREADABLE.format(reason=error.strerror or error)) from error

    def free(self, extent: Extent) -> None:
        """Forget an extent. `trim` gives the space back, when none is left."""
        self._forget(extent.size)

    async def trim(self) -> None:
        """Give the file's space back if it has no extents."""
        if self._is_long and self._end == 0:
            self._is_long = False
            await asyncio.to_thread(self._cut)

    async def close(self) -> None:
        """Remove the file. May be called again."""
        await asyncio.to_thread(self._close)

    def _forget(self, size: int) -> None:
        self._used -= size
        if self._used == 0:
            self._end = 0

    # --- in threads --------------------------------------------------------------------------------------------------

    def _open(self) -> FileIO:
        if self._is_closed:
            raise OSError("the store is closed")
        if self._file is None:
            self._file = TemporaryFile(buffering=0, dir=self._directory)  # noqa: SIM115 - `close` closes it
        return self._file

    def _write(self, offset: int, events: Sequence[bytes]) -> int:
        data = b"".join((array(LENGTH, map(len, events)).tobytes(), *events))
        with self._lock:
            file, rest = self._open().fileno(), memoryview(data)
            self._is_long = True
            while rest:
                written = os.pwrite(file, rest, offset)
                rest, offset = rest[written:], offset + written
        return crc32(data)

    def _read(self, extent: Extent) -> tuple[bytes, ...]:
        data = bytearray()
        with self._lock:
            file = self._open().fileno()
            while piece := os.pread(file, extent.size - len(data), extent.offset + len(data)):
                data += piece
        if len(data) != extent.size or crc32(data) != extent.checksum:
            raise OSError("the disk returned other bytes")
        lengths = array(LENGTH, bytes(data[: extent.count * LENGTH_BYTES]))
        ends = accumulate(lengths, initial=extent.count * LENGTH_BYTES)
        return tuple(bytes(data[begin:end]) for begin, end in pairwise(ends))

    def _cut(self) -> None:
        with self._lock, suppress(OSError):  # then the next one does it
            if self._file is not None:
                os.ftruncate(self._file.fileno(), self._end)  # not 0 if a `put` has come meanwhile

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._file is not None:
                self._file.close()
                self._file = None
