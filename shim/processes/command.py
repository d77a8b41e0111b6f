"""Runs a short program (`git`, `rg`) with bounded time and output, and returns what it printed.

The program gets no password of the server, no terminal, and only the input in `stdin`. It runs in its own process group. The
whole group is killed when the time or output limit is reached or the caller is cancelled. `shim.processes` runs agents.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shim.lib.errors import InvalidRequest, ShimError
from shim.processes import child_process
from shim.processes.child_environment import child_environment

TIMEOUT_S = 15.0
"""Seconds for one program. A git status of a large cold repository takes some seconds; no client waits longer than this."""
OUTPUT_LIMIT_BYTES = 32 * 2**20
STDERR_LIMIT_BYTES = 64 * 2**10
CHUNK_BYTES = 64 * 2**10


class ProgramMissing(ShimError):
    """The program is not installed. The text names it."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A program's exit code and output. `code` is None if it was killed at its output (`truncated`) or time limit."""

    code: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")


async def run(
    argv: Sequence[str],
    cwd: str,
    *,
    environment: Mapping[str, str | None] | None = None,
    timeout_s: float = TIMEOUT_S,
    limit_bytes: int = OUTPUT_LIMIT_BYTES,
    stdin: bytes = b"",
) -> CommandResult:
    """Run a program in `cwd`, in the user's environment (`child_environment`) with these changes (None removes).

    Raises: ProgramMissing; FileNotFoundError if `cwd` is no directory; InvalidRequest for a NUL, which no argument can hold.
    """
    if any("\0" in argument for argument in argv):
        raise InvalidRequest(f"A value for {argv[0]} may not contain NUL", "Query")
    if not await asyncio.to_thread(os.path.isdir, cwd):
        raise FileNotFoundError(cwd)
    try:
        process = await child_process.start(
            argv, cwd=cwd, environment=child_environment(os.environ, environment or {}), stdin=PIPE if stdin else DEVNULL
        )
    except FileNotFoundError as error:
        raise ProgramMissing(f"{argv[0]} is not installed, or not on PATH") from error
    assert process.stdout is not None and process.stderr is not None
    out, err = bytearray(), bytearray()
    code: int | None = None
    whole, timed_out = True, False
    try:
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as readers:
            readers.create_task(_read(process.stderr, err, STDERR_LIMIT_BYTES, drain=True))
            if process.stdin is not None:
                readers.create_task(_feed(process.stdin, stdin))
            whole = await _read(process.stdout, out, limit_bytes)
            if whole:
                code = await process.wait()
            else:
                child_process.kill(process)
    except TimeoutError:
        timed_out = True
    finally:
        if code is None:
            await child_process.end(process)
    return CommandResult(code, bytes(out), bytes(err), truncated=not whole, timed_out=timed_out)


async def _read(stream: asyncio.StreamReader, into: bytearray, limit: int, *, drain: bool = False) -> bool:
    """Read up to `limit` bytes into `into`; return whether that was all.

    `drain`: after the limit, read and drop the rest, so that the program does not block on a full pipe.
    """
    whole = True
    while chunk := await stream.read(CHUNK_BYTES):
        room = limit - len(into)
        into += chunk[: max(0, room)]
        whole = whole and len(chunk) <= room
        if not whole and not drain:
            return False
    return whole


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
    stream.close()
