"""An agent whose pipes a holder has (`shim.processes.holder`), so that it outlives the server. Beside that as `agent_pipes`.

HeldProcess.spawn    start a holder with an agent, and attach to it
HeldProcess.attach   attach to the holder of a server that has ended: its tape is read from the beginning
write                a line waits for `Hold.commit`, so that nothing reaches the agent of which the store does not know
leave                go, and let the agent go on
sweep                remove what killed holders have left
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import cast

import structlog

from shim.lib.redaction import secrets_of
from shim.lib.tasks import wait_at_most
from shim.processes import child_process, process_family
from shim.processes.agent_pipes import AgentProcess, OnExit, OnLines, Pipes, Waits, start_error
from shim.processes.child_environment import agent_shell, child_environment
from shim.processes.holder_link import ATTACH_S, GONE_S, Hold, Link, abandon, attach, records
from universal.launch import LaunchSpec
from universal.lib.framing import FrameError, LineFramer

NOTES_SINCE = 2
"""Version of a holder from which on it has notes."""
NOTES_BYTES = 2**20
"""Maximum bytes of all notes of a holder, which stand in its memory."""
YOUNG_S = 60.0
"""Age in seconds from which a folder without a holder is no start in progress."""

log = structlog.get_logger(__name__)


class NumberedLine(bytes):
    """A line for an agent with its number: the holder gives it to the agent once."""

    number: int

    @classmethod
    def of(cls, data: bytes, number: int) -> NumberedLine:
        line = cls(data)
        line.number = number
        return line


async def dismiss(hold: Hold, pid: int) -> None:
    """Let a holder go, if there is one: its agent has ended, and no server takes it up. Else it would wait for its lease."""
    with suppress(OSError):
        (await attach(hold, pid, Pipes())).close()


class HeldProcess(AgentProcess):
    """One agent on a holder; implements `AgentHandle`. Create it with `spawn_on` or `attach`."""

    def __init__(
        self, link: Link, hold: Hold, secrets: frozenset[str], on_lines: OnLines, on_exit: OnExit, waits: Waits | None = None
    ) -> None:
        transport = cast(asyncio.SubprocessTransport, link)
        super().__init__(transport, cast(Pipes, link.pipes), hold.token, secrets, on_lines, on_exit, waits or Waits())
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
            hold.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
            holder = await hold.starts.take()
            pid = await child_process.hold(
                holder, hold.folder, bytes.fromhex(hold.secret), spec.argv, cwd=spec.cwd, environment=environment
            )
            link = await attach(hold, pid, Pipes())
        except BaseException as error:  # a cancelled start leaves no program
            await abandon(hold)
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
        link = await attach(hold, pid, Pipes())
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
        await wait_at_most(self._link.gone.wait(), GONE_S)

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
    framer, lines, written = LineFramer(), list[bytes](), set[int]()
    for kind, body, _ in records(file.read_bytes()):
        if kind == 79:  # O
            lines += [line.stand_in() if isinstance(line, FrameError) else line for line in framer.push(body)]
        elif kind == 87:  # W
            written.add(int.from_bytes(body, "little"))
    return lines, written
