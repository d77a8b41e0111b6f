"""Agents inside of the server: lines in order, one exit after the last, and no way to hang or to leak."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shim.lib.errors import AgentGone, AgentStuck
from shim.processes.handle import AgentHandle
from shim.processes.inprocess import LINES, Died, InProcessAgent, Program, Stdio, Waits
from universal.launch import Exit, LaunchSpec

SPEC = LaunchSpec(argv=("agent", "--flag"), cwd="/project", env={"ADDED": "1", "REMOVED": None})


class AgentProbe:
    """An agent, what came from it, and a check at the end that nothing is left."""

    def __init__(
        self, program: Program, *, lines: int = LINES, on_lines: Callable[..., Awaitable[None] | None] | None = None
    ) -> None:
        self.seen: list[bytes | Exit] = []
        self.exited = asyncio.Event()
        env = {"KEPT": "1", "REMOVED": "1", "SHIM_SECRET": "1"}
        take = on_lines or self.seen.extend
        self.agent = InProcessAgent.spawn(
            program, SPEC, env, on_lines=take, on_exit=self._exit, lines=lines, waits=Waits(0.02, 0.02)
        )
        self.handle: AgentHandle = self.agent

    def _exit(self, exit_: Exit) -> None:
        self.seen.append(exit_)
        self.exited.set()

    async def end(self) -> list[bytes | Exit]:
        """Wait for the exit; nothing may come after it, and no task may be left."""
        async with asyncio.timeout(5):
            await self.exited.wait()
        await self.agent.stop()
        assert isinstance(self.seen[-1], Exit) and sum(isinstance(s, Exit) for s in self.seen) == 1
        assert not self.agent.alive
        with pytest.raises(AgentGone):
            self.agent.write(b"x")
        self.agent.kill()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return self.seen


async def test_lines_then_one_exit() -> None:
    async def program(stdio: Stdio) -> int:
        assert (stdio.argv, stdio.cwd, dict(stdio.env)) == (("agent", "--flag"), "/project", {"KEPT": "1", "ADDED": "1"})
        while (line := await stdio.read()) is not None:
            await stdio.write(line.upper())
            if line == b"end":
                return 3
        return 0

    watched = AgentProbe(program)
    assert watched.handle.alive and watched.handle.pid is None
    for line in (b"a", b"b", b"end"):
        watched.agent.write(line)
    assert await watched.end() == [b"A", b"B", b"END", Exit(code=3)]


async def test_all_lines_come_before_the_exit_however_many() -> None:
    async def program(stdio: Stdio) -> int:
        for n in range(5000):
            await stdio.write(b"%d" % n)
        return 0

    watched = AgentProbe(program, lines=3)
    assert await watched.end() == [*(b"%d" % n for n in range(5000)), Exit(code=0)]


async def test_a_slow_reader_holds_the_program() -> None:
    written = 0
    gate = asyncio.Event()

    async def program(stdio: Stdio) -> int:
        nonlocal written
        for n in range(20):
            await stdio.write(b"%d" % n)
            written = n + 1
        return 0

    seen: list[bytes] = []

    async def on_lines(lines: list[bytes]) -> None:
        seen.extend(lines)
        await gate.wait()

    watched = AgentProbe(program, lines=4, on_lines=on_lines)
    for _ in range(50):
        await asyncio.sleep(0)
    assert written <= 4 + 4  # what the reader took, and what fits into the pipe
    gate.set()
    assert await watched.end() == [Exit(code=0)]
    assert seen == [b"%d" % n for n in range(20)]


async def test_a_program_that_dies() -> None:
    async def program(stdio: Stdio) -> int:
        await stdio.write(b"last")
        raise Died(11)

    assert await AgentProbe(program).end() == [b"last", Exit(code=None, signal=11)]


async def test_a_program_with_a_bug() -> None:
    async def program(stdio: Stdio) -> int:
        raise RuntimeError("oops")

    (exit_,) = await AgentProbe(program).end()
    assert isinstance(exit_, Exit) and exit_.code == 1 and "RuntimeError: oops" in exit_.stderr


async def test_kill() -> None:
    async def program(stdio: Stdio) -> int:
        await stdio.write(b"ready")
        await asyncio.Event().wait()
        return 0

    watched = AgentProbe(program)
    async with asyncio.timeout(5):
        while not watched.seen:
            await asyncio.sleep(0)
    watched.agent.kill()
    assert not watched.agent.alive
    assert await watched.end() == [b"ready", Exit(code=None, signal=9)]


async def test_kill_before_it_began() -> None:
    async def program(stdio: Stdio) -> int:
        raise AssertionError("never run")

    watched = AgentProbe(program)
    watched.agent.kill()
    assert await watched.end() == [Exit(code=None, signal=9)]


async def test_stop_ends_its_input_first() -> None:
    async def program(stdio: Stdio) -> int:
        while await stdio.read() is not None:
            pass
        await stdio.write(b"bye")
        return 0

    watched = AgentProbe(program)
    await asyncio.gather(watched.agent.stop(), watched.agent.stop())
    assert await watched.end() == [b"bye", Exit(code=0)]


async def test_stop_kills_what_does_not_end() -> None:
    async def program(stdio: Stdio) -> int:
        await asyncio.Event().wait()
        return 0

    watched = AgentProbe(program)
    await watched.agent.stop()
    assert await watched.end() == [Exit(code=None, signal=9)]


async def test_a_program_that_cannot_be_ended_is_cut_off() -> None:
    refused = asyncio.Event()
    release = asyncio.Event()

    async def program(stdio: Stdio) -> int:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        with pytest.raises(BrokenPipeError):
            await stdio.write(b"too late")
        refused.set()
        return 0

    watched = AgentProbe(program)
    await asyncio.sleep(0)
    await watched.agent.stop()
    assert watched.seen == [Exit(code=None, signal=9)]
    release.set()
    async with asyncio.timeout(5):
        await refused.wait()
    await asyncio.sleep(0)
    assert await watched.end() == [Exit(code=None, signal=9)]


async def test_a_program_that_does_not_read_is_stuck() -> None:
    async def program(stdio: Stdio) -> int:
        await asyncio.Event().wait()
        return 0

    watched = AgentProbe(program, lines=2)
    watched.agent.write(b"1")
    watched.agent.write(b"2")
    with pytest.raises(AgentStuck):
        watched.agent.write(b"3")
    with pytest.raises(ValueError):
        watched.agent.write(b"two\nlines")
    watched.agent.kill()
    await watched.end()


async def test_a_reader_that_fails_ends_the_program() -> None:
    async def program(stdio: Stdio) -> int:
        for _ in range(1000):
            await stdio.write(b"x")
        await asyncio.Event().wait()
        return 0

    def on_lines(lines: list[bytes]) -> None:
        raise RuntimeError("the reader's bug")

    assert await AgentProbe(program, lines=1, on_lines=on_lines).end() == [Exit(code=None, signal=9)]
