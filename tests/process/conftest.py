"""The fixture `spawn` starts fake agents. After each test each has exited once, and left no process, task or descriptor."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.process.support import BOUND_S, Nursery, until_empty
from tests.process.test_two_servers import Server, server
from tests.support.nats_server import NatsServer


@pytest_asyncio.fixture(params=["pipes", "holder"])
async def spawn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nursery]:
    holders = tmp_path_factory.mktemp("h") if request.param == "holder" else None
    nursery = Nursery(holders)
    gc.collect()  # sockets of loops that were closed
    await asyncio.to_thread(int)  # the executor's threads and descriptors are not a leak
    descriptors, tasks = len(os.listdir("/proc/self/fd")), asyncio.all_tasks()
    yield nursery
    async with asyncio.timeout(BOUND_S):
        for process, _ in nursery.started:
            await process.stop()
    orphans = nursery.orphans()
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)
    assert orphans == []
    assert [len(seen.exits) for _, seen in nursery.started] == [1] * len(nursery.started)
    assert all(seen.log[-1] is seen.exits[0] for _, seen in nursery.started), "a line came after the exit"
    if holders is not None:
        await until_empty(holders)  # a holder ends after its agent, with nothing left
    for _ in range(5):  # tasks end in the next rounds of the loop
        await asyncio.sleep(0)
    async with asyncio.timeout(BOUND_S):  # a closed pipe is let go of in the next rounds of the loop, a socket with its holder
        while len(os.listdir("/proc/self/fd")) > descriptors:
            await asyncio.sleep(0.005)
    assert asyncio.all_tasks() - tasks - {asyncio.current_task()} == set()
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    nats = NatsServer(tmp_path / "nats")
    nats.start()
    yield nats
    nats.stop()


@pytest.fixture
def two_nodes(request: pytest.FixtureRequest, tmp_path: Path, nats: NatsServer) -> Iterator[tuple[Server, Server]]:
    """Two servers of a cluster with data directories of their own, for one project. NODE_SETTINGS of a module are theirs."""
    data = [str(tmp_path / name) for name in ("one", "two")]
    shared = {"SHIM_CLUSTER": nats.url, **getattr(request.module, "NODE_SETTINGS", {})}
    with (
        server(tmp_path, **shared, SHIM_DATA_DIR=data[0]) as one,
        server(tmp_path, **shared, SHIM_DATA_DIR=data[1]) as two,
    ):
        yield one, two
