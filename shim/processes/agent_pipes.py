"""Runs an agent's process: bytes in, lines out, exactly one exit, and no process left behind.

    AgentProcess.spawn     fork and exec in a new process session; errors name the wrong path
    Pipes                 asyncio's callbacks for the three pipes and the process
    _at_once               stdout -> LineFramer -> on_lines, for small chunks
    _pump                  the same for a flood, and after `on_lines` had to be awaited
    _run                   pump until the process is gone, sweep its family, read the rest, report the exit

The ladder of `stop`. Each step is taken only if the one before did not end the process:

    close stdin      agents write their transcript and exit       STDIN_CLOSE_S
    SIGTERM          to the process group                         TERM_S
    SIGKILL          to the group and the whole family            REAP_S

However the process ends (by itself, stopped, killed, or because our loop closes), `process_family.sweep` then ends all processes
that it started, and `on_exit` is called exactly once, after the last line. Leftover processes get a SIGTERM first (LEFT_S),
unless our loop closes: the helper of Codex's sandbox then removes the empty `.git` that it created in /tmp and the working
directory.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import structlog

from shim.lib.errors import AgentError, AgentGone, AgentNotFound, AgentStartFailed, AgentStuck
from shim.lib.redaction import clean, secrets_of
from shim.lib.tasks import wait_at_most
from shim.processes import child_process, process_family
from shim.processes.child_environment import agent_shell, child_environment
from shim.processes.tail import Tail
from universal.launch import Exit, LaunchSpec
from universal.lib.framing import LIMIT_BYTES, Framed, FrameError, LineFramer, ShortLine

STDIN_CLOSE_S = 5.0
"""Seconds after stdin is closed. Claude Code then writes its transcript; if killed earlier, it loses the last message."""
TERM_S = 5.0
"""Seconds after SIGTERM. Agents then end their tools' processes; Claude Code takes up to 2 s."""
REAP_S = 2.0
"""Seconds after SIGKILL for the system to remove the processes. Only one stuck in the kernel takes longer."""
LEFT_S = 0.5
"""Seconds after SIGTERM for leftover processes to end. Codex's sandbox takes some milliseconds."""
QUIET_S = 1.0
"""Seconds of silence after which we stop reading the stdout of a process that is gone.

A stdout that is still open then belongs to a foreign process. The agent's own output is in the pipe and comes at once.
"""
DRAIN_S = 10.0
"""Maximum seconds of reading the stdout of a process that is gone, if output never pauses."""
FIRST_LINES, LINES_AT_ONCE = 64, 256
"""Lines of one agent that are handled before the loop runs other tasks: 1 ms of the first of a read, so that readers get these
soon, and 3 to 5 ms of the others."""
READ_BYTES = 64 * 1024
"""Bytes per read, the size of a pipe. asyncio's own 256 KiB would be allocated and freed for each line."""
HELD_BYTES = 16 * 1024
"""Bytes of stdout that may wait for the pump before reading pauses."""
OUTGOING_BYTES = 64 * 1024 * 1024
"""Bytes that may wait for an agent to read. A prompt with images has some MB; an agent so far behind is stuck."""

OnLines: TypeAlias = Callable[[list[bytes]], Awaitable[None] | None]
OnExit: TypeAlias = Callable[[Exit], None]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of the ladder and of the drain, in seconds. Only tests change the defaults."""

    stdin_close_s: float = STDIN_CLOSE_S
    term_s: float = TERM_S
    reap_s: float = REAP_S
    quiet_s: float = QUIET_S
    drain_s: float = DRAIN_S


class _Stdout(asyncio.Protocol):
    """Passes stdout's bytes on at once. asyncio's own protocol would defer them to its next iteration."""

    def __init__(self, receive: Callable[[bytes], None], plain: asyncio.Protocol) -> None:
        self.data_received = receive  # pyright: ignore[reportAttributeAccessIssue] - a call of our own for each chunk less
        self._plain = plain

    def connection_lost(self, exc: Exception | None) -> None:
        self._plain.connection_lost(exc)


class Pipes(child_process.ChildProtocol):
    """The state of the three pipes.

    While the pump waits, `at_once` gets each chunk and returns the rest for the pump, or None. Reading pauses at HELD_BYTES of
    untaken stdout, and one read takes READ_BYTES at most. So a flood costs no memory and other tasks run between two chunks.
    Single lines do not pause the reading, since a pause and a resume cost as much as the read.
    """

    def __init__(self) -> None:
        self.exited = asyncio.Event()
        self.stdin_open = True
        self.stderr = Tail()
        self.waiting = False
        """True while the pump has delivered everything and waits."""
        self.at_once: Callable[[bytes], bytes | None] = lambda data: data
        self.chunks_seen = 0
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._paused = False
        self._stdout_open = True
        self._arrived = asyncio.Event()
        self._stdout: asyncio.ReadTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        pipe: Any = cast(asyncio.SubprocessTransport, transport).get_pipe_transport(1)
        if hasattr(pipe, "max_size"):  # uvloop reads in its own way
            pipe.max_size = READ_BYTES
        pipe.set_protocol(_Stdout(self._receive, pipe.get_protocol()))
        self._stdout = cast(asyncio.ReadTransport, pipe)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr.add(data)
        else:  # read before `connection_made`
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        self.chunks_seen += 1
        rest = self.at_once(data) if self.waiting and not self._chunks else data
        if rest is None:
            return
        self._chunks.append(rest)
        self._buffered += len(rest)
        self._arrived.set()
        if self._buffered >= HELD_BYTES and not self._paused and self._stdout is not None:
            self._paused = True
            self._stdout.pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            self.stdin_open = False
        elif fd == 1:
            self._stdout_open = False
            self._arrived.set()

    def process_exited(self) -> None:
        self.exited.set()

    async def take(self) -> bytes | None:
        """Wait for output and return all of it, or None at the end of stdout."""
        while not self._chunks:
            if not self._stdout_open:
                return None
            self._arrived.clear()
            if self._paused and self._stdout is not None:
                self._paused = False
                self._stdout.resume_reading()
            self.waiting = True
            try:
                await self._arrived.wait()
            finally:
                self.waiting = False
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        return data


class AgentProcess:
    """One running process; implements `AgentHandle`. Create it with `spawn`."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        pipes: Pipes,
        token: str,
        secrets: frozenset[str],
        on_lines: OnLines,
        on_exit: OnExit,
        waits: Waits,
    ) -> None:
        self.pid = transport.get_pid()
        """Id of the process, of its group and of its process session."""
        self._transport = transport
        self._pipes = pipes
        self._token = token
        self._secrets = secrets
        self._since = process_family.start_ticks(self.pid)
        self._kin: set[process_family.Process] = set()
        self._on_lines = on_lines
        self._on_exit = on_exit
        self._waits = waits
        self._framer = LineFramer()
        self._context = copy_context()
        self._due: Awaitable[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._ladder: asyncio.Task[None] | None = None
        self._stdin_closed = False
        self._swept = False

    @classmethod
    async def spawn(
        cls,
        spec: LaunchSpec,
        env: Mapping[str, str],
        *,
        on_lines: OnLines,
        on_exit: OnExit,
        name: str = "agent",
        waits: Waits | None = None,
    ) -> AgentProcess:
        """Start the process.

        `env` is the person's environment; `child_environment` decides what the agent gets of it. `on_lines` gets whole lines in
        order, without their ends, in a task of the running loop. If it returns an awaitable, reading waits for it. A line over
        32 MiB comes shortened, or as a stand-in that no codec can parse. If `on_lines` raises, the process is ended. `on_exit` is
        called once, after the last line. Neither is called before this method has returned and the caller has awaited something.

        Raises AgentNotFound, AgentStartFailed.
        """
        token = secrets.token_hex(8)
        environment = child_environment(env, {**agent_shell(env), **spec.env}, token)
        try:
            transport, pipes = await child_process.connect(
                Pipes, spec.argv, cwd=spec.cwd, environment=environment, descriptors=spec.descriptors
            )
        except (OSError, ValueError) as error:
            raise start_error(spec, error) from error
        self = cls(transport, pipes, token, secrets_of({**env, **environment}), on_lines, on_exit, waits or Waits())
        self._task = asyncio.create_task(self._run(), name=f"{name} {self.pid}")
        self._task.add_done_callback(self._finish)
        return self

    # --- from the session ------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """True while the process accepts input."""
        return self._pipes.stdin_open and not self._stdin_closed and not self._pipes.exited.is_set()

    @property
    def stderr(self) -> str:
        """The beginning and the end of its stderr so far, without the secrets of its environment."""
        return clean(self._pipes.stderr.text(), self._secrets)

    def write(self, data: bytes) -> None:
        """Queue a line for its stdin and add the newline. Raises AgentGone, AgentStuck; ValueError for two lines."""
        stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        self._check(data, stdin.get_write_buffer_size() if self.alive else 0)
        stdin.write(data + b"\n")

    def _check(self, data: bytes, waiting_bytes: int) -> None:
        """Raise as `write`. In: bytes that wait for the agent."""
        if b"\n" in data:
            raise ValueError("A line for an agent must not contain a newline.")
        if not self.alive:
            raise AgentGone("The agent's process has ended; the next prompt starts it again.")
        if waiting_bytes + len(data) >= OUTGOING_BYTES:
            raise AgentStuck(f"The agent does not read what it is sent: {waiting_bytes} bytes wait for it.")

    def close_input(self) -> None:
        """Close its stdin after the queued lines. Most agents then finish their turn and exit."""
        self._stdin_closed = True
        stdin = self._transport.get_pipe_transport(0)
        if stdin is not None:
            stdin.close()

    def interrupt(self) -> None:
        """Send SIGINT to the process alone. It ends its tools itself, as at a Ctrl-C."""
        if not self._pipes.exited.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """Send SIGKILL to the process and its group. The sweep of its family and `on_exit` follow."""
        if self._pipes.exited.is_set():
            return
        self._stdin_closed = True
        self._kin |= process_family.members(self.pid, self._token, self._since)
        self._signal_group(signal.SIGKILL)

    async def stop(self) -> None:
        """Stop the process with the ladder of the module's docstring. Returns after `on_exit` was called.

        Several callers may wait for it. It is bounded by the sum of the waits, and cancelling it does not stop the ladder.
        """
        if self._ladder is None:
            self._ladder = asyncio.create_task(self._descend(), name=f"stop {self.pid}")
        await asyncio.shield(self._ladder)

    # --- its life ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pump = asyncio.create_task(self._pump(), name=f"stdout {self.pid}", context=self._context)
        self._pipes.at_once = partial(self._context.run, self._at_once)
        try:
            await self._until_gone(pump)
            if survivors := await asyncio.to_thread(self._sweep):
                log.warning("agent.family_left", pid=self.pid, left=sorted(process.pid for process in survivors))
            await self._drain(pump)
        finally:
            pump.cancel()
        await asyncio.wait({pump})
        if not pump.cancelled() and (error := pump.exception()) is not None:
            raise error
        await self._deliver(self._framer.close())

    async def _until_gone(self, pump: asyncio.Task[None]) -> None:
        """Wait until the process exits. It is ended if it closes its stdout or if `on_lines` raises."""
        exited = asyncio.ensure_future(self._pipes.exited.wait())
        try:
            await asyncio.wait({pump, exited}, return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                if pump.exception() is not None:
                    self.kill()
                elif self._ladder is None:
                    self._ladder = asyncio.create_task(self._descend(), name=f"stop {self.pid}")
            await exited
        finally:
            exited.cancel()

    def _at_once(self, data: bytes) -> bytes | None:
        """Deliver a few lines in the pump's context without waking it, which would take a loop iteration.

        Returns the bytes that are left for the pump, or None.
        """
        if data.count(b"\n") > FIRST_LINES:
            return data
        lines = self._as_lines(self._framer.push(data))
        if not lines:
            return None
        try:
            self._due = self._on_lines(lines)
        except Exception as error:  # raised where the pump awaits it, not in the transport
            self._due = _raise(error)
        return None if self._due is None else b""

    async def _pump(self) -> None:
        while (chunk := await self._pipes.take()) is not None:
            due, self._due = self._due, None
            if due is not None:
                await due
            await self._deliver(self._framer.push(chunk))

    async def _deliver(self, framed: list[Framed]) -> None:
        if not framed:
            return
        lines = self._as_lines(framed)
        at, end = 0, FIRST_LINES
        while at < len(lines):
            if at:
                await asyncio.sleep(0)  # other tasks run
            pending = self._on_lines(lines[at:end])
            if pending is not None:
                await pending
            at, end = end, end + LINES_AT_ONCE

    def _as_lines(self, framed: list[Framed]) -> list[bytes]:
        """Replace lines that were too long, and log them."""
        for line in framed:
            if type(line) is not bytes:  # nearly none
                return [self._line(line) for line in framed]
        return cast("list[bytes]", framed)

    def _line(self, line: Framed) -> bytes:
        if isinstance(line, FrameError):
            log.warning("agent.line_dropped", pid=self.pid, size_bytes=line.size_bytes, limit_bytes=LIMIT_BYTES)
            return line.stand_in()
        if isinstance(line, ShortLine):
            log.warning("agent.line_shortened", pid=self.pid, size_bytes=line.size_bytes, limit_bytes=LIMIT_BYTES)
        return line

    async def _drain(self, pump: asyncio.Task[None]) -> None:
        """Read the rest of the pipe. The time is limited, since a leftover process may hold the pipe open."""
        deadline = asyncio.get_running_loop().time() + self._waits.drain_s
        quiet = False
        while not pump.done() and not quiet and asyncio.get_running_loop().time() < deadline:
            chunks = self._pipes.chunks_seen
            await asyncio.wait({pump}, timeout=min(self._waits.quiet_s, self._waits.drain_s))
            quiet = self._pipes.waiting and self._pipes.chunks_seen == chunks

    def _sweep(self) -> set[process_family.Process]:
        """End leftover processes, with SIGTERM first. Blocks."""
        process_family.end(process_family.members(self.pid, self._token, self._since) | self._kin, LEFT_S, signal.SIGTERM)
        return self._sweep_at_once()

    def _sweep_at_once(self) -> set[process_family.Process]:
        self._swept = True
        self._signal_group(signal.SIGKILL)
        return process_family.sweep(self.pid, self._token, self._since, self._kin, self._waits.reap_s)

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
            os.killpg(self.pid, number)

    async def _descend(self) -> None:
        assert self._task is not None
        try:
            if not self._pipes.exited.is_set():
                self._kin |= await asyncio.to_thread(process_family.members, self.pid, self._token, self._since)
                self.close_input()
                if not await self._exits_within(self._waits.stdin_close_s):
                    self._signal_group(signal.SIGTERM)
                    if not await self._exits_within(self._waits.term_s):
                        log.warning("agent.killed", pid=self.pid)
                        self.kill()
        except asyncio.CancelledError:  # our loop closes
            self.kill()
            raise
        ended, _ = await asyncio.wait({self._task}, timeout=self._waits.reap_s * 2 + self._waits.drain_s)
        if not ended:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _exits_within(self, seconds: float) -> bool:
        return await wait_at_most(self._pipes.exited.wait(), seconds)

    def _finish(self, task: asyncio.Task[None]) -> None:
        """Report the exit after `_run`. It also kills and sweeps if `_run` was cancelled."""
        self.kill()
        if not self._swept:
            self._sweep_at_once()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("agent.lines_failed", pid=self.pid, exc_info=error)
        self._transport.close()
        code = self._transport.get_returncode()
        killed = code is None or code < 0
        try:
            self._on_exit(
                Exit(
                    code=None if killed else code,
                    signal=-(code or -signal.SIGKILL) if killed else None,
                    stderr=self.stderr,
                )
            )
        except Exception:  # the exit is told once, whatever the listener does
            log.exception("agent.exit_failed", pid=self.pid)


async def _raise(error: Exception) -> None:
    """Raise an error of `on_lines` in the pump, whose failure ends the process."""
    raise error


def start_error(spec: LaunchSpec, error: OSError | ValueError) -> AgentError:
    """Return an error that says which path is wrong and why. The system's own text names only one path."""
    binary, directory = Path(spec.argv[0]), Path(spec.cwd)
    if not directory.is_dir():
        hint = "If your client runs on another one, open the project by its path here."
        return AgentStartFailed(f"The agent was not started: {directory} is not a directory on the server's machine. {hint}")
    if isinstance(error, FileNotFoundError):
        if not binary.exists():
            return AgentNotFound(f"The agent's program does not exist: {binary}.")
        return AgentStartFailed(f"The agent was not started: the interpreter in the first line of {binary} does not exist.")
    if isinstance(error, PermissionError):
        if not os.access(directory, os.X_OK):
            return AgentStartFailed(f"The agent was not started: no permission to enter {directory}.")
        return AgentStartFailed(f"The agent was not started: no permission to run {binary}. Is it executable?")
    return AgentStartFailed(f"The agent was not started: {binary}: {error}")
