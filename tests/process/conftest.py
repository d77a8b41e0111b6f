"""The fixture `spawn` starts fake agents. After each test each has exited once, and left no process, task or descriptor."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest_asyncio

from tests.process.support import BOUND_S, Nursery


@pytest_asyncio.fixture
async def spawn() -> AsyncIterator[Nursery]:
    nursery = Nursery()
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
    for _ in range(5):  # a closed pipe is let go of in the next rounds of the loop
        await asyncio.sleep(0)
    assert asyncio.all_tasks() - tasks - {asyncio.current_task()} == set()
    assert len(os.listdir("/proc/self/fd")) == descriptors
