"""The one module that starts programs. Each gets its environment from `child_environment`, and leads a process group.

    start        a child of the event loop, as asyncio's `Process`
    connect      the same with a protocol of our own
    foreground   a program that has our terminal (OpenCode's TUI)
    ask          a short program whose output is wanted; blocks
    replace      another program in our place
    detach       a program that outlives us

It also does what asyncio leaves to its callers when a program is given up: nothing of it lives on, no pipe of it stays open.
A test (`tests/unit/test_layout.py`) finds every other way to start a program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from shim.runtime.environment import ChildEnvironment

REAP_S = 2.0
"""After a SIGKILL; longer only if the kernel holds it (a dead network disk), and then we do not wait for it."""

P = TypeVar("P", bound=asyncio.SubprocessProtocol)


async def start(
    argv: Sequence[str],
    *,
    cwd: str,
    environment: ChildEnvironment,
    stdin: int = DEVNULL,
    stdout: int = PIPE,
    stderr: int = PIPE,
) -> Process:
    """The process, which leads a group. Cancelled meanwhile, it is ended first: asyncio of 3.11 hangs when cancelled half-way.

    Raises OSError, ValueError (a NUL) if it cannot be started.
    """
    starting: Coroutine[Any, Any, Process] = asyncio.create_subprocess_exec(
        *argv, cwd=cwd, env=dict(environment), stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )
    task = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await end(await task)
        raise


async def connect(
    protocol: Callable[[], P], argv: Sequence[str], *, cwd: str, environment: ChildEnvironment
) -> tuple[asyncio.SubprocessTransport, P]:
    """A program with three pipes that a protocol listens to. It leads a group. Raises OSError, ValueError."""
    loop = asyncio.get_running_loop()
    return await loop.subprocess_exec(protocol, *argv, cwd=cwd, env=dict(environment), start_new_session=True)


def foreground(argv: Sequence[str], *, environment: ChildEnvironment, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    """A program that has our terminal and our process group. Raises OSError."""
    return subprocess.Popen(argv, env=dict(environment), cwd=cwd)


def ask(argv: Sequence[str], *, environment: ChildEnvironment, timeout_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run it to its end, without input; None if it cannot be started or is not done in time. Blocks."""
    try:
        return subprocess.run(
            argv, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def reap(process: subprocess.Popen[bytes], wait_s: float) -> None:
    """Wait for a program that was told to end; kill it if it does not. Blocks."""
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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


def replace(argv: Sequence[str], *, environment: ChildEnvironment) -> NoReturn:
    """Become another program: same process, terminal and pipes. Raises OSError."""
    os.execve(argv[0], list(argv), dict(environment))  # noqa: S606 - a program that the person asked for


def detach(argv: Sequence[str], *, environment: ChildEnvironment, log: TextIO) -> int:
    """Start a program that outlives us, in a session of its own; it writes to `log`. Its process id. Raises OSError."""
    process = subprocess.Popen(
        argv, env=dict(environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    process.returncode = 0  # or Python warns that nobody has waited for it
    return process.pid
