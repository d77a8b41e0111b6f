"""Children of the server: how it learns of their end."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from shim.cli import server

WAIT_S = 10.0


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """What is set for the whole process is for this test alone."""
    if sys.version_info >= (3, 12):
        yield
        return
    before = asyncio.get_child_watcher()
    yield
    asyncio.set_child_watcher(before)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this kernel does not tell of it")
def test_no_child_needs_a_thread() -> None:
    async def children() -> tuple[int, list[int]]:
        shell = ["sh", "-c", "read number; exit $number"]
        started = [await asyncio.create_subprocess_exec(*shell, stdin=asyncio.subprocess.PIPE) for _ in range(5)]
        threads = threading.active_count()
        for number, child in enumerate(started):
            await child.communicate(f"{number}\n".encode())
        async with asyncio.timeout(WAIT_S):
            return threads, [await child.wait() for child in started]

    before = threading.active_count()
    with asyncio.Runner(loop_factory=server._loop_factory()) as runner:
        assert runner.run(children()) == (before, [0, 1, 2, 3, 4])
