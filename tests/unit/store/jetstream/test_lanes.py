"""Lanes: each is written in order, failures are repeated, and a closed lane stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from shim.errors import ShimError, StoreError
from shim.store.jetstream.lanes import LaneClosed, LaneWriter, Limits, Write

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
    writer = LaneWriter(commits, LIMITS._replace(queue_rows=10, queue_bytes=1000))
    writer.put("a", [write(1, rows=4)])
    assert not writer.is_crowded
    writer.put("b", [write(1, rows=4)])
    assert writer.is_crowded
    with pytest.raises(StoreError, match=r"8 rows .* NATS is too slow"):
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
