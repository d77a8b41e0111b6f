"""The connection with a holder (`shim.processes.holder`), which has the pipes of an agent, or a terminal.

Hold           what a server must know of a holder
HolderStart    a holder that starts before it is needed
attach         a connection, which stands for asyncio's transports of a process (`Link`)
HeldTerminal   a program in a terminal; agents are in `held_process`
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple, cast

from shim.lib.tasks import wait_at_most
from shim.processes import child_process, process_family
from shim.processes.child_environment import ChildEnvironment

PROTOCOLS = frozenset({1, 2, 3})
"""Versions of holders that this server understands: those of all releases."""
ATTACH_S = 5.0
"""Seconds for a holder to answer."""
LAST_S = 30.0
"""Seconds for a holder to take what was sent last."""
GONE_S = 1.0
"""Seconds that a stop waits for the holder to end after its agent."""
TERMINAL_LEASE_S = 15 * 60
"""Seconds that a program in a terminal may go on without a server."""
PATH_BYTES = 100
"""Longest path of a socket. The systems allow 104 and 108."""
PENDING_BYTES = 2**20
"""Bytes of keys that may wait for a terminal. No person types so many."""
HEAD = 5


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
        return fits(self.folder)


def fits(folder: Path) -> bool:
    """Whether the system takes the path of the socket of a holder."""
    return len(os.fsencode(folder / "s")) <= PATH_BYTES


def records(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """The whole records of a tape: kind, body, and where each ends."""
    at = 0
    while (end := at + HEAD + int.from_bytes(data[at : at + 4], "little")) <= len(data) and at + HEAD <= len(data):
        yield data[at + 4], data[at + HEAD : end], end
        at = end


class Link(asyncio.Protocol):
    """The connection with a holder. Towards `Pipes` and `AgentProcess` it stands for asyncio's transports of a process."""

    def __init__(self, pipes: child_process.ChildProtocol, pid: int, commit: Callable[[], Awaitable[None]]) -> None:
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
            self.socket.write(b"%b%b%b" % (len(data).to_bytes(4, "little"), kind, data))

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


async def abandon(hold: Hold) -> None:
    """A start that fails or is cancelled leaves no program. Its holder, to which nobody comes, ends by itself."""
    rmtree(hold.folder, ignore_errors=True)
    await asyncio.to_thread(process_family.end_owned, hold.token)


async def attach(hold: Hold, pid: int, pipes: child_process.ChildProtocol, offset: int = 0) -> Link:
    """Attach to a holder, and read its tape from an offset on. Raises OSError."""
    link = Link(pipes, pid, hold.commit)
    loop = asyncio.get_running_loop()
    pipes.connection_made(cast(asyncio.BaseTransport, link))
    try:
        async with asyncio.timeout(ATTACH_S):
            await loop.create_unix_connection(lambda: link, str(hold.folder / "s"))
            link.send(b"A", bytes((max(PROTOCOLS),)) + bytes.fromhex(hold.secret) + offset.to_bytes(8, "little"))
            await link.attached
    except BaseException:  # a cancelled one leaves no socket
        if link.socket is not None:
            link.socket.abort()
        raise
    return link


class HeldTerminal(child_process.ChildProtocol):
    """A program in a terminal on a holder. Create it with `spawn` or `attach`.

    `on_output` gets bytes; reading pauses then for `pause_s`.
    """

    def __init__(self, hold: Hold, on_output: Callable[[bytes], None], pause_s: float) -> None:
        self.exited = asyncio.Event()
        self._hold = hold
        self._pause_s = pause_s
        self._offset = 0
        self._on_output = on_output
        self._link: Link | None = None

    async def spawn(self, argv: Sequence[str], cwd: str, environment: ChildEnvironment, terminal: Sequence[int]) -> int:
        """Start a holder with a program in a terminal, whose two ends it inherits. Out: its pid. Raises OSError, ValueError."""
        hold = self._hold
        hold.folder.mkdir(parents=True, mode=0o700)
        try:
            holder = await child_process.waiting_holder(terminal)
            secret = bytes.fromhex(hold.secret)
            pid = await child_process.hold(holder, hold.folder, secret, argv, cwd=cwd, environment=environment, terminal=terminal)
            await self.attach(pid)
        except BaseException:  # a cancelled start leaves no program
            await abandon(hold)
            raise
        return pid

    async def read_tape(self) -> tuple[int, bytes]:
        """Read what was said so far, for `attach`. Out: it, after the UTF-16 units before it. Raises OSError."""
        units, text = 0, bytearray()
        for kind, body, end in records(await asyncio.to_thread((self._hold.folder / "tape").read_bytes)):
            if kind == 88:  # X, which comes with `attach`
                break
            self._offset = end
            if kind == 66:  # B
                units = int.from_bytes(body, "little")
            elif kind == 79:  # O
                text += body
        return units, bytes(text)

    async def attach(self, pid: int) -> None:
        """Attach as the next server. Raises OSError."""
        link = await attach(self._hold, pid, self, self._offset)
        link.send(b"L", TERMINAL_LEASE_S.to_bytes(8, "little"))

    def write(self, data: bytes) -> None:
        """Write keys. They are dropped while too many wait."""
        if self._link is not None and self._link.waiting_bytes < PENDING_BYTES:
            self._link.send(b"K", data)

    def leave(self) -> None:
        """Go, and let the program go on."""
        if self._link is not None:
            self._link.leave()

    async def until_exit(self) -> int:
        """Wait for the exit, and let the holder go. Out: the exit code, or -signal."""
        await self.exited.wait()
        assert self._link is not None
        self._link.close()
        return self._link.get_returncode() or 0

    async def until_gone(self) -> None:
        """Wait for the end of the holder after that of its program, at most GONE_S."""
        if self._link is not None:
            await wait_at_most(self._link.gone.wait(), GONE_S)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link = cast(Link, transport)
        self._link.set_protocol(cast(asyncio.Protocol, self))

    def process_exited(self) -> None:
        self.exited.set()

    def data_received(self, data: bytes) -> None:
        self._on_output(data)
        assert self._link is not None
        self._link.pause_reading()
        asyncio.get_running_loop().call_later(self._pause_s, self._link.resume_reading)
