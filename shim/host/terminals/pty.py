"""Runs a program on a pseudo-terminal: its output as text, its input, its size, its end.

The program leads a process session whose controlling terminal it is, as in a terminal window, so that Ctrl-C, job control and
`stty` work. The server pauses between two reads: a program that floods its terminal gets slower, the server does not. POSIX
only.
"""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from shim.processes import child_process, process_family
from shim.processes.child_environment import ChildEnvironment

READ_BYTES = 64 * 1024
"""Bytes per read, and the largest piece of output."""
PAUSE_S = 0.004
"""Seconds between two reads. It limits the output to about 16 MB/s and 250 pieces a second."""
HANGUP_S = 1.0
"""Seconds between SIGHUP, at which shells end their jobs, and the kill."""
KILLED_S = 2.0
"""Seconds for killed processes to be gone."""
COLUMNS, ROWS = 80, 24
"""Size of the terminal until the first `resize`."""

# A process session's leader that opens a terminal gets it as its controlling one. `preexec_fn` would run Python code between
# fork and exec, which can hang in a process with threads.
_OPEN = 'exec "$@" <>"$0" >&0 2>&0'


@dataclass(frozen=True, slots=True)
class PtySpec:
    """The program to run. `argv[0]` is an absolute path. `token` is in the environment's `MARK` and identifies its family."""

    argv: Sequence[str]
    cwd: str
    environment: ChildEnvironment
    token: str


class PtyProcess:
    """One run of a program. `on_output` gets pieces of text. Then `on_exit` gets the exit code (128 + n for signal n)."""

    def __init__(self, spec: PtySpec, on_output: Callable[[str], None], on_exit: Callable[[int], None]) -> None:
        self._spec = spec
        self._on_output = on_output
        self._on_exit = on_exit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._loop = asyncio.get_running_loop()
        self._writing = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Task[None] | None = None
        self._master = self._slave = -1
        self._since = 0
        self.pid = 0

    @property
    def is_open(self) -> bool:
        """True while the program runs."""
        return self._master >= 0

    async def start(self) -> None:
        """Start the program. Raises OSError if there is no free terminal, or no such folder."""
        # The slave stays open here, so that the terminal exists until the program opens it.
        self._master, self._slave = pty.openpty()
        try:
            os.set_blocking(self._master, False)
            self.resize(ROWS, COLUMNS)
            process = await child_process.start(
                ("/bin/sh", "-c", _OPEN, os.ttyname(self._slave), *self._spec.argv),
                cwd=self._spec.cwd,
                environment=self._spec.environment,
                stdout=self._slave,
                stderr=self._slave,
            )
        except BaseException:  # a cancelled start leaves nothing behind
            self._close()
            raise
        self.pid = process.pid
        self._since = process_family.start_ticks(process.pid)
        self._watch()
        self._waiter = asyncio.create_task(self._wait(process), name=f"terminal {process.pid}")

    def resize(self, rows: int, columns: int) -> None:
        """Set the terminal's size. The program gets SIGWINCH."""
        if self.is_open:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", min(rows, 0xFFFF), min(columns, 0xFFFF), 0, 0))

    async def write(self, data: bytes) -> None:
        """Write input as if typed. It waits while the program does not read. Unread input is dropped at the end."""
        async with self._writing:
            rest = memoryview(data)
            while rest and self.is_open:
                try:
                    rest = rest[os.write(self._master, rest) :]
                except BlockingIOError:
                    await self._writable()
                except OSError:
                    return

    async def end(self) -> None:
        """Send SIGHUP as a closed window does, then kill all processes that the program started. May be repeated."""
        if self._waiter is None:
            return
        relatives = (
            await asyncio.to_thread(process_family.members, self.pid, self._spec.token, self._since)
            if self.is_open
            else set[process_family.Process]()
        )
        if self.is_open:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGHUP)
            await asyncio.wait([self._waiter], timeout=HANGUP_S)
        await asyncio.to_thread(
            process_family.sweep, process_family.NO_LEADER, self._spec.token, self._since, relatives, KILLED_S
        )
        await asyncio.wait([self._waiter], timeout=KILLED_S)

    # --- inside

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self._take(final=True)
        self._close()
        self._on_exit(code if code >= 0 else 128 - code)

    def _watch(self) -> None:
        if self.is_open:
            self._loop.add_reader(self._master, self._readable)

    def _readable(self) -> None:
        self._loop.remove_reader(self._master)
        self._take()
        self._pause = self._loop.call_later(PAUSE_S, self._watch)

    def _take(self, *, final: bool = False) -> None:
        """Read the available output, at most READ_BYTES."""
        data = bytearray()
        while len(data) < READ_BYTES:
            try:
                piece = os.read(self._master, READ_BYTES - len(data))
            except OSError:  # nothing now, or the other side has closed
                break
            if not piece:
                break
            data += piece
        text = self._decoder.decode(bytes(data), final)
        if text:
            self._on_output(text)

    async def _writable(self) -> None:
        room = self._room = self._loop.create_future()
        self._loop.add_writer(self._master, _settle, room)
        try:
            await room
        finally:
            if self.is_open:
                self._loop.remove_writer(self._master)

    def _close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._master >= 0:
            self._loop.remove_reader(self._master)
            self._loop.remove_writer(self._master)
            os.close(self._slave)
            os.close(self._master)
        self._master = self._slave = -1
        if self._room is not None:
            _settle(self._room)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
