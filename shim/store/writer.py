"""Writes rows in groups in one thread: the event loop queues them, they are committed together, and `flush` waits.

    put -> queue -> [256 rows | 20 ms | a flush] -> commit(rows) -> out of the queue -> flush returns

A row leaves the queue only after its commit. If a commit fails, its rows stay first in the queue and every `flush` raises. The
commit is repeated by the next flush and once a second, so that nothing is lost if the disk has room again. The queue is bounded;
`put` refuses rows if it is full. `is_grouping` and `end_group` hold rows together, so that one commit has all of them. This
module knows no database: `commit` is injected.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import structlog

from shim.lib.errors import StoreError

GROUP_ROWS = 256
"""Number of queued rows that are committed without waiting for more."""
GROUP_S = 0.02
"""Maximum seconds that a queued row waits for more rows."""
QUEUE_ROWS = 20_000
"""Maximum queued rows: more than a minute of several busy agents. Beyond it, `put` refuses."""
QUEUE_BYTES = 128 * 1024 * 1024
"""Maximum queued bytes of row text, so that large tool outputs cannot fill the memory."""
RETRY_S = 1.0
"""Seconds between repeats of a failed commit without a flush."""
CLOSE_S = 10.0
"""Maximum seconds that `close` waits for the last commit. Beyond it, the disk is reported as hanging."""

log = structlog.get_logger()


class Statement(NamedTuple):
    """Rows to write: a statement, the parameters of each row, and their approximate bytes."""

    sql: str
    rows: Sequence[Sequence[str | bytes | int | None]]
    size: int


class Limits(NamedTuple):
    """The limits above. Tests use smaller ones."""

    group_rows: int = GROUP_ROWS
    group_s: float = GROUP_S
    queue_rows: int = QUEUE_ROWS
    queue_bytes: int = QUEUE_BYTES
    retry_s: float = RETRY_S
    close_s: float = CLOSE_S


DEFAULT_LIMITS = Limits()
SIZE_OF = attrgetter("size")
ROWS_OF = attrgetter("rows")


class GroupWriter:
    """The queue and its thread.

    commit  writes all statements in one transaction or none; raises StoreError. Called in the thread only.
    """

    def __init__(self, commit: Callable[[Sequence[Statement]], None], limits: Limits = DEFAULT_LIMITS) -> None:
        self._commit = commit
        self._limits = limits
        self._changed = threading.Condition()
        # The fields below are written under `_changed`, and read under it if a value in change would do harm.
        self._queue: deque[Statement] = deque()
        self._rows = 0
        self._bytes = 0
        self._accepted = 0
        self._committed = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.failure: StoreError | None = None
        """Why the last commit failed, or None."""
        self._closing = self._urgent = False
        self._ended = False
        self.is_grouping = False
        """Set to commit nothing that is queued from here on before `end_group`, which must follow soon."""
        self._loose = 0
        """Statements at the end of the queue that wait for `end_group`."""
        self._thread = threading.Thread(target=self._run, name="store-write", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """True if the thread has ended or never started, so that its connection may be closed."""
        return not self._thread.is_alive()

    @property
    def pending(self) -> int:
        """Number of rows that are not committed."""
        with self._changed:
            return self._accepted - self._committed

    @property
    def is_crowded(self) -> bool:
        """True if the queue is half full without a failure, so that producers should wait."""
        half = self._rows * 2 >= self._limits.queue_rows or self._bytes * 2 >= self._limits.queue_bytes
        return half and self.failure is None and not self._closing

    def need_room(self, rows: int) -> None:
        """Raise StoreError if `put` would refuse this number of rows, whatever their size."""
        if self._rows + rows > self._limits.queue_rows or self._closing:
            with self._changed:
                self._refuse(rows, 0)

    def put(self, statements: Sequence[Statement], *, at_once: bool = False) -> None:
        """Queue all rows, in order, or none. Never waits for the disk. `at_once`: commit without waiting for more rows.

        Raises StoreError if the queue is full or closed. The call may be repeated later.
        """
        size, rows = sum(map(SIZE_OF, statements)), sum(map(len, map(ROWS_OF, statements)))
        with self._changed:
            was = self._rows
            if self._closing or was + rows > self._limits.queue_rows or self._bytes + size > self._limits.queue_bytes:
                self._refuse(rows, size)
            self._queue.extend(statements)
            self._loose += len(statements) if self.is_grouping else 0
            self._rows += rows
            self._bytes += size
            self._accepted += rows
            self._urgent |= at_once and self.failure is None
            if self._urgent or was == 0 or self._rows >= self._limits.group_rows > was:
                self._changed.notify()

    def end_group(self) -> None:
        """Let all that was queued since `is_grouping` be committed, together."""
        with self._changed:
            self.is_grouping, self._loose = False, 0
            self._changed.notify()

    def _refuse(self, rows: int, size: int) -> None:
        """Raise StoreError for rows that are too many, unless they are the only ones."""
        if self._closing:
            raise StoreError("The store is closed; nothing more can be written.")
        full = self._rows + rows > self._limits.queue_rows or self._bytes + size > self._limits.queue_bytes
        if full and self._queue:
            why = self.failure or "the disk is too slow"
            raise StoreError(
                f"{self._rows} rows ({self._bytes} bytes) wait to be written and no more are taken: {why}. Nothing of this "
                f"call was queued."
            )

    async def flush(self) -> None:
        """Wait until all queued rows are committed. Raises StoreError if that failed; the rows stay queued."""
        loop = asyncio.get_running_loop()
        with self._changed:
            if self._committed == self._accepted and self.failure is None:
                return
            if self._ended:
                raise StoreError(str(self.failure or "The store is closed."))
            written: asyncio.Future[None] = loop.create_future()
            self._waiting.append((self._accepted, written))
            self._changed.notify()
        await written

    async def close(self) -> None:
        """Commit the queued rows and end the thread. Raises StoreError if rows could not be written."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, self._limits.close_s)
        with self._changed:
            queued, failure = self._rows, self.failure
        if self._thread.is_alive():
            raise StoreError(f"The disk has not answered for {self._limits.close_s:g} s; {queued} rows may not be written.")
        if queued:
            raise StoreError(f"{queued} rows were not written: {failure}")

    # In the thread.

    def _run(self) -> None:
        try:
            while self._group():
                pass
        except Exception as error:  # who waits for a commit must not wait for ever
            log.exception("store.writer_died")
            self._settle(StoreError(f"The writer of the store has stopped ({error}). Restart the server; this is a bug."), 0)
        with self._changed:
            self._ended = True
            late = self.failure if self._waiting else None
        if late is not None:
            self._settle(late, 0)  # callers of `flush` after the last commit

    def _group(self) -> bool:
        """Wait for a group and commit it. False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._queue) > self._loose or (not self._loose and self._hurry()))
            if self.failure is None:
                self._changed.wait_for(lambda: self._rows >= self._limits.group_rows or self._hurry(), self._limits.group_s)
            else:
                self._changed.wait_for(self._hurry, self._limits.retry_s)
            closing, self._urgent = self._closing, False
            batch = list(islice(self._queue, len(self._queue) - self._loose))
        try:
            if batch:
                self._commit(batch)
        except StoreError as error:
            self._settle(error, 0)
            return not closing
        self._settle(None, len(batch))
        return not closing

    def _hurry(self) -> bool:
        return bool(self._waiting) or self._urgent or self._closing

    def _settle(self, failure: StoreError | None, count: int) -> None:
        """End a commit of so many statements: remove them from the queue, and wake the waiting calls. All get a failure."""
        with self._changed:
            before, self.failure = self.failure, failure
            for _ in range(count):
                _, rows, size = self._queue.popleft()
                self._rows -= len(rows)
                self._bytes -= size
                self._committed += len(rows)
            settled = [wait for wait in self._waiting if failure is not None or wait[0] <= self._committed]
            self._waiting = [wait for wait in self._waiting if wait not in settled]
            queued = self._rows
        if failure is not None and before is None:
            log.error("store.failed", reason=str(failure), queued=queued)
        elif failure is None and before is not None:
            log.info("store.recovered", queued=queued)
        for _, waiter in settled:
            with suppress(RuntimeError):  # its loop is closed, so no call waits
                waiter.get_loop().call_soon_threadsafe(_finish, waiter, failure)


def _finish(waiter: asyncio.Future[None], failure: StoreError | None) -> None:
    if waiter.done():
        return
    if failure is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(StoreError(str(failure)))
