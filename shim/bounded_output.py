"""stdout and stderr that never block who writes to them: a bounded queue for each, and a thread that writes.

A pipe takes 64 KiB. When nobody reads it, the next write waits for ever, and with it the event loop and every session. Here
nobody waits: what does not fit into the queue is dropped and counted, in whole writes (a line of the log is one). When there is
room again, the count is logged as `output.dropped`; `GET /metrics` has it at any time.

The thread writes to the file descriptor itself. A thread that hung in Python's own stream would hold its lock, and hang the exit.
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
"""So much waits for one stream; some thousand lines of the log."""
ENTRY_BYTES = 64
"""What each write costs beside its bytes."""
FLUSH_S = 0.5
"""At the exit, for what still waits."""
LOOK_S = 0.1
"""Between two looks whether the exit has come, while nobody reads."""
PIECE_BYTES = min(select.PIPE_BUF, 4096)
"""Written at once: so much fits when a pipe says that it can be written to."""

log = structlog.get_logger(__name__)


class BoundedStream(io.TextIOBase):
    """Takes the place of a text stream with a file descriptor. `dropped` counts lines."""

    def __init__(self, name: str, original: TextIO, limit_bytes: int = QUEUE_BYTES) -> None:
        self._fd = original.fileno()  # io.UnsupportedOperation, an OSError, if it has none
        self._encoding = original.encoding
        self._name = name
        self._limit_bytes = limit_bytes
        self._lock = threading.RLock()  # reentrant: a warning may be shown while memory is freed in `write`
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._queued = self._done = 0
        self._reported = 0
        self._closed_at: float | None = None
        self.dropped = 0
        original.flush()
        self._thread = threading.Thread(target=self._work, name=f"writer of {name}", daemon=True)
        self._thread.start()

    # --- as a stream ------------------------------------------------------------------------------------------

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - typeshed has an attribute here
        """That of the stream whose place this takes."""
        return self._encoding

    def fileno(self) -> int:
        """For the size of the terminal."""
        return self._fd

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return os.isatty(self._fd)

    def writable(self) -> bool:
        """Always."""
        return True

    def flush(self) -> None:
        """Nothing: whoever writes never waits. `finish` does."""

    def write(self, s: str, /) -> int:
        """Queue it, or drop it when the queue is full. After `finish` it is written if that can be done at once."""
        data = s.encode(self._encoding, "backslashreplace")
        cost = len(data) + ENTRY_BYTES
        with self._lock:
            waiting = self._queued - self._done
            if self._closed_at is not None:
                write_now(self._fd, data)
            elif waiting and waiting + cost > self._limit_bytes:
                self.dropped += max(1, s.count("\n"))
            elif data:
                self._queued += cost
                self._queue.put(data)
        return len(s)

    def finish(self, within_s: float) -> None:
        """Write what waits and end the thread; what is not written in time is lost."""
        self.begin_closing(within_s)
        self._thread.join(within_s + LOOK_S)

    def begin_closing(self, within_s: float) -> None:
        """The first half of `finish`: the time runs."""
        with self._lock:
            if self._closed_at is None:
                self._closed_at = time.monotonic() + within_s
                self._queue.put(None)

    # --- the thread -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (data := self._queue.get()) is not None:
            if not self._write(data):
                return
            self._done += len(data) + ENTRY_BYTES
            missing = self.dropped - self._reported
            if missing and self._queued - self._done <= self._limit_bytes // 2:
                self._reported += missing
                log.warning("output.dropped", stream=self._name, lines=missing)

    def _write(self, data: bytes) -> bool:
        """Whether to go on: False when the time of `finish` is over."""
        rest = memoryview(data)
        while rest:
            if self._closed_at is not None and time.monotonic() >= self._closed_at:
                return False
            try:
                if select.select([], [self._fd], [], LOOK_S)[1]:
                    rest = rest[os.write(self._fd, rest[:PIECE_BYTES]) :]
            except BlockingIOError:
                continue
            except (OSError, ValueError):  # its reader has gone, the disk is full, it was closed
                with self._lock:
                    self.dropped += max(1, data.count(b"\n"))
                    self._reported = self.dropped  # there is nobody to tell
                return True
        return True


def write_now(fd: int, data: bytes) -> None:
    """Write the beginning of it, if that needs no waiting."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [fd], [], 0)[1]:
            os.write(fd, data[:PIECE_BYTES])


def last_words(text: str) -> None:
    """Tell stderr why the process ends at once, and wait for nobody but FLUSH_S for what was said before."""
    stream = sys.stderr
    if isinstance(stream, BoundedStream):
        stream.write(text)
        stream.finish(FLUSH_S)
    elif stream is not None:  # pyright: ignore[reportUnnecessaryComparison] - None where the process was started without
        with contextlib.suppress(OSError, ValueError):
            write_now(stream.fileno(), text.encode("utf-8", "backslashreplace"))


def dropped_lines() -> Mapping[str, int]:
    """Lines that were dropped, by stream; none where the streams are Python's own."""
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    return {name: stream.dropped for name, stream in streams.items() if isinstance(stream, BoundedStream)}


@contextlib.contextmanager
def bounded_output() -> Generator[None]:
    """Put bounded streams in the place of sys.stdout and sys.stderr, where these have a file descriptor."""
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
