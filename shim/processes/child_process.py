"""Starts all programs. Each gets its environment from `child_environment` and leads a process group.

    start        a child of the event loop, as asyncio's `Process`
    connect      a child of the event loop with its own protocol class
    foreground   a program in our terminal (OpenCode's TUI)
    ask          a short program whose output is returned; blocks
    replace      a program that replaces this process
    detach       a program that outlives this process
    hold         an agent that outlives this process, on a holder (`shim.processes.holder`)

It also cleans up abandoned programs, which asyncio leaves to its callers: no process lives on and no pipe stays open.
`tests/unit/test_layout.py` fails if another module starts a program.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from shim.lib.tasks import wait_at_most
from shim.processes import process_family
from shim.processes.child_environment import ChildEnvironment, child_environment

REAP_S = 2.0
"""Seconds to wait for a process after SIGKILL. Only one stuck in the kernel (a dead network disk) takes longer."""

INTERPRETER = (getattr(sys, "_base_executable", "") or sys.executable, "-I", "-S")
"""Python itself, without the packages of an environment: half of the memory of a holder."""
HOLDER = str(Path(__file__).with_name("holder.py"))
READ_PROGRAM = """# {program}
from marshal import loads
from posix import read
code = b""
while len(code) < {size} and (piece := read(0, {size} - len(code))):
    code += piece
code = piece = loads(code)
exec(code)
"""
"""Runs a program whose bytecode comes first on stdin. One that compiles itself has 1.2 MiB more in memory, and the folder of our
code may take no bytecode."""
HOLD_S = 10.0
"""Seconds for a holder and its agent to start. A machine without memory takes some."""

T = TypeVar("T")


class ChildProtocol(asyncio.SubprocessProtocol):
    """A protocol that `connect` can feed. It sets `exited` in `process_exited`."""

    exited: asyncio.Event


P = TypeVar("P", bound=ChildProtocol)


async def start(
    argv: Sequence[str],
    *,
    cwd: str,
    environment: ChildEnvironment,
    stdin: int = DEVNULL,
    stdout: int = PIPE,
    stderr: int = PIPE,
    descriptors: Sequence[int] = (),
) -> Process:
    """Start a process that leads a group and inherits `descriptors`. Raises OSError, or ValueError for a NUL in `argv`."""
    return await _whole(
        asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=dict(environment),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=descriptors,
        ),
        end,
    )


async def connect(
    protocol: Callable[[], P], argv: Sequence[str], *, cwd: str, environment: ChildEnvironment, descriptors: Sequence[int] = ()
) -> tuple[asyncio.SubprocessTransport, P]:
    """Start a program whose three pipes feed a protocol, and that inherits `descriptors`. It leads a group.

    Raises OSError, ValueError.
    """
    loop = asyncio.get_running_loop()
    starting: Coroutine[Any, Any, tuple[asyncio.SubprocessTransport, P]] = loop.subprocess_exec(
        protocol, *argv, cwd=cwd, env=dict(environment), start_new_session=True, pass_fds=descriptors
    )
    return await _whole(starting, _disconnect)


async def _whole(starting: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, None]]) -> T:
    """Start a process to the end, also if the caller is cancelled meanwhile, and end it then.

    asyncio of 3.11 ends a start that is cancelled only half: it kills the program but nothing that this one has started, and
    waits for their pipes without end.
    """
    task = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await finish(task)
        if task.exception() is None:
            await finish(asyncio.ensure_future(undo(task.result())))
        raise


async def finish(task: asyncio.Future[Any]) -> None:
    """Wait for the end of a short task, though the caller is cancelled meanwhile, once or again. Raises nothing."""
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})


async def _disconnect(connected: tuple[asyncio.SubprocessTransport, ChildProtocol]) -> None:
    """Kill the group of a process that feeds a protocol, and wait until the process is gone, at most REAP_S."""
    transport, protocol = connected
    with contextlib.suppress(ProcessLookupError):
        os.killpg(transport.get_pid(), signal.SIGKILL)
    await wait_at_most(protocol.exited.wait(), REAP_S)
    transport.close()


def foreground(argv: Sequence[str], *, environment: ChildEnvironment, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a program in our terminal and our process group. Raises OSError."""
    return subprocess.Popen(argv, env=dict(environment), cwd=cwd)


def ask(argv: Sequence[str], *, environment: ChildEnvironment, timeout_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run a program without input to its end. Returns None if it cannot start or takes too long. Blocks.

    What it has started is ended with it then, or if we are interrupted.
    """
    try:
        process = subprocess.Popen(
            argv,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    except OSError:
        return None
    with process:
        try:
            out, errors = process.communicate(timeout=timeout_s)
            return subprocess.CompletedProcess(argv, process.wait(), out, errors)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended just now
                    os.killpg(process.pid, signal.SIGKILL)


def reap(process: subprocess.Popen[bytes], wait_s: float) -> None:
    """Wait up to `wait_s` seconds for a program that was asked to end, then kill it and all that it started. Blocks."""
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        family = process_family.members(process.pid, "")
        process.kill()
        process.wait()
        process_family.end(family, REAP_S)


async def end(process: Process) -> None:
    """Kill a process's group and wait until the process is gone, at most REAP_S."""
    kill(process)
    await wait_at_most(process.wait(), REAP_S)
    await close(process)


async def close(process: Process) -> None:
    """Close the pipes of a process. A process that still runs is killed, but not its group.

    asyncio would keep pipes that were not read to their end open until garbage collection.
    """
    transport: asyncio.SubprocessTransport | None = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
        # The loop closes them in its next round, which may be its last.
        await asyncio.sleep(0)


def kill(process: Process) -> None:
    """Send SIGKILL to a process's group, if it still exists."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def replace(argv: Sequence[str], *, environment: ChildEnvironment) -> NoReturn:
    """Replace this process with another program that keeps its terminal and pipes. Raises OSError."""
    os.execve(argv[0], list(argv), dict(environment))  # noqa: S606 - a program that the person asked for


def detach(argv: Sequence[str], *, environment: ChildEnvironment, log: TextIO) -> int:
    """Start a program that outlives this process and writes to `log`. Returns its process id. Raises OSError."""
    process = subprocess.Popen(
        argv, env=dict(environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    process.returncode = 0  # else Python warns that nobody waited for the process
    return process.pid


@cache
def holder_code(program: str) -> bytes:
    """The bytecode of a holder's program. Blocks."""
    return marshal.dumps(SourceFileLoader("holder", program).get_code("holder"))


async def waiting_holder(terminal: Sequence[int] = ()) -> Process:
    """Start a holder that waits for `hold`. It ends with us, or when its stdin is closed. Raises OSError."""
    code = await asyncio.to_thread(holder_code, HOLDER)
    argv = (*INTERPRETER, "-c", READ_PROGRAM.format(program=HOLDER, size=len(code)))
    holder = await start(argv, cwd="/", environment=child_environment({}, {}), stdin=PIPE, stderr=DEVNULL, descriptors=terminal)
    assert holder.stdin is not None
    holder.stdin.write(code)
    return holder


async def hold(
    holder: Process,
    folder: Path,
    secret: bytes,
    argv: Sequence[str],
    *,
    cwd: str,
    environment: ChildEnvironment,
    terminal: Sequence[int] = (),
) -> int:
    """Start an agent on a holder, or a program in a terminal whose two ends the holder has inherited.

    Out: its pid. If nobody attaches, both end soon. Raises OSError, ValueError.
    """
    count = " ".join(map(str, (len(argv), *terminal)))
    parts = [str(folder), secret.hex(), cwd, count, *argv, *(f"{key}={value}" for key, value in environment.items())]
    try:
        if any("\0" in part for part in parts):
            raise ValueError("embedded null byte")
        async with asyncio.timeout(HOLD_S):
            answer, _ = await holder.communicate(b"\0".join(map(os.fsencode, parts)))
    except BaseException:  # a cancelled start leaves no program
        await end(holder)
        raise
    if answer.isdigit():
        return int(answer)
    number = int(answer[1:] or b"0")
    raise OSError(number, os.strerror(number), argv[0])
