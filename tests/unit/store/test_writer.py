"""The writing thread: groups, failures that are told and made up for, a queue that ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from shim.lib.errors import StoreError
from shim.store.writer import GroupWriter, Limits, Statement

NEVER_S = 1000.0
WAIT_S = 5.0


def rows(*numbers: int, size: int = 10) -> list[Statement]:
    return [Statement(str(number), [()], size) for number in numbers]


class Disk:
    """Takes groups. `gate` closed: it hangs, or takes one for each `permit`; `fault` set: it refuses."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.fault: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.permit = threading.Semaphore(0)
        self.reached = threading.Semaphore(0)
        self.attempts = 0

    def commit(self, batch: Sequence[Statement]) -> None:
        self.attempts += 1
        self.reached.release()
        if not self.gate.is_set():
            assert self.permit.acquire(timeout=WAIT_S)
        if self.fault:
            raise self.fault
        self.groups.append([int(statement.sql) for statement in batch])

    def open(self) -> None:
        """No more hanging."""
        self.gate.set()
        self.permit.release(1000)

    @property
    def written_numbers(self) -> list[int]:
        return [number for group in self.groups for number in group]


@asynccontextmanager
async def running_writer(disk: Disk, limits: Limits) -> AsyncIterator[GroupWriter]:
    writer = GroupWriter(disk.commit, limits)
    writer.start()
    try:
        async with asyncio.timeout(WAIT_S):
            yield writer
    finally:
        disk.open()
        disk.fault = None
        await writer.close()
        assert writer.has_ended


async def reach(disk: Disk) -> None:
    """Until the thread is in `commit` once more."""
    assert await asyncio.to_thread(disk.reached.acquire, True, WAIT_S)


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not done():
            await asyncio.to_thread(threading.Event().wait, 0.002)


async def test_rows_that_cannot_wait_take_those_before_them_along_at_once() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_rows=99, group_s=NEVER_S)) as writer:
        writer.put(rows(1, 2))
        writer.put(rows(3), at_once=True)
        await until(lambda: disk.written_numbers == [1, 2, 3])
        writer.put(rows(4))
        writer.put(rows(5), at_once=True)
        await until(lambda: disk.written_numbers == [1, 2, 3, 4, 5])


async def test_a_full_group_is_written_without_being_asked() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_rows=4, group_s=NEVER_S)) as writer:
        for number in range(1, 4):
            writer.put(rows(number))
        await asyncio.to_thread(threading.Event().wait, 0.05)  # so that the thread waits, most likely; right either way
        assert disk.attempts == 0
        writer.put(rows(4))
        await until(lambda: writer.pending == 0)
    assert disk.groups == [[1, 2, 3, 4]]


async def test_a_small_group_is_written_after_a_moment() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_s=0.005)) as writer:
        writer.put(rows(1, 2))
        await until(lambda: writer.pending == 0)
    assert disk.groups == [[1, 2]]


async def test_flush_does_not_wait_for_company() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_s=NEVER_S)) as writer:
        writer.put(rows(1))
        await writer.flush()
        assert disk.groups == [[1]]
        await writer.flush()
        assert disk.attempts == 1


async def test_flush_waits_for_what_was_put_while_a_commit_ran() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_rows=1, group_s=NEVER_S)) as writer:
        disk.gate.clear()
        writer.put(rows(1))
        await reach(disk)
        writer.put(rows(2))
        flushes = [asyncio.ensure_future(writer.flush()) for _ in range(3)]
        await asyncio.sleep(0)
        disk.permit.release()
        await reach(disk)
        assert disk.groups == [[1]]
        assert not any(flush.done() for flush in flushes)
        disk.permit.release()
        await asyncio.gather(*flushes)
        assert disk.groups == [[1], [2]]


async def test_a_cancelled_flush_leaves_the_writer_working() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_rows=1)) as writer:
        disk.gate.clear()
        writer.put(rows(1))
        given_up = asyncio.ensure_future(writer.flush())
        other = asyncio.ensure_future(writer.flush())
        await reach(disk)
        given_up.cancel()
        disk.open()
        await other
    assert disk.groups == [[1]]


async def test_every_flush_tells_of_the_failure_and_nothing_is_lost() -> None:
    disk = Disk()
    with capture_logs() as logs:
        async with running_writer(disk, Limits(group_rows=2, retry_s=NEVER_S)) as writer:
            disk.fault = StoreError("the disk is full")
            writer.put(rows(1, 2))
            for attempt in range(3):
                with pytest.raises(StoreError, match="the disk is full"):
                    await writer.flush()
                writer.put(rows(3 + attempt))
                assert str(writer.failure) == "the disk is full"
            assert writer.pending == 5
            disk.fault = None
            await writer.flush()
            assert writer.failure is None
            assert disk.written_numbers == [1, 2, 3, 4, 5]
            assert disk.attempts <= 5  # by the full group and by each flush: it does not try all the time
    assert [entry["event"] for entry in logs] == ["store.failed", "store.recovered"]


async def test_a_failure_heals_by_itself() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_rows=1, retry_s=0.005)) as writer:
        disk.fault = StoreError("busy")
        writer.put(rows(1))
        await until(lambda: disk.attempts >= 3)
        disk.fault = None
        await until(lambda: writer.failure is None and writer.pending == 0)
    assert disk.groups == [[1]]


async def test_a_full_queue_refuses_the_whole_call_and_takes_it_later() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_rows=1, queue_rows=4)) as writer:
        disk.gate.clear()
        writer.put(rows(1))
        await reach(disk)
        writer.put(rows(2, 3))
        with pytest.raises(StoreError, match=r"3 rows \(30 bytes\) wait to be written.*too slow.*Nothing of this call"):
            writer.put(rows(4, 5))
        writer.put(rows(4))
        disk.open()
        await writer.flush()
        writer.put(rows(5))
        await writer.flush()
    assert disk.written_numbers == [1, 2, 3, 4, 5]


async def test_a_full_queue_gives_the_reason() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_rows=1, queue_rows=1)) as writer:
        disk.fault = StoreError("the disk is full")
        writer.put(rows(1))
        with pytest.raises(StoreError):
            await writer.flush()
        with pytest.raises(StoreError, match="no more are taken: the disk is full"):
            writer.put(rows(2))


async def test_a_queue_is_crowded_when_it_is_half_full_and_the_disk_takes_it() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_rows=99, group_s=NEVER_S, queue_rows=4, queue_bytes=100)) as writer:
        writer.put(rows(1, size=49))
        assert not writer.is_crowded
        writer.put(rows(2, size=1))  # of rows and of bytes
        assert writer.is_crowded
        await writer.flush()
        assert not writer.is_crowded
        disk.fault = StoreError("the disk is full")
        writer.put(rows(3, 4, 5))
        with pytest.raises(StoreError):
            await writer.flush()
        assert not writer.is_crowded  # nobody is to wait for that


async def test_bytes_are_bounded_but_one_large_row_passes() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_rows=99, group_s=NEVER_S, queue_bytes=100)) as writer:
        writer.put(rows(1, size=1000))
        with pytest.raises(StoreError, match="1000 bytes"):
            writer.put(rows(2))
        await writer.flush()
        writer.put(rows(2, size=60))
        with pytest.raises(StoreError, match="60 bytes"):
            writer.put(rows(3, size=60))
    assert disk.written_numbers == [1, 2]


async def test_close_writes_what_is_queued_and_refuses_more() -> None:
    disk = Disk()
    writer = GroupWriter(disk.commit, Limits(group_s=NEVER_S))
    writer.start()
    writer.put(rows(1))
    await writer.close()
    assert disk.written_numbers == [1]
    assert writer.has_ended
    with pytest.raises(StoreError, match="closed"):
        writer.put(rows(2))
    await writer.flush()


async def test_close_tells_what_was_not_written() -> None:
    disk = Disk()
    disk.fault = StoreError("the disk is full")
    writer = GroupWriter(disk.commit, Limits(group_s=NEVER_S))
    writer.start()
    writer.put(rows(1, 2))
    with pytest.raises(StoreError, match="2 rows were not written: the disk is full"):
        await writer.close()
    assert writer.has_ended
    with pytest.raises(StoreError, match="the disk is full"):
        await writer.flush()


async def test_close_does_not_wait_for_ever() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = GroupWriter(disk.commit, Limits(close_s=0.01))
    writer.start()
    writer.put(rows(1))
    with pytest.raises(StoreError, match=r"has not answered for 0\.01 s; 1 rows may not be written"):
        await writer.close()
    assert not writer.has_ended
    disk.open()
    await until(lambda: writer.has_ended)
    assert disk.written_numbers == [1]


async def test_a_flush_while_the_writer_ends_is_answered() -> None:
    disk = Disk()
    disk.fault = ZeroDivisionError("bug")
    writer = GroupWriter(disk.commit, Limits(group_rows=1))
    settle, said, go_on = writer._settle, threading.Event(), threading.Event()

    def slow(failure: StoreError | None, written: int) -> None:
        settle(failure, written)
        said.set()
        assert go_on.wait(WAIT_S)

    writer._settle = slow  # type: ignore[method-assign] - the thread stops where the flush has to come
    with capture_logs():
        writer.start()
        writer.put(rows(1))
        assert await asyncio.to_thread(said.wait, WAIT_S)
        flushing = asyncio.create_task(writer.flush())
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(StoreError, match=r"has stopped \(bug\)"):
            async with asyncio.timeout(WAIT_S):
                await flushing
        await until(lambda: writer.has_ended)
    with pytest.raises(StoreError, match="1 rows were not written"):
        await writer.close()


async def test_a_bug_in_the_commit_is_reported() -> None:
    disk = Disk()
    disk.fault = ZeroDivisionError("bug")
    writer = GroupWriter(disk.commit, Limits(group_rows=1))
    writer.start()
    with capture_logs() as logs:
        writer.put(rows(1))
        for _ in range(2):
            with pytest.raises(StoreError, match=r"has stopped \(bug\)"):
                async with asyncio.timeout(WAIT_S):
                    await writer.flush()
        await until(lambda: writer.has_ended)
    assert "store.writer_died" in [entry["event"] for entry in logs]
    with pytest.raises(StoreError, match="1 rows were not written"):
        await writer.close()
    assert writer.pending == 1


async def test_a_writer_that_was_never_started_can_be_closed() -> None:
    writer = GroupWriter(Disk().commit)
    await writer.close()
    assert writer.has_ended


async def test_a_group_is_written_in_one_commit() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_rows=1, group_s=0)) as writer:
        writer.put(rows(1))
        await writer.flush()
        writer.is_grouping = True
        writer.put(rows(2))
        waiting = asyncio.ensure_future(writer.flush())
        for _ in range(20):
            await asyncio.sleep(0)
            assert disk.written_numbers == [1], "a group is not cut"
        writer.put(rows(3))
        writer.end_group()
        await waiting
    assert disk.groups == [[1], [2, 3]]


async def test_rows_before_a_group_do_not_wait_for_it() -> None:
    disk = Disk()
    async with running_writer(disk, Limits(group_s=0)) as writer:
        disk.gate.clear()
        writer.put(rows(1))
        writer.is_grouping = True
        writer.put(rows(2))
        disk.open()
        async with asyncio.timeout(WAIT_S):
            while disk.written_numbers != [1]:
                await asyncio.sleep(0.005)
        writer.end_group()
    assert disk.groups == [[1], [2]]
