"""A program on a terminal of its own: its output as text, its input, its size, its end.

The program leads a session of which the terminal is the controlling one, as in a terminal window, so that Ctrl-C, job
control and `stty` work. Output is taken in gulps with a pause between them: a program that floods its terminal gets slower,
the server does not. POSIX only.
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

from shim.runtime import child, family
from shim.runtime.environment import ChildEnvironment

READ_BYTES = 64 * 1024
"""Taken from the terminal at once; one piece of output for those who watch."""
PAUSE_S = 0.004
"""Between two gulps: at most some 16 MB/s, and no more than 250 pieces a second."""
HANGUP_S = 1.0
"""Between the hang-up, at which shells end their jobs, and the kill."""
KILLED_S = 2.0
"""For what was killed to be gone."""
COLUMNS, ROWS = 80, 24
"""Until the first `resize`."""

# A session leader that opens a terminal gets it as its controlling one. No `preexec_fn`: Python code between fork and exec
# can hang in a process with threads.
_OPEN = 'exec "$@" <>"$0" >&0 2>&0'


@dataclass(frozen=True, slots=True)
class PtySpec:
    """What to run. `argv[0]` is an absolute path; `token` is in the environment's `MARK`, its family is ended by it."""

    argv: Sequence[str]
    cwd: str
    environment: ChildEnvironment
    token: str


class PtyProcess:
    """One run. `on_output` gets pieces of text, never after `on_exit`, which gets the exit code (128 + n for signal n)."""

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
        """The program runs."""
        return self._master >= 0

    async def start(self) -> None:
        """Raises OSError if there are no more terminals, or the folder is none."""
        # The slave stays open here: the terminal outlives the moment between the program's start and its first open.
        self._master, self._slave = pty.openpty()
        try:
            os.set_blocking(self._master, False)
            self.resize(ROWS, COLUMNS)
            process = await child.start(
                ("/bin/sh", "-c", _OPEN, os.ttyname(self._slave), *self._spec.argv),
                cwd=self._spec.cwd,
                environment=self._spec.environment,
                stdout=self._slave,
                stderr=self._slave,
            )
        except BaseException:
            self._close()
            raise
        self.pid = process.pid
        self._since = family.start_ticks(process.pid)
        self._watch()
        self._waiter = asyncio.create_task(self._wait(process), name=f"terminal {process.pid}")

    def resize(self, rows: int, columns: int) -> None:
        """The program gets SIGWINCH."""
        if self.is_open:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", min(rows, 0xFFFF), min(columns, 0xFFFF), 0, 0))

    async def write(self, data: bytes) -> None:
        """As if typed. Waits while the program does not read; what it never reads is dropped at its end."""
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
        """Hang up as a closed window does, then kill whatever it started that is still there. Again is fine."""
        if self._waiter is None:
            return
        known = (
            await asyncio.to_thread(family.members, self.pid, self._spec.token, self._since)
            if self.is_open
            else set[family.Process]()
        )
        if self.is_open:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGHUP)
            await asyncio.wait([self._waiter], timeout=HANGUP_S)
        await asyncio.to_thread(family.sweep, family.NOBODY, self._spec.token, self._since, known, KILLED_S)
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
        """What is there now, at most a gulp of it."""
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
