"""Lanes: each is written in order, failures are repeated, a closed lane stops no other, and events go over the disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shim.cluster.nats.batches import Events
from shim.cluster.nats.lanes import LaneClosed, LaneWriter, Limits, Write
from shim.lib.errors import ShimError, StoreError

BOUND_S = 10
LIMITS = Limits(retry_s=30)


class Commits:
    """What was committed, and how the next commits end."""

    def __init__(self) -> None:
        self.written: list[tuple[str, object]] = []
        self.errors: dict[str, Exception] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.most = 0
        self._running = 0

    async def __call__(self, key: str, writes: Sequence[Write]) -> int:
        self._running += 1
        self.most = max(self.most, self._running)
        try:
            await self.gate.wait()
            if key in self.errors:
                raise self.errors[key]
            self.written.append((key, writes[0].what))
            return 1
        finally:
            self._running -= 1


def write(what: object, rows: int = 1) -> Write:
    return Write(what, rows, 10)


async def test_a_lane_is_written_in_order_and_lanes_at_the_same_time() -> None:
    commits = Commits()
    writer = LaneWriter(commits, LIMITS)
    commits.gate.clear()
    for number in range(5):
        for key in ("a", "b"):
            writer.put(key, [write(number)])
    flushing = asyncio.create_task(writer.flush())
    async with asyncio.timeout(BOUND_S):
        while commits.most < 2:
            await asyncio.sleep(0)
        commits.gate.set()
        await flushing
    assert [what for key, what in commits.written if key == "a"] == [0, 1, 2, 3, 4]
    assert writer.pending == 0
    await writer.close()


async def test_a_failed_commit_is_repeated_by_the_next_flush() -> None:
    commits = Commits()
    commits.errors["a"] = StoreError("no disk")
    writer = LaneWriter(commits, LIMITS)
    writer.put("a", [write(1)])
    for _ in range(2):
        with pytest.raises(StoreError, match="no disk"):
            async with asyncio.timeout(BOUND_S):
                await writer.flush()
    assert (str(writer.failure), writer.pending) == ("no disk", 1)
    commits.errors.clear()
    async with asyncio.timeout(BOUND_S):
        await writer.flush()
    assert (writer.failure, commits.written) == (None, [("a", 1)])
    await writer.close()


async def test_a_failed_commit_is_repeated_without_a_flush() -> None:
    commits = Commits()
    commits.errors["a"] = StoreError("no disk")
    writer = LaneWriter(commits, Limits(retry_s=0.001))
    writer.put("a", [write(1)])
    async with asyncio.timeout(BOUND_S):
        while writer.failure is None:
            await asyncio.sleep(0)
        commits.errors.clear()
        while not commits.written:
            await asyncio.sleep(0)
    await writer.close()


async def test_a_closed_lane_concerns_only_who_writes_to_it() -> None:
    commits = Commits()
    commits.errors["a"] = LaneClosed(ShimError("taken"))
    writer = LaneWriter(commits, LIMITS)
    writer.put("a", [write(1), write(2)])
    writer.put("b", [write(3)])
    with pytest.raises(ShimError, match="taken"):
        await writer.flush("a")
    writer.put("a", [write(4)])
    await writer.flush()
    assert (commits.written, writer.pending, writer.failure) == ([("b", 3)], 0, None)
    await writer.close()


async def test_a_bug_in_a_commit_loses_nothing() -> None:
    commits = Commits()
    commits.errors["a"] = KeyError("x")
    writer = LaneWriter(commits, LIMITS)
    writer.put("a", [write(1)])
    with pytest.raises(StoreError, match="KeyError"):
        await writer.flush()
    commits.errors.clear()
    await writer.flush()
    assert commits.written == [("a", 1)]
    await writer.close()


async def test_all_lanes_together_are_bounded() -> None:
    commits = Commits()
    commits.gate.clear()
    writer = LaneWriter(commits, LIMITS._replace(queue_rows=10, queue_bytes=1000, crowded_rows=5))
    writer.put("a", [write(1, rows=4)])
    assert not writer.is_crowded
    writer.put("b", [write(1, rows=4)])
    assert writer.is_crowded
    with pytest.raises(StoreError, match=r"8 rows wait .* NATS is too slow\. Nothing of this call was queued\. Start NATS"):
        writer.put("c", [write(1, rows=3)])
    with pytest.raises(StoreError, match="no more are taken"):
        writer.put("c", [Write(1, 1, 1000)])
    commits.gate.set()
    await writer.close()
    assert len(commits.written) == 2


async def test_close_is_bounded_and_says_what_was_not_written() -> None:
    commits = Commits()
    commits.gate.clear()
    writer = LaneWriter(commits, LIMITS._replace(close_s=0.01))
    writer.put("a", [write(1)])
    with pytest.raises(StoreError, match="1 rows were not written: NATS did not answer in time"):
        await writer.close()
    with pytest.raises(StoreError, match="closed"):
        writer.put("a", [write(1)])


# --- events on disk --------------------------------------------------------------------------------------------------

EVENT_BYTES = 100
SPOOLING = Limits(retry_s=0.001, kept_bytes=1000, chunk_bytes=350)


class Journals:
    """Commits that write all events that they get, unless there is a failure. Notes what each session has."""

    def __init__(self) -> None:
        self.failure: Exception | None = StoreError("NATS is gone")
        self.stored: dict[str, list[bytes]] = {}
        self.sizes: list[int] = []

    async def __call__(self, key: str, writes: Sequence[Write]) -> int:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.sizes.append(sum(write.size for write in writes))
        for write in writes:
            stored = self.stored.setdefault(key, [])
            if isinstance(write.what, Events):
                assert write.what.first == len(stored) + 1
                stored += write.what.encoded
            else:
                assert len(stored) == write.what
        return len(writes)


def texts(first: int, last: int, size: int = EVENT_BYTES) -> list[bytes]:
    return [f"{number}".encode().ljust(size, b".") for number in range(first, last + 1)]


def put_events(writer: LaneWriter, key: str, first: int, last: int, size: int = EVENT_BYTES) -> None:
    for number, text in enumerate(texts(first, last, size), first):
        writer.put(key, [Write(Events(number, (text,)), 1, size)])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not holds():
            await asyncio.sleep(0.001)


def memory_of(writer: LaneWriter) -> int:
    return writer._held  # pyright: ignore[reportPrivateUsage]


def length_of_file(writer: LaneWriter) -> int:
    file = writer._spool._file  # pyright: ignore[reportPrivateUsage]
    assert file is not None
    return os.fstat(file.fileno()).st_size


async def test_events_beyond_the_memory_wait_on_disk_and_are_written_in_order_once(tmp_path: Path) -> None:
    journals = Journals()
    writer = LaneWriter(journals, SPOOLING, tmp_path)
    for first in range(1, 201, 50):
        for key in ("a", "b"):
            put_events(writer, key, first, first + 49)
        await until(lambda: writer.failure is not None and memory_of(writer) <= SPOOLING.kept_bytes)
    put_events(writer, "a", 201, 203)
    assert writer.pending == 403
    assert writer.spooled_bytes > 403 * EVENT_BYTES - SPOOLING.kept_bytes
    journals.failure = None
    await until(lambda: writer.failure is None)
    async with asyncio.timeout(BOUND_S):
        await writer.flush()
    assert journals.stored == {"a": texts(1, 203), "b": texts(1, 200)}
    assert (writer.pending, writer.spooled_bytes, memory_of(writer)) == (0, 0, 0)
    await until(lambda: length_of_file(writer) == 0)
    assert max(journals.sizes) <= SPOOLING.kept_bytes
    await writer.close()


async def test_a_write_that_is_no_event_keeps_its_place_between_events_on_disk(tmp_path: Path) -> None:
    journals = Journals()
    writer = LaneWriter(journals, SPOOLING, tmp_path)
    for first in (1, 11, 21):
        put_events(writer, "a", first, first + 9)
        writer.put("a", [write(first + 9)])  # the number of events that stand before it
    await until(lambda: memory_of(writer) <= SPOOLING.kept_bytes and writer.spooled_bytes > 0)
    journals.failure = None
    await until(lambda: writer.pending == 0)
    assert journals.stored == {"a": texts(1, 30)}
    await writer.close()


async def test_a_flush_waits_for_events_on_disk(tmp_path: Path) -> None:
    journals = Journals()
    writer = LaneWriter(journals, SPOOLING, tmp_path)
    put_events(writer, "a", 1, 30)
    await until(lambda: writer.spooled_bytes > 0 and memory_of(writer) <= SPOOLING.kept_bytes)
    with pytest.raises(StoreError, match="NATS is gone"):
        await writer.flush("a")
    journals.failure = None
    async with asyncio.timeout(BOUND_S):
        await writer.flush("a")
    assert journals.stored == {"a": texts(1, 30)}
    await writer.close()


async def test_events_that_a_commit_has_stay_in_memory(tmp_path: Path) -> None:
    """The commit counts the writes that it has got; a chunk in their place would be another number."""
    gate, entered = asyncio.Event(), asyncio.Event()
    stored: list[bytes] = []

    async def commit(key: str, writes: Sequence[Write]) -> int:
        if not entered.is_set() and key == "a":
            entered.set()
            await gate.wait()
        elif key == "b":
            raise StoreError("NATS is gone")
        for item in writes:
            stored.extend(item.what.encoded)
        return len(writes)

    writer = LaneWriter(commit, SPOOLING, tmp_path)
    put_events(writer, "a", 1, 20)
    async with asyncio.timeout(BOUND_S):
        await entered.wait()
    put_events(writer, "a", 21, 40)
    put_events(writer, "b", 1, 1)
    await until(lambda: writer.spooled_bytes >= 20 * EVENT_BYTES)
    gate.set()
    async with asyncio.timeout(BOUND_S):
        await writer.flush("a")
    assert stored == texts(1, 40)
    with pytest.raises(StoreError, match="1 rows"):
        await writer.close()


async def test_events_that_a_commit_takes_while_they_are_written_to_disk_are_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journals = Journals()
    writer = LaneWriter(journals, SPOOLING._replace(retry_s=30), tmp_path)
    spool = writer._spool  # pyright: ignore[reportPrivateUsage]
    real, entered, gate = spool.put, asyncio.Event(), asyncio.Event()

    async def slow(events: Sequence[bytes]) -> object:
        entered.set()
        await gate.wait()
        return await real(events)

    monkeypatch.setattr(spool, "put", slow)
    put_events(writer, "a", 1, 20)
    async with asyncio.timeout(BOUND_S):
        await entered.wait()
        journals.failure = None
        await writer.flush("a")
        gate.set()
    await until(lambda: writer._spooling is None)  # pyright: ignore[reportPrivateUsage]
    assert journals.stored == {"a": texts(1, 20)}
    assert (writer.pending, writer.spooled_bytes, memory_of(writer)) == (0, 0, 0)
    await writer.close()


async def test_a_closed_lane_gives_the_disk_back(tmp_path: Path) -> None:
    journals = Journals()
    writer = LaneWriter(journals, SPOOLING, tmp_path)
    put_events(writer, "a", 1, 30)
    await until(lambda: writer.spooled_bytes > 0 and memory_of(writer) <= SPOOLING.kept_bytes)
    journals.failure = LaneClosed(ShimError("taken"))
    await until(lambda: writer.pending == 0)
    assert (journals.stored, writer.spooled_bytes, memory_of(writer)) == ({}, 0, 0)
    await writer.close()


async def test_a_disk_that_takes_nothing_leaves_the_bound_in_memory_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    journals = Journals()
    writer = LaneWriter(journals, SPOOLING._replace(queue_bytes=4000), tmp_path)
    with capture_logs() as logs:
        put_events(writer, "a", 1, 40)
        await until(lambda: len(logs) > 1)
        for _ in range(3):
            with pytest.raises(StoreError, match="NATS is gone"):
                await writer.flush("a")
        with pytest.raises(
            StoreError,
            match=r"40 rows wait to be written \(4000 bytes in memory, .* NATS is gone\. The disk takes no more of them: "
            rf"queued events cannot be written to disk in {tmp_path}: No space left on device\. Nothing .* Start NATS",
        ):
            put_events(writer, "a", 41, 41)
    assert [line["event"] for line in logs] == ["store.failed", "store.spool_failed"]
    monkeypatch.setattr(os, "pwrite", pwrite)
    await until(lambda: memory_of(writer) <= SPOOLING.kept_bytes)  # it is tried again
    put_events(writer, "a", 41, 41)
    journals.failure = None
    await until(lambda: writer.pending == 0)
    assert journals.stored == {"a": texts(1, 41)}
    await writer.close()


async def test_each_outage_says_that_the_disk_takes_nothing(tmp_path: Path) -> None:
    journals = Journals()
    writer = LaneWriter(journals, SPOOLING, tmp_path / "missing")
    for outage in range(2):
        journals.failure = StoreError("NATS is gone")
        with capture_logs() as logs:
            put_events(writer, "a", 20 * outage + 1, 20 * outage + 20)
            await until(lambda: len(logs) > 1)
            journals.failure = None
            await until(lambda: writer.pending == 0)
        assert [line["event"] for line in logs] == ["store.failed", "store.spool_failed", "store.recovered"]
    assert journals.stored == {"a": texts(1, 40)}
    await writer.close()


async def test_memory_and_disk_together_are_bounded(tmp_path: Path) -> None:
    journals = Journals()
    writer = LaneWriter(journals, SPOOLING._replace(queue_bytes=2000, spool_bytes=5000), tmp_path)
    taken = 0
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(StoreError, match="the file for queued events has reached its maximum of 5000 bytes"):
            while True:
                put_events(writer, "a", taken + 1, taken + 1)
                taken += 1
                await asyncio.sleep(0.001)
    assert writer.spooled_bytes <= 5000
    assert memory_of(writer) == 2000
    assert writer.pending == taken
    journals.failure = None
    await until(lambda: writer.pending == 0)
    assert journals.stored == {"a": texts(1, taken)}
    await writer.close()


async def test_events_stay_in_memory_while_nats_takes_some(tmp_path: Path) -> None:
    commits = Commits()
    commits.gate.clear()
    writer = LaneWriter(commits, SPOOLING, tmp_path)
    put_events(writer, "a", 1, 30)
    await until(lambda: commits.most == 1)
    assert (writer.spooled_bytes, memory_of(writer)) == (0, 3000)
    commits.gate.set()
    await until(lambda: writer.pending == 0)
    await writer.close()


async def test_events_that_cannot_be_read_back_hold_up_their_lane_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journals = Journals()
    writer = LaneWriter(journals, SPOOLING, tmp_path)
    put_events(writer, "a", 1, 30)
    await until(lambda: writer.spooled_bytes > 0 and memory_of(writer) <= SPOOLING.kept_bytes)
    pread = os.pread

    def fail(fd: int, size: int, offset: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    await until(lambda: "cannot be read back" in str(writer.failure))  # a try before it has read some of them
    journals.failure = None
    put_events(writer, "b", 1, 1)
    await until(lambda: journals.stored == {"b": texts(1, 1)})
    with pytest.raises(StoreError, match="cannot be read back from the disk: Input/output error"):
        await writer.flush("a")
    assert writer.pending == 30
    monkeypatch.setattr(os, "pread", pread)
    await until(lambda: writer.pending == 0)
    assert journals.stored["a"] == texts(1, 30)
    await writer.close()


async def test_a_commit_is_bounded_in_bytes() -> None:
    journals = Journals()
    journals.failure = None
    writer = LaneWriter(journals, LIMITS)
    put_events(writer, "a", 1, 5, size=400_000)
    put_events(writer, "a", 6, 6, size=2_000_000)
    await until(lambda: writer.pending == 0)
    assert journals.sizes == [800_000, 800_000, 400_000, 2_000_000]
    await writer.close()
