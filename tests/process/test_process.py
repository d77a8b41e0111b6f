"""Agents on their good and bad days, as real processes. What each must leave behind is checked by the fixture `spawn`."""

from __future__ import annotations

import asyncio
import json
import signal
import tracemalloc
from dataclasses import replace

import pytest

from shim.lib.errors import AgentGone, AgentStuck
from shim.processes.agent_pipes import LINES_AT_ONCE, OUTGOING_BYTES
from shim.processes.child_environment import MARK
from tests.process.support import BOUND_S, PATIENT, WAITS, Nursery, has_died, is_live
from universal.launch import Exit

CHUNK_BYTES = 256 * 1024
"""At most so much comes between two rounds of the loop."""

# --- talking ------------------------------------------------------------------------------------------------


async def test_lines_go_in_and_come_out_in_order(spawn: Nursery) -> None:
    process, seen = await spawn("echo.py")
    sent = [b'{"n":%d}' % number for number in range(500)]
    for line in sent:
        process.write(line)
    await seen.wait_for_line(sent[-1])
    assert seen.lines == [b"ready", *sent]
    assert process.alive


async def test_a_big_line_goes_through_in_both_directions(spawn: Nursery) -> None:
    process, seen = await spawn("echo.py")
    line = b"x" * 10_000_000
    process.write(line)
    await seen.wait_for_line(line)


async def test_a_line_with_a_newline_is_refused(spawn: Nursery) -> None:
    process, _ = await spawn("echo.py")
    with pytest.raises(ValueError, match="newline"):
        process.write(b"one\ntwo")


async def test_nothing_is_called_before_the_caller_waits(spawn: Nursery) -> None:
    _, seen = await spawn("fails.py", "0")
    assert seen.log == []
    await seen.exit()


async def test_garbage_passes_as_it_is(spawn: Nursery) -> None:
    _, seen = await spawn("garbage.py")
    await seen.exit()
    assert seen.lines == [b"\xff\xfe\x00\x80", "a\u2028b\x0cc\x85d".encode(), b"crlf", b"", b'{"ok":true}']


async def test_a_line_over_the_limit_leaves_a_stand_in(spawn: Nursery) -> None:
    _, seen = await spawn("long_line.py", "40000000")
    await seen.exit()
    stand_in, after = seen.lines
    assert after == b"after"
    assert stand_in.startswith(b'{"type":"image","data":"AAAA')
    assert stand_in.endswith(b"[dropped: a line of 39976986 bytes is over the limit]")
    with pytest.raises(ValueError):
        json.loads(stand_in)


async def test_half_a_line_is_delivered_at_the_end(spawn: Nursery) -> None:
    _, seen = await spawn("half_line.py")
    assert (await seen.exit()).code == 0
    assert seen.lines == [b"whole", b"half"]


async def test_a_process_gets_a_clean_environment(spawn: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("SHIM_PASSWORD", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    _, seen = await spawn("environment.py")
    await seen.exit()
    env = json.loads(seen.lines[0])
    assert env["HTTPS_PROXY"] == "http://proxy:3128"
    assert len(env[MARK]) == 16
    assert not {"CLAUDECODE", "SHIM_PASSWORD"} & set(env)


# --- ending by itself ---------------------------------------------------------------------------------------


async def test_exit_zero_when_its_input_ends(spawn: Nursery) -> None:
    process, seen = await spawn("echo.py")
    process.write(b"last")
    await process.stop()
    assert seen.exits == [Exit(code=0)]
    assert seen.lines == [b"ready", b"last"]


async def test_exit_three_with_its_last_words(spawn: Nursery) -> None:
    process, seen = await spawn("fails.py", "3")
    assert await seen.exit() == Exit(code=3, stderr="error: no such model\nhint: try another")
    assert seen.lines == [b"one", b"two"]
    assert not process.alive
    with pytest.raises(AgentGone):
        process.write(b"anyone?")


async def test_stop_and_kill_after_the_end_change_nothing(spawn: Nursery) -> None:
    process, seen = await spawn("fails.py", "0")
    await seen.exit()
    process.kill()
    await process.stop()
    await process.stop()
    assert len(seen.exits) == 1


async def test_all_output_comes_before_the_exit(spawn: Nursery) -> None:
    _, seen = await spawn("flood.py", "5000")
    await seen.exit()
    assert len(seen.lines) == 5_001
    assert seen.lines[-1] == b"end"


async def test_lines_left_in_the_pipe_come_before_the_exit(spawn: Nursery) -> None:
    """The process is long gone when its first lines are taken."""
    count = 0
    started = asyncio.Event()

    async def on_lines(lines: list[bytes]) -> None:
        nonlocal count
        if count == 0:
            await started.wait()
            await has_died(process.pid)
            for _ in range(5):  # longer than the search for its family takes
                _, other = await spawn("echo.py")
                await other.wait_for_line(b"ready")
        count += len(lines)

    process, seen = await spawn("flood.py", "100", on_lines=on_lines, waits=replace(PATIENT, drain_s=BOUND_S))
    started.set()
    await seen.exit()
    assert count == 101


async def test_stderr_is_bounded(spawn: Nursery) -> None:
    _, seen = await spawn("stderr_flood.py", "100000")
    lines = (await seen.exit()).stderr.split("\n")
    assert lines[:20] == [f"line {n}" for n in range(20)]
    assert "left out" in lines[20]
    assert lines[21:] == [f"line {n}" for n in range(99_950, 100_000)]


async def test_a_process_that_closes_its_stdout_is_ended(spawn: Nursery) -> None:
    process, seen = await spawn("closes_stdout.py", waits=WAITS)
    assert (await seen.exit()).signal == signal.SIGTERM
    assert seen.lines == [b"bye"]
    assert not is_live(process.pid)


# --- being ended --------------------------------------------------------------------------------------------


async def test_a_process_that_ignores_term_is_killed(spawn: Nursery) -> None:
    process, seen = await spawn("ignores_term.py", waits=replace(WAITS, reap_s=BOUND_S))
    await seen.wait_for_line(b"ready")
    async with asyncio.timeout(BOUND_S):
        await process.stop()
    assert seen.exits == [Exit(code=None, signal=signal.SIGKILL)]
    assert not is_live(process.pid)


async def test_a_process_that_ignores_the_end_of_input_gets_term(spawn: Nursery) -> None:
    process, seen = await spawn("deaf.py", waits=WAITS)
    await seen.wait_for_line(b"ready")
    await process.stop()
    assert seen.exits == [Exit(code=None, signal=signal.SIGTERM)]


async def test_kill_is_at_once(spawn: Nursery) -> None:
    process, seen = await spawn("ignores_term.py")
    await seen.wait_for_line(b"ready")
    process.kill()
    process.kill()
    assert not process.alive
    with pytest.raises(AgentGone):
        process.write(b"too late")
    assert await seen.exit() == Exit(code=None, signal=signal.SIGKILL)


async def test_an_interrupt_is_sigint(spawn: Nursery) -> None:
    process, seen = await spawn("interruptible.py")
    await seen.wait_for_line(b"ready")
    process.interrupt()
    assert await seen.exit() == Exit(code=0)
    assert seen.lines == [b"ready", b"interrupted"]
    process.interrupt()


async def test_kill_right_after_the_start(spawn: Nursery) -> None:
    process, seen = await spawn("echo.py")
    process.kill()
    assert (await seen.exit()).signal == signal.SIGKILL


async def test_several_may_stop_it(spawn: Nursery) -> None:
    process, seen = await spawn("ignores_term.py", waits=WAITS)
    await seen.wait_for_line(b"ready")
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(process.stop(), process.stop(), process.stop())
    assert len(seen.exits) == 1


async def test_no_more_is_written_once_it_is_being_stopped(spawn: Nursery) -> None:
    process, seen = await spawn("ignores_term.py", waits=WAITS)
    await seen.wait_for_line(b"ready")
    stopping = asyncio.create_task(process.stop())
    async with asyncio.timeout(BOUND_S):
        while process.alive:
            await asyncio.sleep(0)
    assert not seen.exits
    with pytest.raises(AgentGone):
        process.write(b"too late")
    await stopping


async def test_a_process_that_never_reads_can_be_stopped(spawn: Nursery) -> None:
    process, seen = await spawn("deaf.py", waits=WAITS)
    await seen.wait_for_line(b"ready")
    line, written_bytes = b"x" * 8_000_000, 0
    with pytest.raises(AgentStuck, match="does not read"):
        while written_bytes < 2 * OUTGOING_BYTES:
            process.write(line)
            written_bytes += len(line)
    assert OUTGOING_BYTES - len(line) * 2 < written_bytes <= OUTGOING_BYTES + 1_000_000
    await process.stop()
    assert len(seen.exits) == 1


# --- floods ---------------------------------------------------------------------------------------------------


async def test_a_flood_starves_no_reader_and_fills_no_memory(spawn: Nursery) -> None:
    count = rounds = 0

    def on_lines(lines: list[bytes]) -> None:
        nonlocal count
        count += len(lines)

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count_rounds())
    tracemalloc.start()
    _, seen = await spawn("flood.py", "50000", on_lines=on_lines)
    await seen.exit()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    task.cancel()
    await asyncio.wait({task})
    assert count == 50_001
    assert rounds >= 50_000_000 // CHUNK_BYTES, "others ran between any two chunks"
    assert peak_bytes < 2_000_000


async def test_a_slow_reader_slows_the_agent_down(spawn: Nursery) -> None:
    """Were it not so, 20 MB would pile up here."""
    count = 0

    async def on_lines(lines: list[bytes]) -> None:
        nonlocal count
        count += len(lines)
        for _ in range(30):
            await asyncio.sleep(0)

    tracemalloc.start()
    _, seen = await spawn("flood.py", "20000", on_lines=on_lines)
    await seen.exit()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_001
    assert peak_bytes < 2_000_000


async def test_no_more_is_read_while_the_lines_are_not_taken(spawn: Nursery) -> None:
    calls: list[int] = []
    taken = asyncio.Event()

    async def on_lines(lines: list[bytes]) -> None:
        calls.append(len(lines))
        seen.changed.set()
        await taken.wait()

    _, seen = await spawn("flood.py", "5000", on_lines=on_lines)
    await seen.until(lambda: bool(calls))
    _, other = await spawn("echo.py")
    await other.wait_for_line(b"ready")
    assert len(calls) == 1
    taken.set()
    await seen.exit()
    assert sum(calls) == 5_001


async def test_a_process_with_untaken_lines_can_be_stopped(spawn: Nursery) -> None:
    stuck = asyncio.Event()

    async def on_lines(_: list[bytes]) -> None:
        seen.changed.set()
        await stuck.wait()

    process, seen = await spawn("flood.py", "50000", on_lines=on_lines, waits=WAITS)
    await seen.until(seen.changed.is_set)
    async with asyncio.timeout(BOUND_S):
        await process.stop()
    assert len(seen.exits) == 1


async def test_a_reader_that_raises_ends_the_process(spawn: Nursery) -> None:
    def on_lines(_: list[bytes]) -> None:
        raise RuntimeError("a bug of ours")

    process, seen = await spawn("ignores_term.py", on_lines=on_lines)
    assert (await seen.exit()).signal == signal.SIGKILL
    assert not is_live(process.pid)


async def test_a_flood_comes_in_small_helpings_with_room_for_others_between(spawn: Nursery) -> None:
    helpings: list[int] = []
    turns = 0

    async def count_rounds() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(count_rounds())
    try:
        _, seen = await spawn("flood.py", "5000", on_lines=lambda lines: helpings.append(len(lines)))
        await seen.exit()
    finally:
        beside.cancel()
    await asyncio.wait({beside})
    assert sum(helpings) >= 5000
    assert max(helpings) <= LINES_AT_ONCE
    assert turns >= len(helpings)
