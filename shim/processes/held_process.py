"""An agent whose pipes a holder has (`shim.processes.holder`), so that it outlives the server. Beside that as `agent_pipes`.

HeldProcess.spawn    start a holder with an agent, and attach to it
HeldProcess.attach   attach to the holder of a server that has ended: its tape is read from the beginning
write                a line waits for `Hold.commit`, so that nothing reaches the agent of which the store does not know
leave                go, and let the agent go on
sweep                remove what killed holders have left
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple, cast

import structlog

from shim.lib.redaction import secrets_of
from shim.processes import child_process, process_family
from shim.processes.agent_pipes import AgentProcess, OnExit, OnLines, Pipes, Waits, start_error
from shim.processes.child_environment import agent_shell, child_environment
from universal.launch import LaunchSpec
from universal.lib.framing import FrameError, LineFramer

PROTOCOLS = frozenset({1, 2})
"""Versions of holders that this server understands: those of all releases."""
NOTES_SINCE = 2
"""Version of a holder from which on it has notes."""
NOTES_BYTES = 2**20
"""Maximum bytes of all notes of a holder, which stand in its memory."""
ATTACH_S = 5.0
"""Seconds for a holder to answer."""
LAST_S = 30.0
"""Seconds for a holder to take what was sent last."""
GONE_S = 1.0
"""Seconds that a stop waits for the holder to end after its agent."""
YOUNG_S = 60.0
"""Age in seconds from which a folder without a holder is no start in progress."""
PATH_BYTES = 100
"""Longest path of a socket. The systems allow 104 and 108."""
HEAD = 5

log = structlog.get_logger(__name__)


class NumberedLine(bytes):
    """A line for an agent with its number: the holder gives it to the agent once."""

    number: int

    @classmethod
    def of(cls, data: bytes, number: int) -> NumberedLine:
        line = cls(data)
        line.number = number
        return line


class HolderStart:
    """A holder that starts while its agent is not needed yet: its interpreter takes some time."""

    def __init__(self) -> None:
        self._start: asyncio.Task[Process] | None = None

    def begin(self) -> None:
        """Start one, unless one waits."""
        if self._start is None:
            self._start = asyncio.create_task(child_process.waiting_holder(), name="start of a holder")

    async def take(self) -> Process:
        """A holder that waits for its agent. Raises OSError."""
        self.begin()
        start, self._start = self._start, None
        assert start is not None
        try:
            holder = await asyncio.shield(start)
        except asyncio.CancelledError:
            self._start = start
            raise
        return holder if holder.returncode is None else await child_process.waiting_holder()

    async def close(self) -> None:
        """End the one that waits, if there is one."""
        if self._start is not None:
            with suppress(OSError):
                await child_process.end(await self.take())


class Hold(NamedTuple):
    """What a server must know of a holder: its folder, its secret (hex), and the token of the agent's processes.

    commit  waits until all that led to the lines written so far is stored
    starts  where its holder comes from
    """

    folder: Path
    secret: str
    token: str
    commit: Callable[[], Awaitable[None]]
    starts: HolderStart

    @property
    def fits(self) -> bool:
        """Whether the system takes the path of the socket."""
        return len(os.fsencode(self.folder / "s")) <= PATH_BYTES


def record(kind: bytes, data: bytes = b"") -> bytes:
    """A record for a holder."""
    return len(data).to_bytes(4, "little") + kind + data


class _Link(asyncio.Protocol):
    """The connection with a holder. Towards `Pipes` and `AgentProcess` it stands for asyncio's transports of a process."""

    def __init__(self, pipes: Pipes, pid: int, commit: Callable[[], Awaitable[None]]) -> None:
        self.pid = pid
        self._commit = commit
        self._closing: asyncio.Task[None] | None = None
        self.pipes = pipes
        self.socket: asyncio.Transport | None = None
        self.has_left = False
        self.gone = asyncio.Event()
        """The connection has ended."""
        self._has_ended = False
        self.attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stdout = cast(asyncio.Protocol, self)
        self.notes: list[bytes] = []
        self.protocol = 0
        self._noted = 0
        """Number of notes that come before the tape."""
        self._heard = bytearray()
        self._code: int | None = None

    # --- the holder's socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.socket = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        heard = self._heard
        heard += data
        at = 0
        while len(heard) >= at + HEAD and len(heard) >= (end := at + HEAD + int.from_bytes(heard[at : at + 4], "little")):
            kind, body = heard[at + 4], bytes(heard[at + HEAD : end])
            at = end
            if kind == 79:  # O
                self._stdout.data_received(body)
            elif kind == 69:  # E
                self.pipes.pipe_data_received(2, body)
            elif kind == 81:  # Q
                self.pipes.pipe_connection_lost(1, None)
            elif kind == 88:  # X
                self._end(int.from_bytes(body, "little", signed=True))
            elif kind == 84 and not self.attached.done():  # T
                self._greet(body)
            elif kind == 77:  # M
                self.notes.append(body)
                self._greet(b"")
        del heard[:at]

    def _greet(self, body: bytes) -> None:
        """The holder has let this server in, once all its notes have come."""
        if body:
            self.protocol, self._noted = body[0], int.from_bytes(body[HEAD + 4 :], "little")
        if self.protocol not in PROTOCOLS:
            why = f"It speaks version {self.protocol}, which this server does not know."
            self.attached.set_exception(ConnectionError(why))
        elif len(self.notes) == self._noted and not self.attached.done():
            self.attached.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        if not self.attached.done():
            self.attached.set_exception(ConnectionError("It did not let this server in."))
        elif self._code is None and not self.has_left:  # the holder was killed, and its agent cannot be heard any more
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._end(-signal.SIGKILL)
        self.pipes.pipe_connection_lost(1, None)

    def _end(self, code: int) -> None:
        if self._code is None:
            self._code = code
            self.pipes.pipe_connection_lost(0, None)
            self.pipes.process_exited()

    def send(self, kind: bytes, data: bytes = b"") -> None:
        """Send a record, if the holder is there and was not sent its end."""
        if self.socket is not None and not self._has_ended and not self.socket.is_closing():
            self.socket.write(record(kind, data))

    # --- what `Pipes` and `AgentProcess` need of transports

    def get_pid(self) -> int:
        return self.pid

    def get_returncode(self) -> int | None:
        return self._code

    def get_pipe_transport(self, fd: int) -> Any:
        return self

    def get_protocol(self) -> asyncio.Protocol:
        return asyncio.Protocol()

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        self._stdout = protocol

    def pause_reading(self) -> None:
        if self.socket is not None:
            self.socket.pause_reading()

    def resume_reading(self) -> None:
        if self.socket is not None and not self.socket.is_closing():
            self.socket.resume_reading()

    @property
    def waiting_bytes(self) -> int:
        return 0 if self.socket is None else self.socket.get_write_buffer_size()

    def leave(self) -> None:
        """Go without a word."""
        self.has_left = True
        if self.socket is not None:
            self.socket.close()

    def close(self) -> None:
        """Let the holder end, once all that its agent has said is stored: the next server needs it until then."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"end of the holder of {self.pid}")

    async def _close(self) -> None:
        """The holder is heard until it has ended: a socket that is closed with something unread loses what was sent."""
        await self._commit()
        self.send(b"L", bytes(8))
        self.send(b"F")
        if self.socket is not None and not self._has_ended and not self.socket.is_closing():
            self.socket.resume_reading()
            self._has_ended = True
            self.socket.write_eof()
            asyncio.get_running_loop().call_later(LAST_S, self.socket.abort)


async def _attach(hold: Hold, pid: int) -> _Link:
    """Attach to a holder. Raises OSError."""
    pipes = Pipes()
    link = _Link(pipes, pid, hold.commit)
    loop = asyncio.get_running_loop()
    pipes.connection_made(cast(asyncio.BaseTransport, link))
    try:
        async with asyncio.timeout(ATTACH_S):
            await loop.create_unix_connection(lambda: link, str(hold.folder / "s"))
            link.send(b"A", bytes((max(PROTOCOLS),)) + bytes.fromhex(hold.secret) + bytes(8))
            await link.attached
    except BaseException:  # a cancelled one leaves no socket
        if link.socket is not None:
            link.socket.abort()
        raise
    return link


async def dismiss(hold: Hold, pid: int) -> None:
    """Let a holder go, if there is one: its agent has ended, and no server takes it up. Else it would wait for its lease."""
    with suppress(OSError):
        (await _attach(hold, pid)).close()


class HeldProcess(AgentProcess):
    """One agent on a holder; implements `AgentHandle`. Create it with `spawn_on` or `attach`."""

    def __init__(
        self, link: _Link, hold: Hold, secrets: frozenset[str], on_lines: OnLines, on_exit: OnExit, waits: Waits | None = None
    ) -> None:
        transport = cast(asyncio.SubprocessTransport, link)
        super().__init__(transport, link.pipes, hold.token, secrets, on_lines, on_exit, waits or Waits())
        self.hold = hold
        self._link = link
        self._outbox: list[NumberedLine] = []
        self._outbox_bytes = 0
        self._sender: asyncio.Task[None] | None = None
        self._has_left = False

    @classmethod
    async def spawn_on(
        cls,
        hold: Hold,
        spec: LaunchSpec,
        env: Mapping[str, str],
        *,
        on_lines: OnLines,
        on_exit: OnExit,
        name: str = "agent",
        waits: Waits | None = None,
    ) -> HeldProcess:
        """Start a holder with an agent. As `AgentProcess.spawn`. Raises AgentNotFound, AgentStartFailed."""
        environment = child_environment(env, {**agent_shell(env), **spec.env}, hold.token)
        try:
            hold.folder.mkdir(parents=True, mode=0o700)
            holder = await hold.starts.take()
            pid = await child_process.hold(
                holder, hold.folder, bytes.fromhex(hold.secret), spec.argv, cwd=spec.cwd, environment=environment
            )
            link = await _attach(hold, pid)
        except BaseException as error:  # a cancelled start leaves nothing; a holder to which nobody comes ends
            rmtree(hold.folder, ignore_errors=True)
            if isinstance(error, (OSError, ValueError)):
                raise start_error(spec, error) from error
            raise
        self = cls(link, hold, secrets_of({**env, **environment}), on_lines, on_exit, waits)
        self.begin(name)
        return self

    @classmethod
    async def attach(cls, hold: Hold, pid: int, env: Mapping[str, str], *, on_lines: OnLines, on_exit: OnExit) -> HeldProcess:
        """Attach to the holder of a server that has ended. From `begin` on, `on_lines` gets all lines since the agent's start.

        In: the agent's pid. Raises OSError.
        """
        link = await _attach(hold, pid)
        link.pause_reading()
        return cls(link, hold, secrets_of(env), on_lines, on_exit)

    def begin(self, name: str) -> None:
        self._task = asyncio.create_task(self._run(), name=f"{name} {self.pid}")
        self._task.add_done_callback(self._finish)
        self._link.resume_reading()

    def write(self, data: bytes) -> None:
        """Queue a line with its number, until all that led to it is stored. Raises as `AgentProcess.write`."""
        assert isinstance(data, NumberedLine)
        self._check(data, self._outbox_bytes + self._link.waiting_bytes)
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send(), name=f"lines for {self.pid}")

    async def _send(self) -> None:
        while lines := self._outbox:
            self._outbox = []
            await self.hold.commit()
            for line in lines:
                self._outbox_bytes -= len(line)
                self._link.send(b"W", line.number.to_bytes(8, "little") + line + b"\n")
        if self._stdin_closed:
            self._link.send(b"I")

    def close_input(self) -> None:
        """Close its stdin after the queued lines."""
        self._stdin_closed = True
        if self._sender is None or self._sender.done():
            self._link.send(b"I")

    @property
    def notes(self) -> list[bytes]:
        """What servers have noted for the next one, oldest first."""
        return self._link.notes

    def note(self, data: bytes) -> bool:
        """Keep something for the next server in the holder's memory. False if the holder is too old, or has no room."""
        self.notes.append(data)
        if self._link.protocol < NOTES_SINCE or sum(map(len, self.notes)) > NOTES_BYTES:
            return False
        self._link.send(b"M", data)
        return True

    def lease(self, seconds: int) -> None:
        """Say how long the agent may go on without a server."""
        self._link.send(b"L", seconds.to_bytes(8, "little"))

    def leave(self) -> None:
        """Go, and let the agent go on. Nothing is called any more."""
        self._has_left = True
        if self._sender is not None:
            self._sender.cancel()
        self._link.leave()
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """As `AgentProcess.stop`, and wait for the end of the holder too, at most GONE_S."""
        await super().stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(GONE_S):
                await self._link.gone.wait()

    def _finish(self, task: asyncio.Task[None]) -> None:
        if not self._has_left:
            super()._finish(task)


def holders(folder: Path) -> dict[Path, bool]:
    """The folders of holders -> whether the holder lives. Blocks."""
    found = dict[Path, bool]()
    for place in folder.iterdir() if folder.is_dir() else ():
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(ATTACH_S)
            try:
                link.connect(str(place / "s"))
                found[place] = True
            except OSError as error:
                found[place] = isinstance(error, TimeoutError)
    return found


def agents_of(place: Path) -> list[int]:
    """The processes of the agent whose holder has this folder, its own first. Blocks."""
    return sorted(process.pid for process in process_family.members(process_family.NO_LEADER, place.name))


def sweep(folder: Path, kept: Collection[str], now_ms: int) -> int:
    """Remove what holders have left that were killed, and end their agents. Blocks. Out: their number.

    In: names of folders whose turns are taken up.
    """
    dead = [place for place, is_live in holders(folder).items() if not is_live and place.name not in kept]
    dead = [place for place in dead if abs(now_ms / 1000 - place.stat().st_mtime) > YOUNG_S]
    for place in dead:
        process_family.end_owned(place.name)
        rmtree(place, ignore_errors=True)
    return len(dead)


def tape_of(file: Path) -> tuple[list[bytes], set[int]]:
    """The lines that an agent has said so far, and the numbers of those that it gets. Blocks. Raises OSError."""
    data, framer = file.read_bytes(), LineFramer()
    lines, written, at = list[bytes](), set[int](), 0
    while (end := at + HEAD + int.from_bytes(data[at : at + 4], "little")) <= len(data) and at + HEAD <= len(data):
        body = data[at + HEAD : end]
        if data[at + 4] == 79:  # O
            lines += [line.stand_in() if isinstance(line, FrameError) else line for line in framer.push(body)]
        elif data[at + 4] == 87:  # W
            written.add(int.from_bytes(body, "little"))
        at = end
    return lines, written
