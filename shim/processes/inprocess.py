"""Runs an agent inside of the server, behind the handle of a process.

    program(stdio)     an async function that reads lines, writes lines and returns its exit code
    _Pipe              a bounded queue of lines; a full one makes the writer wait, like a pipe of the system

It ends once, and `on_exit` always comes after the last line:

    returns n          Exit(code=n)
    raises Died        Exit(signal=n), as if killed
    raises otherwise   Exit(code=1), with the traceback as stderr
    kill()             the program is cancelled: Exit(signal=9)
    stop()             its input ends; after STOP_S it is killed

A program that ignores its cancellation cannot be ended. After KILL_S its pipes are closed and its exit is reported anyway.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from shim.lib.errors import AgentGone, AgentStuck
from shim.processes.agent_pipes import OnExit, OnLines
from shim.processes.child_environment import child_environment
from universal.launch import Exit, LaunchSpec

LINES = 256
"""Maximum number of lines in each direction. Beyond it the agent waits, and the server's write fails."""
STOP_S = 2.0
"""Seconds for a program to end after its input. It flushes nothing to a disk, so it gets less time than a process."""
KILL_S = 1.0
"""Seconds for a program to end after its cancellation. Only one that swallows it takes so long."""
SIGKILL = 9

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Waits:
    """The two waits, in seconds. Only tests change the defaults."""

    stop_s: float = STOP_S
    kill_s: float = KILL_S


class Died(Exception):
    """Raised by a program to end as if this signal had killed it."""

    def __init__(self, signal: int = SIGKILL) -> None:
        super().__init__(f"signal {signal}")
        self.signal = signal


class _Pipe:
    """A queue of at most `limit` lines, for one reader and any number of writers."""

    def __init__(self, limit: int) -> None:
        self.closed = False
        self._limit = limit
        self._lines: deque[bytes] = deque()
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()

    async def put(self, line: bytes) -> None:
        """Wait for room and append a line. A cancelled call appends nothing. Raises BrokenPipeError if closed."""
        while not self.offer(line):
            self._writable.clear()
            await self._writable.wait()

    def offer(self, line: bytes) -> bool:
        """Append a line and return True, or return False if there is no room. Raises BrokenPipeError if closed."""
        if self.closed:
            raise BrokenPipeError("the other end is closed")
        if len(self._lines) >= self._limit:
            return False
        self._lines.append(line)
        self._readable.set()
        return True

    def close(self) -> None:
        """Accept no more lines. The reader gets the queued ones, then the end."""
        self.closed = True
        self._readable.set()
        self._writable.set()

    async def take(self, most: int) -> list[bytes]:
        """Wait for lines and return up to `most` of them, or [] at the end."""
        while not self._lines and not self.closed:
            self._readable.clear()
            await self._readable.wait()
        lines = [self._lines.popleft() for _ in range(min(most, len(self._lines)))]
        self._writable.set()
        return lines


@dataclass(frozen=True, slots=True)
class Stdio:
    """The arguments of a program: how it was launched, and its two pipes."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    _input: _Pipe
    _output: _Pipe

    async def read(self) -> bytes | None:
        """Return the next line, or None at the end."""
        lines = await self._input.take(1)
        return lines[0] if lines else None

    async def write(self, line: bytes) -> None:
        """Write a line without its newline. It waits while the reader is behind. Raises BrokenPipeError."""
        await self._output.put(line)


Program: TypeAlias = Callable[[Stdio], Awaitable[int]]


class InProcessAgent:
    """A running program; implements `AgentHandle`. Create it with `spawn`, in a running event loop."""

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
        """Start `program` with the arguments of `AgentProcess.spawn`. `lines` bounds each direction."""
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
        """Deliver lines until the program ends, then report its exit."""
        while lines := await self._output.take(LINES):
            try:
                pending = self._on_lines(lines)
                if pending is not None:
                    await pending
            except Exception:  # a fault in a codec ends its agent, not the server
                log.exception("agent.lines_failed")
                self.kill()
                await asyncio.wait({program}, timeout=self._waits.kill_s)
                break
        self._input.close()
        if self._cut is not None:
            self._cut.cancel()
        try:
            self._on_exit(self._exit_of(program))
        except Exception:  # a fault in a codec ends its agent, not the server
            log.exception("agent.exit_failed")

    def _exit_of(self, program: asyncio.Task[int]) -> Exit:
        if not program.done() or program.cancelled():
            return Exit(code=None, signal=SIGKILL)
        error = program.exception()  # read it in any case, else asyncio logs that nobody did
        if self._killed:
            return Exit(code=None, signal=SIGKILL)
        if isinstance(error, Died):
            return Exit(code=None, signal=error.signal)
        if error is not None:
            return Exit(code=1, stderr="".join(traceback.format_exception(error)))
        return Exit(code=program.result())

    @property
    def pid(self) -> None:
        return

    @property
    def alive(self) -> bool:
        """True while the program runs and reads."""
        return self._program is not None and not self._program.done() and not self._input.closed

    @property
    def stderr(self) -> str:
        """Empty: an agent inside of the server has no stderr."""
        return ""

    def write(self, data: bytes) -> None:
        """Queue a line for the program. Raises AgentGone, AgentStuck; ValueError for two lines."""
        if b"\n" in data:
            raise ValueError("A line for an agent must not contain a newline.")
        if not self.alive:
            raise AgentGone("The agent has ended; the next prompt starts it again.")
        if not self._input.offer(data):
            raise AgentStuck(f"The agent does not read: {LINES} lines wait for it. Abort the session to start it anew.")

    def interrupt(self) -> None:
        """Do nothing. A line interrupts an in-process agent; there is no process to signal."""

    def kill(self) -> None:
        """Cancel the program. Its exit follows, with signal 9."""
        if self._program is None or self._program.done() or self._killed:
            return
        self._killed = True
        self._input.close()
        self._program.cancel()
        # A program that swallows the cancellation loses its output pipe, so the exit does not wait for it.
        self._cut = asyncio.get_running_loop().call_later(self._waits.kill_s, self._output.close)

    async def stop(self) -> None:
        """End the input, wait `stop_s` seconds, then kill. Returns after `on_exit` was called. Bounded."""
        if self._program is None or self._pump is None:
            return
        self._input.close()
        finished, _ = await asyncio.wait({self._program}, timeout=self._waits.stop_s)
        if not finished:
            self.kill()
        await asyncio.wait({self._pump}, timeout=self._waits.kill_s * 2)
