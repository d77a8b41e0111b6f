"""What asyncio leaves to its callers when a program is started and given up: nothing of it lives on, no pipe of it stays open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Coroutine
from typing import Any

REAP_S = 2.0
"""After a SIGKILL; longer only if the kernel holds it (a dead network disk), and then we do not wait for it."""


async def started(starting: Coroutine[Any, Any, Process]) -> Process:
    """The process, which leads a group. Cancelled meanwhile, it is ended first: asyncio of 3.11 hangs when cancelled half-way."""
    task = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await end(await task)
        raise


async def end(process: Process) -> None:
    """Kill its group, and wait until it is gone, at most REAP_S."""
    kill(process)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REAP_S):
            await process.wait()
    await close(process)


async def close(process: Process) -> None:
    """Close what is open between it and us. Its pipes may not have been read to their end: asyncio would keep them open until
    garbage collection. A process that still runs is killed, its group is not."""
    transport: asyncio.SubprocessTransport | None = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
        # They are closed in the loop's next round, which may be its last.
        await asyncio.sleep(0)


def kill(process: Process) -> None:
    """SIGKILL to its group, if there is one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
