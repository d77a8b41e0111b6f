"""Children of the server: how it learns of their end, and what a start that is cancelled leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from shim.cli import server
from shim.processes import child_process
from shim.processes.child_environment import child_environment

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


class _Exit(child_process.ChildProtocol):
    def __init__(self) -> None:
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        self.exited.set()


async def _connect(directory: Path, script: str) -> None:
    environment = child_environment(os.environ, {})
    argv = ("/bin/sh", "-c", script)
    transport, seen = await child_process.connect(_Exit, argv, cwd=str(directory), environment=environment)
    try:
        await asyncio.Event().wait()
    finally:
        os.killpg(transport.get_pid(), signal.SIGKILL)
        await child_process.finish(asyncio.ensure_future(seen.exited.wait()))
        transport.close()


async def _start(directory: Path, script: str) -> None:
    argv = ("/bin/sh", "-c", script)
    process = await child_process.start(argv, cwd=str(directory), environment=child_environment(os.environ, {}))
    try:
        await asyncio.Event().wait()
    finally:
        await child_process.finish(asyncio.ensure_future(child_process.end(process)))


@pytest.mark.parametrize("cancellations", [1, 2])
@pytest.mark.parametrize("rounds", range(8))
@pytest.mark.parametrize("begin", [_connect, _start])
async def test_a_start_that_is_cancelled_ends_and_leaves_nothing(
    begin: Callable[[Path, str], Coroutine[Any, Any, None]], rounds: int, cancellations: int, tmp_path: Path
) -> None:
    """In whatever round of the loop: a program that has children would keep its pipes open, and asyncio waits for those."""
    script = "sleep 30 & echo $! > child; wait"
    task = asyncio.ensure_future(begin(tmp_path, script))
    for _ in range(rounds):
        await asyncio.sleep(0)
    for _ in range(cancellations):
        task.cancel()
        await asyncio.sleep(0)
    done, _ = await asyncio.wait({task}, timeout=WAIT_S)
    assert done
    assert task.cancelled()
    child = (tmp_path / "child").read_text() if (tmp_path / "child").exists() else ""
    async with asyncio.timeout(WAIT_S):  # the kernel takes a moment to end what was killed
        while child.strip() and _lives(int(child)):
            await asyncio.sleep(0)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
