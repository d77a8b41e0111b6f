"""Starts fake agents, and finds what they leave behind in a way of its own, without `shim.processes.process_family`."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from shim.processes.agent_pipes import AgentProcess, Waits
from shim.processes.held_process import HeldProcess, NumberedLine
from shim.processes.holder_link import Hold, HolderStart
from universal.launch import Exit, LaunchSpec

FAKES = Path(__file__).resolve().parent.parent / "fakes"
WAITS = Waits(stdin_close_s=0.3, term_s=0.3, reap_s=2.0, quiet_s=0.3, drain_s=1.5)
"""Short, for fakes that never end by themselves."""
PATIENT = Waits(stdin_close_s=20.0, term_s=20.0, reap_s=2.0, quiet_s=0.3, drain_s=1.5)
"""For fakes that do: the machine may be busy."""
BOUND_S = 30.0
"""Nothing here takes this long."""


@dataclass
class ProcessLog:
    """Output and exits of one process. `log` has both in the order in which they came."""

    lines: list[bytes] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    log: list[bytes | Exit] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_lines(self, lines: list[bytes]) -> None:
        self.lines += lines
        self.log += lines
        self.changed.set()

    def on_exit(self, exit_: Exit) -> None:
        self.exits.append(exit_)
        self.log.append(exit_)
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait, bounded, until this holds; looked at whenever something comes."""
        async with asyncio.timeout(BOUND_S):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def wait_for_line(self, line: bytes) -> None:
        await self.until(lambda: line in self.lines)

    async def first_line(self) -> bytes:
        """Its first line."""
        await self.until(lambda: bool(self.lines))
        return self.lines[0]

    async def exit(self) -> Exit:
        await self.until(lambda: bool(self.exits))
        return self.exits[0]


class NumberedProcess(HeldProcess):
    """A held process that numbers its lines itself."""

    lines_written = 0

    def write(self, data: bytes) -> None:
        self.lines_written += 1
        super().write(NumberedLine.of(data, self.lines_written))


async def no_commit() -> None:
    """Nothing is to be stored."""


def new_hold(folder: Path) -> Hold:
    token = secrets.token_hex(8)
    return Hold(folder / token, secrets.token_hex(32), token, no_commit, HolderStart())


@dataclass
class Nursery:
    """Starts fakes, each with a variable by which its processes are found again. In: where holders are, or None for pipes."""

    holders: Path | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    started: list[tuple[AgentProcess, ProcessLog]] = field(default_factory=list)

    def spec(self, fake: str, *args: str) -> LaunchSpec:
        return LaunchSpec((sys.executable, "-I", "-S", str(FAKES / fake), *args), cwd=str(FAKES))

    async def __call__(
        self,
        fake: str,
        *args: str,
        waits: Waits = PATIENT,
        on_lines: Callable[[list[bytes]], Awaitable[None] | None] | None = None,
    ) -> tuple[AgentProcess, ProcessLog]:
        seen = ProcessLog()
        env = {**os.environ, "FAKE_TOKEN": self.token}
        spec, take = self.spec(fake, *args), on_lines or seen.on_lines
        if self.holders is None:
            process = await AgentProcess.spawn(spec, env, on_lines=take, on_exit=seen.on_exit, name=fake, waits=waits)
        else:
            hold = new_hold(self.holders)
            process = await NumberedProcess.spawn_on(hold, spec, env, on_lines=take, on_exit=seen.on_exit, name=fake, waits=waits)
        self.started.append((process, seen))
        return process, seen

    def orphans(self) -> list[int]:
        """Pids of live processes with our variable."""
        return [pid for pid in pids() if self.token.encode() in _read(pid, "environ") and is_live(pid)]


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_live(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    status = _read(pid, "status").decode(errors="replace")
    return bool(status) and "State:\tZ" not in status


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


async def has_died(pid: int) -> None:
    """Wait, bounded, for the end of a process that is not our child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(BOUND_S):
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def until_empty(folder: Path) -> None:
    """Wait, bounded, until there is nothing in a folder, or it is gone."""
    async with asyncio.timeout(BOUND_S):
        while folder.exists() and any(folder.iterdir()):
            await asyncio.sleep(0.02)
