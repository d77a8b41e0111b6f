"""stdout and stderr that never block the writer: each has a bounded queue, and a thread that writes.

A pipe holds 64 KiB. If nobody reads it, the next write blocks forever, and with it the event loop and all sessions. These streams
never block: a write that does not fit into the queue is dropped and counted as a whole (a log line is one write). When there is
room again, the count is logged as `output.dropped`; `GET /metrics` always has it.

The thread writes to the file descriptor directly. A thread that hung in Python's own stream would hold its lock and block exit.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Generator, Mapping
from typing import TextIO, cast

import structlog

QUEUE_BYTES = 2**20
"""Size of one stream's queue: some thousand log lines."""
ENTRY_BYTES = 64
"""Bytes that each queued write counts in addition to its data."""
FLUSH_S = 0.5
"""Seconds at exit to write the queued data."""
LOOK_S = 0.1
"""Seconds between checks for the exit while nobody reads the pipe."""
PIECE_BYTES = min(select.PIPE_BUF, 4096)
"""Bytes of one write: a pipe that reports to be writable takes this much without blocking."""

log = structlog.get_logger(__name__)


class BoundedStream(io.TextIOBase):
    """Replaces a text stream that has a file descriptor. `dropped` counts lines."""

    def __init__(self, name: str, original: TextIO, limit_bytes: int = QUEUE_BYTES) -> None:
        self._fd = original.fileno()  # io.UnsupportedOperation, an OSError, if it has none
        self._encoding = original.encoding
        self._name = name
        self._limit_bytes = limit_bytes
        self._lock = threading.RLock()  # reentrant: a warning may be shown while memory is freed in `write`
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._queued_bytes = self._written_bytes = 0
        self._reported = 0
        self._closed_at: float | None = None
        self.dropped = 0
        original.flush()
        self._thread = threading.Thread(target=self._work, name=f"writer of {name}", daemon=True)
        self._thread.start()

    # --- as a stream ------------------------------------------------------------------------------------------

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - typeshed has an attribute here
        return self._encoding

    def fileno(self) -> int:
        """The file descriptor, which libraries use to read the terminal's size."""
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Do nothing, because a writer must never wait. `finish` flushes the queue."""

    def write(self, s: str, /) -> int:
        """Queue the text, or drop it if the queue is full. After `finish`, write it only if that does not block."""
        data = s.encode(self._encoding, "backslashreplace")
        cost = len(data) + ENTRY_BYTES
        with self._lock:
            waiting = self._queued_bytes - self._written_bytes
            if self._closed_at is not None:
                write_now(self._fd, data)
            elif waiting and waiting + cost > self._limit_bytes:
                self.dropped += max(1, s.count("\n"))
            elif data:
                self._queued_bytes += cost
                self._queue.put(data)
        return len(s)

    def finish(self, within_s: float) -> None:
        """Write the queued data and end the thread. Data that is not written in time is lost."""
        self.begin_closing(within_s)
        self._thread.join(within_s + LOOK_S)

    def begin_closing(self, within_s: float) -> None:
        """Start the time limit of `finish` without waiting."""
        with self._lock:
            if self._closed_at is None:
                self._closed_at = time.monotonic() + within_s
                self._queue.put(None)

    # --- the thread -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (data := self._queue.get()) is not None:
            if not self._write(data):
                return
            self._written_bytes += len(data) + ENTRY_BYTES
            missing = self.dropped - self._reported
            if missing and self._queued_bytes - self._written_bytes <= self._limit_bytes // 2:
                self._reported += missing
                log.warning("output.dropped", stream=self._name, lines=missing)

    def _write(self, data: bytes) -> bool:
        """Write data; return False if the time of `finish` is over."""
        rest = memoryview(data)
        while rest:
            if self._closed_at is not None and time.monotonic() >= self._closed_at:
                return False
            try:
                if select.select([], [self._fd], [], LOOK_S)[1]:
                    rest = rest[os.write(self._fd, rest[:PIECE_BYTES]) :]
            except BlockingIOError:
                continue
            except (OSError, ValueError):  # the reader is gone, the disk is full, or the descriptor was closed
                with self._lock:
                    self.dropped += max(1, data.count(b"\n"))
                    self._reported = self.dropped  # a report could not be written either
                return True
        return True


def write_now(fd: int, data: bytes) -> None:
    """Write the first PIECE_BYTES of the data if that does not block."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [fd], [], 0)[1]:
            os.write(fd, data[:PIECE_BYTES])


def last_words(text: str) -> None:
    """Write to stderr why the process ends now. It waits at most FLUSH_S for earlier output."""
    stream = sys.stderr
    if isinstance(stream, BoundedStream):
        stream.write(text)
        stream.finish(FLUSH_S)
    elif stream is not None:  # pyright: ignore[reportUnnecessaryComparison] - None where the process was started without
        with contextlib.suppress(OSError, ValueError):
            write_now(stream.fileno(), text.encode("utf-8", "backslashreplace"))


def dropped_lines() -> Mapping[str, int]:
    """Count the dropped lines by stream; empty if the streams are Python's own."""
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    return {name: stream.dropped for name, stream in streams.items() if isinstance(stream, BoundedStream)}


@contextlib.contextmanager
def bounded_output() -> Generator[None]:
    """Replace sys.stdout and sys.stderr by bounded streams, if they have a file descriptor."""
    before = sys.stdout, sys.stderr
    bounded: list[BoundedStream] = []
    for name, original in zip(("stdout", "stderr"), before, strict=True):
        with contextlib.suppress(OSError, AttributeError):
            stream = BoundedStream(name, original)
            bounded.append(stream)
            setattr(sys, name, cast("TextIO", stream))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in bounded:
            stream.begin_closing(FLUSH_S)
        for stream in bounded:
            stream.finish(FLUSH_S)
