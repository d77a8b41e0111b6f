"""Queues of writes, one for each session: a lane is written in order, and lanes are written at the same time.

    put -> lane -> [0.5 ms | a flush | the commit before has ended] -> commit(writes) -> out of the lane -> flush returns

A write leaves its lane only after its commit. If a commit fails, its writes stay first in the lane and every `flush` of it
raises. The commit is repeated by the next flush and once a second.

While commits fail, events beyond KEPT_BYTES move to a file (`spool.py`). They keep their places in their lanes, and are read back
for their commit. All lanes together are bounded, in memory and on disk; `put` refuses writes if they are full.
This module knows no NATS: `commit` is injected. All of it runs in the event loop, but for reads and writes of the file.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from shim.cluster.nats.batches import Events
from shim.cluster.nats.spool import Extent, Spool
from shim.lib.errors import ShimError, StoreError
from shim.lib.tasks import wait_at_most

GROUP_S = 0.0005
"""Seconds that a write waits for more of its lane, if no commit of it runs. Clients of other servers wait for it too."""
GROUP_WRITES = 256
"""Maximum writes that a commit gets."""
GROUP_BYTES = 2**20
"""Maximum bytes that a commit gets, if it gets more than one write."""
PARALLEL = 64
"""Maximum commits at the same time."""
QUEUE_ROWS = 200_000
"""Maximum queued rows of all lanes, in memory and on disk. Beyond it, `put` refuses."""
QUEUE_BYTES = 128 * 2**20
"""Maximum queued bytes in memory. They become more than KEPT_BYTES if NATS is slow, or the disk takes no events."""
KEPT_BYTES = 16 * 2**20
"""Queued bytes in memory, beyond which events move to disk while NATS takes nothing."""
SPOOL_BYTES = 2**30
"""Maximum bytes of the file."""
CHUNK_BYTES = 256 * 1024
"""Bytes of events that are written to the file, and read, together."""
CROWDED_ROWS = 10_000
"""Queued rows from which on producers should wait, if NATS takes some."""
CROWDED_BYTES = 64 * 2**20
"""Queued bytes from which on they should."""
RETRY_S = 1.0
"""Seconds between repeats of a failed commit without a flush."""
CLOSE_S = 8.0
"""Maximum seconds that `close` waits for the last commits."""

log = structlog.get_logger(__name__)


class Write(NamedTuple):
    """A write: what `commit` understands, its rows and its approximate bytes."""

    what: Any
    rows: int
    size: int


class Limits(NamedTuple):
    """The limits above. Tests use smaller ones."""

    group_s: float = GROUP_S
    queue_rows: int = QUEUE_ROWS
    queue_bytes: int = QUEUE_BYTES
    kept_bytes: int = KEPT_BYTES
    spool_bytes: int = SPOOL_BYTES
    chunk_bytes: int = CHUNK_BYTES
    crowded_rows: int = CROWDED_ROWS
    crowded_bytes: int = CROWDED_BYTES
    retry_s: float = RETRY_S
    close_s: float = CLOSE_S


DEFAULT_LIMITS = Limits()


class LaneClosed(Exception):
    """Raised by a commit: nothing of the lane can be written any more. `error`: what flushes of it raise."""

    def __init__(self, error: ShimError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class _SpooledEvents:
    """Events that are in the file. `first`: the sequence of the first one."""

    first: int
    extent: Extent


@dataclass(slots=True, eq=False)
class _Lane:
    """The queue of one session.

    accepted, written  rows that came into it, and that left it
    taken              writes that left it; with an index in `queue` it names a write for good
    committing         writes at its head that a commit has
    """

    key: Hashable
    queue: deque[Write] = field(default_factory=deque[Write])
    accepted: int = 0
    written: int = 0
    taken: int = 0
    committing: int = 0
    waiting: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list[tuple[int, "asyncio.Future[None]"]])
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)


class LaneWriter:
    """The lanes and their tasks.

    commit     writes the first of these writes, and as many as it can of those after it, and returns their number; raises
               StoreError if it must be repeated, LaneClosed if that is no use
    directory  where the file lies; None: in the directory for temporary files
    """

    def __init__(
        self,
        commit: Callable[[Any, Sequence[Write]], Awaitable[int]],
        limits: Limits = DEFAULT_LIMITS,
        directory: Path | None = None,
    ) -> None:
        self._commit = commit
        self._limits = limits
        self._lanes: dict[Hashable, _Lane] = {}
        self._slots = asyncio.Semaphore(PARALLEL)
        self._rows = self._bytes = self._held = 0  # bytes in all, and those in memory
        self._failure: StoreError | None = None
        self._spool = Spool(directory, limits.spool_bytes)
        self._spooling: asyncio.Task[None] | None = None
        self._spool_from = limits.kept_bytes
        self._spool_failure: StoreError | None = None
        self._closing = False

    @property
    def failure(self) -> StoreError | None:
        """Why the last commit failed, or None."""
        return self._failure

    @property
    def pending(self) -> int:
        """Number of rows that are not committed."""
        return self._rows

    @property
    def spooled_bytes(self) -> int:
        """Bytes of the file on disk."""
        return self._spool.size

    @property
    def is_crowded(self) -> bool:
        """True if much is queued without a failure, so that producers should wait."""
        much = self._rows >= self._limits.crowded_rows or self._bytes >= self._limits.crowded_bytes
        return much and self._failure is None and not self._closing

    def has_events(self, key: Hashable) -> bool:
        """Whether a lane has events that are not committed."""
        lane = self._lanes.get(key)
        return lane is not None and any(isinstance(write.what, Events | _SpooledEvents) for write in lane.queue)

    def has_writes(self, key: Hashable) -> bool:
        """Whether a lane has anything that is not committed."""
        lane = self._lanes.get(key)
        return lane is not None and bool(lane.queue)

    def need_room(self, rows: int, size: int = 0) -> None:
        """Raise StoreError if `put` would refuse this."""
        if self._closing:
            raise StoreError("The store is closed; nothing more can be written.")
        full = self._rows + rows > self._limits.queue_rows or self._held + size > self._limits.queue_bytes
        if full and self._rows:
            why = str(self._failure or "NATS is too slow").rstrip(".")
            disk = "" if self._spool_failure is None else f" The disk takes no more of them: {self._spool_failure}."
            raise StoreError(
                f"{self._rows} rows wait to be written ({self._held} bytes in memory, {self._spool.size} on disk) and no more are"
                f" taken: {why}.{disk} Nothing of this call was queued. Start NATS, or see why this server does not reach it:"
                " what waits is then written."
            )

    def put(self, key: Hashable, writes: Sequence[Write], *, at_once: bool = False) -> None:
        """Queue writes of one lane, all or none. Never waits. `at_once`: commit without waiting for more.

        Raises StoreError if the lanes are full or closed.
        """
        rows, size = sum(write.rows for write in writes), sum(write.size for write in writes)
        self.need_room(rows, size)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        lane.queue.extend(writes)
        lane.accepted += rows
        self._rows += rows
        self._bytes += size
        self._held += size
        if self._held > self._spool_from:
            self._start_spooling()
        if at_once:
            self._hurry(lane)
        elif lane.task is None and lane.timer is None:
            lane.timer = asyncio.get_running_loop().call_later(self._limits.group_s, self._start, lane)

    async def flush(self, key: Hashable | None = None) -> None:
        """Wait until all writes queued so far are committed, or those of one lane.

        Raises StoreError if that failed; the writes stay queued.
        """
        lanes = list(self._lanes.values()) if key is None else [lane for lane in (self._lanes.get(key),) if lane is not None]
        waits = [self._wait(lane) for lane in lanes if lane.queue]
        if waits:
            results = await asyncio.gather(*waits, return_exceptions=True)
            errors = [error for error in results if isinstance(error, BaseException)]
            # A session that another server has taken concerns only who writes to it.
            shared = [error for error in errors if key is not None or isinstance(error, StoreError)]
            if shared:
                raise shared[0]

    def _wait(self, lane: _Lane) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        lane.waiting.append((lane.accepted, done))
        self._hurry(lane)
        return done

    async def close(self) -> None:
        """Commit what is queued and end the tasks. Raises StoreError if rows could not be written."""
        self._closing = True
        try:
            async with asyncio.timeout(self._limits.close_s):
                with suppress(StoreError):
                    await self.flush()
        except TimeoutError:
            pass
        tasks = [task for task in (self._spooling, *(lane.task for lane in self._lanes.values())) if task is not None]
        for lane in self._lanes.values():
            if lane.timer is not None:
                lane.timer.cancel()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._spool.close()
        if self._rows:
            raise StoreError(f"{self._rows} rows were not written: {self._failure or 'NATS did not answer in time'}")

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _hurry(self, lane: _Lane) -> None:
        lane.hurry.set()
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        if lane.task is None:
            self._start(lane)

    def _start(self, lane: _Lane) -> None:
        lane.timer = None
        if lane.task is None and lane.queue:
            lane.task = asyncio.create_task(self._run(lane), name=f"write {lane.key}")

    async def _run(self, lane: _Lane) -> None:
        try:
            while lane.queue:
                await self._commit_some(lane)
        finally:
            lane.task = None
            if not lane.queue and not lane.waiting:
                self._lanes.pop(lane.key, None)

    async def _commit_some(self, lane: _Lane) -> None:
        lane.hurry.clear()
        tried = lane.accepted
        try:
            async with self._slots:
                done = await self._commit(lane.key, await self._take(lane))
        except LaneClosed as closed:
            self._settle(lane, len(lane.queue), closed.error)
        except StoreError as error:
            await self._wait_for_retry(lane, error, tried)
        except Exception as error:  # whoever waits for the write hears of every fault
            log.exception("store.commit_failed", lane=str(lane.key))
            await self._wait_for_retry(
                lane, StoreError(f"The store could not write ({type(error).__name__}: {error}). This is a bug."), tried
            )
        else:
            if self._failure is not None:
                self._failure = self._spool_failure = None
                log.info("store.recovered", queued=self._rows)
            self._settle(lane, done)
        await self._spool.trim()

    async def _take(self, lane: _Lane) -> list[Write]:
        """The next writes to commit. What is in the file is read, one extent at a time."""
        head = lane.queue[0]
        if isinstance(head.what, _SpooledEvents):
            lane.committing = 1
            return [head._replace(what=Events(head.what.first, await self._spool.read(head.what.extent)))]
        writes, size = list[Write](), 0
        for write in islice(lane.queue, GROUP_WRITES):
            size += write.size
            if isinstance(write.what, _SpooledEvents) or (writes and size > GROUP_BYTES):
                break
            writes.append(write)
        lane.committing = len(writes)
        return writes

    async def _wait_for_retry(self, lane: _Lane, error: StoreError, tried: int) -> None:
        """Tell the callers of `flush`, and wait for the next try.

        In: `tried`, the rows that had come when this one began. It says nothing of later ones: a deletion may have come.
        """
        if self._failure is None:
            log.error("store.failed", reason=str(error), queued=self._rows)
        self._failure = error
        lane.committing = 0
        if self._held > self._limits.kept_bytes:
            self._start_spooling()
        failed = [wait for wait in lane.waiting if wait[0] <= tried]
        lane.waiting = [wait for wait in lane.waiting if wait[0] > tried]
        for _, done in failed:
            _finish(done, type(error)(str(error)))
        await wait_at_most(lane.hurry.wait(), self._limits.retry_s)

    def _settle(self, lane: _Lane, writes: int, error: ShimError | None = None) -> None:
        """Take writes out of the lane, and wake the calls that wait for them."""
        lane.committing = 0
        lane.taken += writes
        for _ in range(writes):
            write = lane.queue.popleft()
            lane.written += write.rows
            self._rows -= write.rows
            self._bytes -= write.size
            if isinstance(write.what, _SpooledEvents):
                self._spool.free(write.what.extent)
            else:
                self._held -= write.size
        over = [wait for wait in lane.waiting if wait[0] <= lane.written]
        lane.waiting = [wait for wait in lane.waiting if wait[0] > lane.written]
        for _, done in over:
            _finish(done, error)

    # --- the file ----------------------------------------------------------------------------------------------------

    def _start_spooling(self) -> None:
        if self._failure is not None and self._spooling is None and not self._closing:
            self._spooling = asyncio.create_task(self._run_spooling(), name="spool of the store")

    async def _run_spooling(self) -> None:
        """Move events to the file until half of KEPT_BYTES is left in memory."""
        kept = self._limits.kept_bytes
        try:
            for lane in sorted(self._lanes.values(), key=lambda lane: len(lane.queue), reverse=True):
                while self._held > kept // 2 and self._failure is not None and await self._spool_some(lane):
                    pass
        except StoreError as error:
            if self._spool_failure is None:
                log.error("store.spool_failed", reason=str(error), queued=self._rows, bytes_in_memory=self._held)
            self._spool_failure = error
        finally:
            self._spooling = None
            self._spool_from = max(kept, self._held + kept // 2)  # what cannot move is not looked at again for each write
            await self._spool.trim()

    async def _spool_some(self, lane: _Lane) -> bool:
        """Move the next events of a lane that are in memory and belong to no commit. Returns False if there are none."""
        start, run, size = lane.taken, list[Write](), 0
        for index, write in enumerate(islice(lane.queue, lane.committing, None), lane.committing):
            if isinstance(write.what, Events) and (not run or size + write.size <= self._limits.chunk_bytes):
                start = start if run else lane.taken + index
                run.append(write)
                size += write.size
            elif run:
                break
        if not run:
            return False
        extent = await self._spool.put([event for write in run for event in write.what.encoded])
        self._spool_failure = None
        index = start - lane.taken
        if index < lane.committing:  # a commit has begun with them, or they have left the lane
            self._spool.free(extent)
            return True
        lane.queue.rotate(-index)
        for _ in run:
            lane.queue.popleft()
        lane.queue.appendleft(Write(_SpooledEvents(run[0].what.first, extent), sum(write.rows for write in run), size))
        lane.queue.rotate(index)
        self._held -= size
        return True


def _finish(done: asyncio.Future[None], error: ShimError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
