"""An agent that runs inside of the server, behind the same handle as a process.

    program(stdio)     an async function: reads lines, writes lines, returns its exit code
    _Pipe              lines in order, bounded; a full one makes the writer wait (as a pipe of the system would)

How it ends, once, and always with `on_exit` after the last line:

    returns n          Exit(code=n)
    raises Died        Exit(signal=n), as if it had been killed
    raises otherwise   Exit(code=1), the traceback is its stderr
    kill()             cancelled: Exit(signal=9)
    stop()             its input ends; after STOP_S it is killed

A program that ignores its cancellation cannot be ended from outside: after KILL_S it is given up: cut off from
its pipes, and its exit is reported all the same.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from shim.errors import AgentGone, AgentStuck
from shim.runtime.environment import child_environment
from shim.runtime.process import OnExit, OnLines
from universal.codec import Exit, LaunchSpec

LINES = 256
"""So many lines fit into each direction: what is written beyond waits (agent) or is refused (server)."""
STOP_S = 2.0
"""For a program to end after its input has ended. Nothing is flushed to a disk, so this is shorter than for a process."""
KILL_S = 1.0
"""For a program to end after its cancellation; only one that swallows it takes as long."""
SIGKILL = 9

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Waits:
    """The two waits, in seconds. Others than the defaults only in tests."""

    stop_s: float = STOP_S
    kill_s: float = KILL_S


class Died(Exception):
    """Raised by a program that wants to die as by this signal."""

    def __init__(self, signal: int = SIGKILL) -> None:
        super().__init__(f"signal {signal}")
        self.signal = signal


class _Pipe:
    """Lines in order, at most `limit`; one reader, any number of writers."""

    def __init__(self, limit: int) -> None:
        self.closed = False
        self._limit = limit
        self._lines: deque[bytes] = deque()
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()

    async def put(self, line: bytes) -> None:
        """Append, after waiting for room. Cancelled means not appended. Raises BrokenPipeError when closed."""
        while not self.offer(line):
            self._writable.clear()
            await self._writable.wait()

    def offer(self, line: bytes) -> bool:
        """Append if there is room. Raises BrokenPipeError when closed."""
        if self.closed:
            raise BrokenPipeError("the other end is closed")
        if len(self._lines) >= self._limit:
            return False
        self._lines.append(line)
        self._readable.set()
        return True

    def close(self) -> None:
        """No more lines; the reader gets those that are there, then the end."""
        self.closed = True
        self._readable.set()
        self._writable.set()

    async def take(self, most: int) -> list[bytes]:
        """Wait for lines, take up to `most`; [] is the end."""
        while not self._lines and not self.closed:
            self._readable.clear()
            await self._readable.wait()
        taken = [self._lines.popleft() for _ in range(min(most, len(self._lines)))]
        self._writable.set()
        return taken


@dataclass(frozen=True, slots=True)
class Stdio:
    """What a program gets: how it was launched, and its two pipes."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    _input: _Pipe
    _output: _Pipe

    async def read(self) -> bytes | None:
        """The next line, None when there will be no more."""
        lines = await self._input.take(1)
        return lines[0] if lines else None

    async def write(self, line: bytes) -> None:
        """Write a line (without its newline); waits while the reader is behind. Raises BrokenPipeError."""
        await self._output.put(line)


Program: TypeAlias = Callable[[Stdio], Awaitable[int]]


class InProcessAgent:
    """A running program; an `AgentHandle`. Make it with `spawn`, in a running event loop."""

    def __init__(self, stdio: Stdio, pipes: tuple[_Pipe, _Pipe], on_lines: OnLines, on_exit: OnExit, waits: Waits) -> None:
        self._stdio = stdio
        self._input, self._output = pipes
        self._on_lines = on_lines
        self._on_exit = on_exit
        self._waits = waits
        self._killed = False
        self._cut: asyncio.TimerHandle | None = None
        self._program: asyncio.Task[int] | None = None
        self._pump: asyncio.Task[None] | None = None

    @classmethod
    def spawn(
        cls,
        program: Program,
        spec: LaunchSpec,
        env: Mapping[str, str],
        *,
        on_lines: OnLines,
        on_exit: OnExit,
        name: str = "agent",
        lines: int = LINES,
        waits: Waits | None = None,
    ) -> InProcessAgent:
        """Start `program`. The same in and out as `AgentProcess.spawn`: `env` is the person's environment, and so on."""
        pipes = (_Pipe(lines), _Pipe(lines))
        agent = cls(
            Stdio(spec.argv, spec.cwd, child_environment(env, spec.env), *pipes), pipes, on_lines, on_exit, waits or Waits()
        )
        agent._start(program, name)
        return agent

    def _start(self, program: Program, name: str) -> None:
        self._program = asyncio.create_task(self._run(program), name=f"{name}: program")
        self._program.add_done_callback(lambda _: self._output.close())
        self._pump = asyncio.create_task(self._deliver(self._program), name=f"{name}: pump")

    async def _run(self, program: Program) -> int:
        return await program(self._stdio)

    async def _deliver(self, program: asyncio.Task[int]) -> None:
        """Lines to the reader until the program is over, then its exit."""
        while lines := await self._output.take(LINES):
            try:
                pending = self._on_lines(lines)
                if pending is not None:
                    await pending
            except Exception:
                log.exception("agent.lines_failed")
                self.kill()
                await asyncio.wait({program}, timeout=self._waits.kill_s)
                break
        self._input.close()
        if self._cut is not None:
            self._cut.cancel()
        try:
            self._on_exit(self._exit_of(program))
        except Exception:
            log.exception("agent.exit_failed")

    def _exit_of(self, program: asyncio.Task[int]) -> Exit:
        if not program.done() or program.cancelled():
            return Exit(code=None, signal=SIGKILL)
        error = program.exception()  # asked for in any case, or asyncio complains that nobody did
        if self._killed:
            return Exit(code=None, signal=SIGKILL)
        if isinstance(error, Died):
            return Exit(code=None, signal=error.signal)
        if error is not None:
            return Exit(code=1, stderr="".join(traceback.format_exception(error)))
        return Exit(code=program.result())

    @property
    def pid(self) -> None:
        """It has no process of its own."""
        return

    @property
    def alive(self) -> bool:
        """Whether the program runs and reads."""
        return self._program is not None and not self._program.done() and not self._input.closed

    def write(self, data: bytes) -> None:
        """Queue a line for the program. Raises AgentGone, AgentStuck; ValueError for two lines."""
        if b"\n" in data:
            raise ValueError("A line for an agent must not contain a newline.")
        if not self.alive:
            raise AgentGone("The agent has ended; the next prompt starts it again.")
        if not self._input.offer(data):
            raise AgentStuck(f"The agent does not read: {LINES} lines wait for it. Abort the session to start it anew.")

    def interrupt(self) -> None:
        """Programs inside of the server are interrupted by a line; there is no process to signal."""

    def kill(self) -> None:
        """Cancel the program; its exit follows, with signal 9."""
        if self._program is None or self._program.done() or self._killed:
            return
        self._killed = True
        self._input.close()
        self._program.cancel()
        # It cannot swallow the end of its pipes: what it still writes is refused, and the exit does not wait for it.
        self._cut = asyncio.get_running_loop().call_later(self._waits.kill_s, self._output.close)

    async def stop(self) -> None:
        """End it politely: end of input, self._waits.stop_s, kill. Returns when `on_exit` was called. Bounded."""
        if self._program is None or self._pump is None:
            return
        self._input.close()
        done, _ = await asyncio.wait({self._program}, timeout=self._waits.stop_s)
        if not done:
            self.kill()
        await asyncio.wait({self._pump}, timeout=self._waits.kill_s * 2)
