"""Nothing that an agent has started survives it, and nothing that does can hold us up."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from shim.processes import process_family
from shim.processes.agent_pipes import AgentProcess, Waits
from tests.process.support import BOUND_S, WAITS, Nursery, ProcessLog, has_died, is_live, pids


def session_mates(pid: int) -> list[int]:
    """Live processes in the session of `pid`, itself left out."""
    mates: list[int] = []
    for other in pids():
        try:
            if os.getsid(other) == pid and other != pid and is_live(other):
                mates.append(other)
        except ProcessLookupError:
            continue
    return mates


async def test_a_child_that_holds_the_pipe_dies_with_it(spawn: Nursery) -> None:
    process, seen = await spawn("holds_pipe.py")
    assert (await seen.exit()).code == 0
    assert seen.lines == [b"last words"]
    assert session_mates(process.pid) == []


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
async def test_a_tool_with_a_session_of_its_own_dies_with_it(spawn: Nursery, how: str) -> None:
    process, seen = await spawn("tool_shell.py", *(["crash"] if how == "crash" else []), waits=WAITS)
    await seen.first_line()
    if how != "crash":
        assert len(spawn.orphans()) == 3, "the fake has a grandchild and its parent in another session"
        assert session_mates(process.pid) == []
    if how == "stop":
        await process.stop()
    elif how == "kill":
        process.kill()
    exit_ = await seen.exit()
    assert spawn.orphans() == []
    assert exit_.code == 0 if how == "stop" else exit_.signal == signal.SIGKILL


@pytest.mark.parametrize(
    ("talks", "waits"), [([], replace(WAITS, drain_s=60.0)), (["talks"], replace(WAITS, quiet_s=60.0))], ids=["silent", "talks"]
)
async def test_an_escaped_child_with_the_pipe_does_not_delay_the_end(
    spawn: Nursery, tmp_path: Path, talks: list[str], waits: Waits
) -> None:
    leash = tmp_path / "leash"
    leash.touch()
    process, seen = await spawn("escapee.py", str(leash), *talks, waits=waits)
    escaped = int((await seen.first_line()).removeprefix(b"escaped "))
    process.write(b"exit with 7")
    async with asyncio.timeout(BOUND_S):
        assert (await seen.exit()).code == 7
    assert is_live(escaped), "the test tests nothing if it is gone"
    leash.unlink()
    await has_died(escaped)


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_left_over_children_may_tidy_up(spawn: Nursery, tmp_path: Path, how: str) -> None:
    """As the helper of Codex's sandbox does: what it has made in other people's folders is gone before it is."""
    made = tmp_path / "made"
    made.touch()
    process, seen = await spawn("leaves_helper.py", str(made))
    await seen.wait_for_line(b"ready")
    if how == "stop":
        await process.stop()
    else:
        process.kill()
    await seen.exit()
    assert not made.exists()
    assert spawn.orphans() == []


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_child_without_the_token_is_found_by_its_parent(spawn: Nursery, how: str) -> None:
    """Only while the agent lives: the tree leads to it, and it is remembered until the agent is gone."""
    process, seen = await spawn("tool_shell.py", "hides")
    hidden = int((await seen.first_line()).removeprefix(b"ready "))
    assert spawn.orphans() == [process.pid]
    assert is_live(hidden)
    if how == "stop":
        await process.stop()
    else:
        process.kill()
    await seen.exit()
    assert not is_live(hidden)


async def test_a_later_process_with_the_same_pid_is_spared(spawn: Nursery) -> None:
    process, seen = await spawn("echo.py")
    await seen.wait_for_line(b"ready")
    process_family.end([process_family.Process(process.pid, process_family.start_ticks(process.pid) - 1)], 0.1)
    process.write(b"still here")
    await seen.wait_for_line(b"still here")
    assert process_family.start_ticks(process.pid) > 0


def test_an_unknown_pid_has_no_start_and_no_family() -> None:
    assert process_family.start_ticks(2**22 + 1) == 0
    assert process_family.members(2**22 + 1, "no such token") == set()


def test_when_our_loop_goes_down_nothing_is_left() -> None:
    nursery = Nursery()

    async def main() -> ProcessLog:
        process, seen = await nursery("tool_shell.py")
        await seen.first_line()
        assert is_live(process.pid)
        return seen

    seen = asyncio.run(main())
    assert [exit_.signal for exit_ in seen.exits] == [signal.SIGKILL]
    assert nursery.orphans() == []


def test_when_our_loop_goes_down_before_anything_was_read() -> None:
    nursery = Nursery()

    async def main() -> ProcessLog:
        _, seen = await nursery("ignores_term.py")
        return seen

    seen = asyncio.run(main())
    assert len(seen.exits) == 1
    assert nursery.orphans() == []


def test_when_our_loop_goes_down_during_the_ladder() -> None:
    nursery = Nursery()

    async def main() -> ProcessLog:
        process, seen = await nursery("ignores_term.py")
        await seen.first_line()
        ladder = asyncio.create_task(process.stop())
        while process.alive:
            await asyncio.sleep(0)
        assert not ladder.done()
        return seen

    seen = asyncio.run(main())
    assert len(seen.exits) == 1
    assert nursery.orphans() == []


async def test_cancelling_a_group_of_tasks_neither_leaks_nor_hangs(spawn: Nursery) -> None:
    running: list[tuple[AgentProcess, ProcessLog]] = []

    async def session() -> None:
        process, seen = await spawn("tool_shell.py", waits=WAITS)
        running.append((process, seen))
        try:
            await seen.first_line()
            await seen.until(lambda: False)
        finally:
            await process.stop()

    async def fail_group() -> None:
        for process, seen in [*running]:
            await seen.first_line()
            assert process.alive
        raise RuntimeError("one of the group fails")

    with pytest.raises(ExceptionGroup):
        async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(session())
            while len(running) < 3:
                await asyncio.sleep(0)
            group.create_task(fail_group())
    assert [len(seen.exits) for _, seen in running] == [1, 1, 1]
    assert spawn.orphans() == []
