"""What the disk and the kernel do to a store: kill -9, no more room, a second process."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from shim.lib.errors import StoreError
from shim.store.lock import DirectoryLock
from shim.store.sqlite import SqliteStore
from shim.store.writer import Limits
from tests.unit.store.store_contract import event, row

ROOT = Path(__file__).parents[3]
START_S = 30.0


@asynccontextmanager
async def child(path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The writing child; killed at the end if it has not been."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.unit.store.kill_child", str(path), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(START_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def flush_count(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line.startswith(b"flushed "), line
    return int(line.split()[1])


@pytest.mark.parametrize("rounds", [1, 2, 7])
async def test_flushed_rows_survive_kill_9(tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "journal.db"
    async with child(path) as process:
        for _ in range(rounds):
            promised = await flush_count(process)
        process.kill()
        assert await process.wait() == -9

    store = SqliteStore(path)
    await store.open()
    found = await store.events("ses_a")
    assert [e.sequence for e in found] == list(range(1, len(found) + 1))
    assert len(found) >= promised
    assert found[0] == event(1, raw={"filler": "x" * 200})
    assert await store.sessions() == [row()]
    store.append([event(len(found) + 1)])
    await store.close()


async def test_a_second_process_is_named_and_its_end_frees_the_directory(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    lock = DirectoryLock(tmp_path)
    async with child(path) as process:
        await flush_count(process)
        with pytest.raises(StoreError, match=rf"Another opencode-shim \(pid {process.pid}\)"):
            lock.acquire()
        process.kill()
        await process.wait()
    lock.acquire()
    lock.release()


@contextmanager
def no_file_may_grow_beyond(size: int) -> Iterator[None]:
    """As if the disk were full: a write beyond `size` bytes into any file fails (EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_no_more_room_is_reported_at_every_flush_and_made_up_for(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    store = SqliteStore(path, limits=Limits(retry_s=1000.0))
    await store.open()
    store.append([event(1)])
    await store.flush()
    assert store.failure is None
    wal = path.with_name("journal.db-wal")
    with no_file_may_grow_beyond(wal.stat().st_size + 5000):
        for n in range(2, 60):
            store.append([event(n, raw={"x": "y" * 1000})])
        for _ in range(3):
            with pytest.raises(StoreError, match=r"Cannot write to .*journal\.db: .*(disk|I/O).*kept and tried again"):
                await store.flush()
            assert store.failure is not None
        with pytest.raises(StoreError, match="Cannot write"):
            await store.events("ses_a")
        assert store.pending == 58
    assert len(await store.events("ses_a")) == 59
    assert store.failure is None
    assert store.pending == 0
    await store.close()


async def test_no_more_room_at_the_end_is_reported_by_close(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    store = SqliteStore(path)
    await store.open()
    store.append([event(1)])
    await store.flush()
    with no_file_may_grow_beyond(path.with_name("journal.db-wal").stat().st_size + 5000):
        store.append([event(2, raw={"x": "y" * 100_000})])
        with pytest.raises(StoreError, match="1 rows were not written: Cannot write to"):
            await store.close()
    again = SqliteStore(path)
    await again.open()
    assert await again.events("ses_a") == [event(1)]
    await again.close()
