"""A shell command of the person's (`!cmd` in the TUI): its output as it comes, its end, and how to stop it."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress

READ_BYTES = 64 * 1024
OUTPUT_LIMIT_CHARS = 1_000_000
"""What is kept and shown of a command's output; the rest is read and dropped."""
KILL_GRACE_S = 1.0
"""Between TERM and KILL when it is stopped."""


class ShellCommand:
    """One run: stdout and stderr in one stream, in a process group of its own."""

    def __init__(self, command: str, cwd: str, env: Mapping[str, str], on_output: Callable[[str], None]) -> None:
        self._command = command
        self._cwd = cwd
        self._env = env
        self._on_output = on_output
        self._process: asyncio.subprocess.Process | None = None
        self.stopped = False

    async def run(self) -> int:
        """Exit code (negative: signal). Raises OSError if no shell can be started in the directory."""
        shell = self._env.get("SHELL") or "/bin/sh"
        self._process = await asyncio.create_subprocess_exec(
            shell if os.access(shell, os.X_OK) else "/bin/sh",
            "-c",
            self._command,
            cwd=self._cwd,
            env=dict(self._env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        if self.stopped:
            self._signal(signal.SIGKILL)
        assert self._process.stdout is not None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        kept = 0
        exited = asyncio.ensure_future(self._process.wait())
        try:
            while True:
                reading = asyncio.ensure_future(self._process.stdout.read(READ_BYTES))
                await asyncio.wait({reading, exited}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    # It has exited, but a child of it may hold the pipe: take what is there already, no more.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(asyncio.shield(reading), 0.05)
                    if not reading.done():
                        reading.cancel()
                        break
                chunk = reading.result()
                text = decoder.decode(chunk, final=not chunk)[: max(0, OUTPUT_LIMIT_CHARS - kept)]
                kept += len(text)
                if text:
                    self._on_output(text)
                if not chunk:
                    break
            return await exited
        finally:
            exited.cancel()

    def stop(self) -> None:
        """TERM its group now, KILL it a moment later."""
        self.stopped = True
        self._signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(KILL_GRACE_S, self._signal, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
