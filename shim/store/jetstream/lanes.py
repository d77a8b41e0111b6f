"""Queues of writes, one for each session: a lane is written in order, and lanes are written at the same time.

    put -> lane -> [2 ms | a flush | the commit before has ended] -> commit(writes) -> out of the lane -> flush returns

A write leaves its lane only after its commit. If a commit fails, its writes stay first in the lane and every `flush` of it
raises. The commit is repeated by the next flush and once a second. All lanes together are bounded; `put` refuses writes if they
are full.
This module knows no NATS: `commit` is injected. All of it runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import structlog

from shim.errors import ShimError, StoreError

GROUP_S = 0.0005
"""Seconds that a write waits for more of its lane, if no commit of it runs. Clients of other servers wait for it too."""
GROUP_WRITES = 256
"""Maximum writes that a commit gets."""
PARALLEL = 64
"""Maximum commits at the same time."""
QUEUE_ROWS = 20_000
"""Maximum queued rows of all lanes. Beyond it, `put` refuses."""
QUEUE_BYTES = 128 * 2**20
"""Maximum queued bytes of all lanes."""
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
    retry_s: float = RETRY_S
    close_s: float = CLOSE_S


DEFAULT_LIMITS = Limits()


class LaneClosed(Exception):
    """Raised by a commit: nothing of the lane can be written any more. `error`: what flushes of it raise."""

    def __init__(self, error: ShimError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True, eq=False)
class _Lane:
    """The queue of one session. `written` and `accepted` count writes."""

    key: Hashable
    queue: deque[Write] = field(default_factory=deque[Write])
    accepted: int = 0
    written: int = 0
    waiting: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list[tuple[int, "asyncio.Future[None]"]])
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)


class LaneWriter:
    """The lanes and their tasks.

    commit  writes the first of these writes, and as many as it can of those after it, and returns their number; raises StoreError
            if it must be repeated, LaneClosed if that is no use.
    """

    def __init__(self, commit: Callable[[Any, Sequence[Write]], Awaitable[int]], limits: Limits = DEFAULT_LIMITS) -> None:
        self._commit = commit
        self._limits = limits
        self._lanes: dict[Hashable, _Lane] = {}
        self._slots = asyncio.Semaphore(PARALLEL)
        self._rows = self._bytes = 0
        self._failure: StoreError | None = None
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
    def is_crowded(self) -> bool:
        """True if the lanes are half full without a failure, so that producers should wait."""
        half = self._rows * 2 >= self._limits.queue_rows or self._bytes * 2 >= self._limits.queue_bytes
        return half and self._failure is None and not self._closing

    def need_room(self, rows: int, size: int = 0) -> None:
        """Raise StoreError if `put` would refuse this."""
        if self._closing:
            raise StoreError("The store is closed; nothing more can be written.")
        full = self._rows + rows > self._limits.queue_rows or self._bytes + size > self._limits.queue_bytes
        if full and self._rows:
            why = self._failure or "NATS is too slow"
            raise StoreError(
                f"{self._rows} rows ({self._bytes} bytes) wait to be written and no more are taken: {why}. Nothing of this call "
                "was queued."
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
        lane.accepted += len(writes)
        self._rows += rows
        self._bytes += size
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
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for lane in self._lanes.values():
            if lane.timer is not None:
                lane.timer.cancel()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
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
        try:
            async with self._slots:
                done = await self._commit(lane.key, list(islice(lane.queue, GROUP_WRITES)))
        except LaneClosed as closed:
            self._settle(lane, len(lane.queue), closed.error)
        except StoreError as error:
            await self._wait_for_retry(lane, error)
        except Exception as error:
            log.exception("store.commit_failed", lane=str(lane.key))
            await self._wait_for_retry(
                lane, StoreError(f"The store could not write ({type(error).__name__}: {error}). This is a bug.")
            )
        else:
            if self._failure is not None:
                self._failure = None
                log.info("store.recovered", queued=self._rows)
            self._settle(lane, done)

    async def _wait_for_retry(self, lane: _Lane, error: StoreError) -> None:
        """Tell the callers of `flush`, and wait for the next try."""
        if self._failure is None:
            log.error("store.failed", reason=str(error), queued=self._rows)
        self._failure = error
        waiting, lane.waiting = lane.waiting, []
        for _, done in waiting:
            _finish(done, type(error)(str(error)))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.retry_s):
                await lane.hurry.wait()

    def _settle(self, lane: _Lane, writes: int, error: ShimError | None = None) -> None:
        """Take writes out of the lane, and wake the calls that wait for them."""
        for _ in range(writes):
            write = lane.queue.popleft()
            self._rows -= write.rows
            self._bytes -= write.size
        lane.written += writes
        over = [wait for wait in lane.waiting if wait[0] <= lane.written]
        lane.waiting = [wait for wait in lane.waiting if wait[0] > lane.written]
        for _, done in over:
            _finish(done, error)


def _finish(done: asyncio.Future[None], error: ShimError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
