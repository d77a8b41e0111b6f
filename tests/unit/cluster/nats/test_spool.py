"""The spool gives back what was written, and its space, and says what its disk fails at. A store without NATS does so too."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shim.cluster.nats import connection as connections
from shim.cluster.nats import spool as spools
from shim.cluster.nats.layout import ClusterOptions
from shim.cluster.nats.spool import Spool
from shim.cluster.nats.store import JetStreamStore
from shim.lib.errors import SessionElsewhere, StoreError
from shim.store.ownership import ClaimedSession
from tests.support.nats_server import NatsServer
from tests.unit.cluster.nats.conftest import LIMITS
from tests.unit.cluster.nats.test_store import SEEN_S, end_lease, sequences, until_written
from tests.unit.store.store_contract import event, journal, row

EVENTS = (b"one", b"", b"\x00\n\xff" * 1000)
LIMIT = 1 << 20


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[Spool]:
    spool = Spool(tmp_path, LIMIT)
    yield spool
    await spool.close()


def file_of(spool: Spool) -> os.stat_result:
    file = spool._file  # pyright: ignore[reportPrivateUsage]
    assert file is not None
    return os.fstat(file.fileno())


async def test_events_are_read_as_they_were_written(spool: Spool) -> None:
    first, second = await spool.put(EVENTS), await spool.put((b"two",))
    assert (await spool.read(second), await spool.read(first)) == ((b"two",), EVENTS)
    assert spool.size == file_of(spool).st_size == first.size + second.size


async def test_no_other_program_can_open_the_file(spool: Spool, tmp_path: Path) -> None:
    await spool.put(EVENTS)
    assert list(tmp_path.iterdir()) == []
    assert file_of(spool).st_nlink == 0
    assert stat.S_IMODE(file_of(spool).st_mode) == 0o600


async def test_the_last_free_extent_frees_the_space(spool: Spool) -> None:
    first, second = await spool.put(EVENTS), await spool.put(EVENTS)
    spool.free(first)
    await spool.trim()
    assert await spool.read(second) == EVENTS
    spool.free(second)
    await spool.trim()
    assert (spool.size, file_of(spool).st_size) == (0, 0)
    assert await spool.read(await spool.put(EVENTS)) == EVENTS


async def test_trim_keeps_a_write_that_comes_meanwhile(spool: Spool) -> None:
    spool.free(await spool.put(EVENTS))
    trimming = asyncio.create_task(spool.trim())
    extent = await spool.put((b"new",))
    await trimming
    assert await spool.read(extent) == (b"new",)


async def test_a_full_spool_takes_no_more_and_keeps_what_it_has(tmp_path: Path) -> None:
    spool = Spool(tmp_path, limit=30)
    extent = await spool.put((b"one",))
    with pytest.raises(StoreError, match="has reached its maximum of 30 bytes"):
        await spool.put((b"x" * 20,))
    assert await spool.read(extent) == (b"one",)
    await spool.close()


async def test_a_failed_write_takes_no_space(spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    before = await spool.put(EVENTS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StoreError, match=f"cannot be written to disk in {tmp_path}: No space left on device"):
            await spool.put(EVENTS)
    assert spool.size == before.size
    after = await spool.put((b"after",))
    assert (await spool.read(before), await spool.read(after)) == (EVENTS, (b"after",))


async def test_a_short_write_is_gone_on_with(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:7], offset))
    assert await spool.read(await spool.put(EVENTS)) == EVENTS


async def test_events_that_the_disk_has_lost_are_never_taken_for_others(spool: Spool) -> None:
    extent = await spool.put(EVENTS)
    file = spool._file  # pyright: ignore[reportPrivateUsage]
    assert file is not None
    os.pwrite(file.fileno(), b"X", extent.size - 1)
    with pytest.raises(StoreError, match=r"cannot be read back .* the disk returned other bytes\. .* stop this server"):
        await spool.read(extent)
    os.ftruncate(file.fileno(), 3)
    with pytest.raises(StoreError, match="the disk returned other bytes"):
        await spool.read(extent)


async def test_a_spool_without_a_directory_says_so(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "missing", LIMIT)
    with pytest.raises(StoreError, match="No such file or directory"):
        await spool.put(EVENTS)
    await spool.close()


async def test_a_closed_spool_takes_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, LIMIT)
    await spool.put(EVENTS)
    await spool.close()
    with pytest.raises(StoreError, match="the store is closed"):
        await spool.put(EVENTS)
    await spool.close()


async def test_the_disk_is_written_and_read_in_threads(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[bool] = []

    def note(real: object) -> object:
        def call(*args: object) -> object:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                loops.append(False)
            else:
                loops.append(True)
            return real(*args)  # type: ignore[operator]

        return call

    for name in ("pwrite", "pread", "ftruncate"):
        monkeypatch.setattr(spools.os, name, note(getattr(os, name)))
    extent = await spool.put(EVENTS)
    await spool.read(extent)
    spool.free(extent)
    await spool.trim()
    assert loops == [False] * 4  # a read ends with an empty one


# --- the store over it -----------------------------------------------------------------------------------------------

SPOOLING = LIMITS._replace(kept_bytes=20_000, chunk_bytes=5000, queue_bytes=100_000)
"""2,000 events are more than that memory."""


async def write_turn(store: JetStreamStore) -> None:
    """Let a turn write events 4 to 2,003 while NATS is away, as fast as the store takes them."""
    first = 4
    async with asyncio.timeout(SEEN_S):
        while first < 2004:
            try:
                store.append(journal(first, first + 19))
            except StoreError:  # NATS is not known to be away yet
                await asyncio.sleep(0.01)
            else:
                first += 20
                await asyncio.sleep(0)
        while store.failure is None:
            await asyncio.sleep(0.01)


def bytes_on_disk(store: JetStreamStore) -> int:
    return store._use().lanes.spooled_bytes  # pyright: ignore[reportPrivateUsage]


async def test_a_turn_that_writes_more_than_memory_while_nats_is_gone_is_stored_once_and_in_order(
    private_nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.5)
    store = JetStreamStore(ClusterOptions((private_nats.url,)), limits=SPOOLING, directory=tmp_path)
    await store.open()
    store.save_session(row())
    store.append(journal(1, 3))
    await store.flush()
    private_nats.stop(signal.SIGKILL)
    await write_turn(store)
    store.save_session(row(updated_ms=9))
    assert store.pending == 2001
    assert bytes_on_disk(store) > SPOOLING.queue_bytes
    assert store.last_sequence("ses_a") == 2003
    private_nats.start()
    await until_written(store)
    assert await store.events("ses_a") == journal(1, 2003)
    assert await store.sessions() == [row(updated_ms=9)]
    assert (store.pending, bytes_on_disk(store)) == (0, 0)
    await store.close()


async def test_a_session_that_was_taken_while_its_events_were_on_disk_loses_them(
    private_nats: NatsServer, tmp_path: Path
) -> None:
    limits = SPOOLING._replace(retry_s=30)  # it does not write before the other server has claimed
    store = JetStreamStore(ClusterOptions((private_nats.url,)), limits=limits, directory=tmp_path)
    await store.open()
    store.save_session(row())
    store.append(journal(1, 3))
    await store.flush()
    private_nats.stop(signal.SIGKILL)
    await write_turn(store)
    assert bytes_on_disk(store) > 0
    private_nats.start()
    other = JetStreamStore(store.options, limits=LIMITS)
    await other.open()
    await end_lease(store, by=other)
    assert await other.claim("ses_a") == ClaimedSession(row())
    stored = other.last_sequence("ses_a")  # more than 3 if the connection still sent what it had when NATS was killed
    assert stored < 2003
    async with asyncio.timeout(SEEN_S):
        while True:
            try:
                await store.flush("ses_a")
            except SessionElsewhere:
                break
            except StoreError:  # it is not connected again yet
                await asyncio.sleep(0.01)
    other.append([event(stored + 1, raw="other")])
    assert await sequences(other) == list(range(1, stored + 2))
    assert (await other.events("ses_a"))[-1].raw == "other"
    assert (store.pending, bytes_on_disk(store)) == (0, 0)
    assert [lost.session_id for lost in (await store.look()).lost] == ["ses_a"]
    await other.close()
    await store.close()
