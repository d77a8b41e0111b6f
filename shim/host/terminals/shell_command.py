"""Runs a shell command of the person (`!cmd` in the TUI) or of an agent that runs none itself, and streams its output."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

from shim.processes import child_process
from shim.processes.child_environment import ChildEnvironment

READ_BYTES = 64 * 1024
OUTPUT_LIMIT_CHARS = 1_000_000
"""Characters of output that are kept and shown. The rest is read and dropped."""
KILL_GRACE_S = 1.0
"""Seconds between SIGTERM and SIGKILL of a stop."""
FALLBACK_SHELL = "/bin/sh"
Enclose = Callable[[Sequence[str], str], Sequence[str]]
"""Puts what holds a command before it. In: a program with its arguments, and its directory. Blocking. Raises OSError."""


def leave_command(argv: Sequence[str], directory: str) -> Sequence[str]:
    """Return a command as it is: nothing holds it."""
    return argv


def shell_of(environ: Mapping[str, str]) -> str:
    """The person's shell, if there is one. Blocking."""
    preferred = environ.get("SHELL", "")
    return preferred if preferred.startswith("/") and os.access(preferred, os.X_OK) else FALLBACK_SHELL


@dataclass(eq=False)
class ShellCommand:
    """One run of a command, with stdout and stderr in one stream. It leads a process group.

    `command` is a line for the shell, or a program with its arguments. `limit_chars` limits the output passed to `on_output`.
    `enclose` holds a line.
    """

    command: str | Sequence[str]
    cwd: str
    env: ChildEnvironment
    on_output: Callable[[str], None]
    _: KW_ONLY
    on_started: Callable[[], None] | None = None
    limit_chars: float = OUTPUT_LIMIT_CHARS
    enclose: Enclose = leave_command
    _process: asyncio.subprocess.Process | None = None
    stopped: bool = False
    _is_killed: bool = False

    def _argv(self) -> Sequence[str]:
        """The program and its arguments. Blocking."""
        if not isinstance(self.command, str):
            return self.command
        shell = self.env.get("SHELL") or "/bin/sh"
        return self.enclose((shell if os.access(shell, os.X_OK) else "/bin/sh", "-c", self.command), self.cwd)

    async def run(self) -> int:
        """Run the command and return its exit code, negative for a signal. A cancellation ends it.

        Raises OSError if the command or the shell cannot be started in the directory.
        """
        self._process = process = await child_process.start(
            await asyncio.to_thread(self._argv), cwd=self.cwd, environment=self.env, stderr=asyncio.subprocess.STDOUT
        )
        try:
            return await self._read(process)
        except BaseException:  # a cancelled caller ends its command
            self.stopped = True
            await child_process.end(process)
            raise
        finally:
            await child_process.close(process)

    async def _read(self, process: asyncio.subprocess.Process) -> int:
        """Pass on its output until it ends, and return its exit code."""
        if self.on_started is not None:
            self.on_started()
        if self._is_killed:
            self._signal(signal.SIGKILL)
        elif self.stopped:  # while it was started
            self.stop()
        assert process.stdout is not None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        size = 0
        exited = asyncio.ensure_future(process.wait())
        try:
            while True:
                room = max(0.0, self.limit_chars - size)
                reading = asyncio.ensure_future(process.stdout.read(READ_BYTES))
                await asyncio.wait({reading, exited}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    # The command exited, but a child of it may hold the pipe. Take only the output that is there already.
                    await asyncio.wait({reading}, timeout=0.05)
                    if not reading.done():
                        reading.cancel()
                        break
                chunk = reading.result()
                text = decoder.decode(chunk, final=not chunk)
                text = text if len(text) <= room else text[: int(room)]
                size += len(text)
                if text:
                    self.on_output(text)
                if not chunk:
                    break
            return await exited
        finally:
            exited.cancel()

    @property
    def pid(self) -> int | None:
        """Process id of its leader, or None before the start."""
        return None if self._process is None else self._process.pid

    def stop(self) -> None:
        """Send SIGTERM to its group, and SIGKILL after KILL_GRACE_S."""
        self.stopped = True
        self._signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(KILL_GRACE_S, self._signal, signal.SIGKILL)

    def kill(self) -> None:
        self.stopped = self._is_killed = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
