"""An agent on a holder goes on while no server runs. What it shares with pipes is tested with them (`spawn`)."""

from __future__ import annotations

import asyncio
import lzma
import os
import resource
import shutil
import socket
import stat
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from shim.lib.errors import AgentNotFound
from shim.processes import child_process, held_process, holder, holder_link
from shim.processes.child_environment import ChildEnvironment, child_environment
from shim.processes.holder import STEP_S, record
from shim.processes.holder_link import Hold, HolderStart
from tests.process.support import BOUND_S, NumberedProcess, Nursery, ProcessLog, has_died, is_live, new_hold, until_empty
from universal.launch import LaunchSpec

MEMORY_KIB = 7 * 1024
"""Of a holder at its start. One that compiles itself has 7.3 MiB then, and 9.4 after many lines, where 8 are the limit."""
NOBODY = 65_534
FIXTURES = Path(__file__).resolve().parents[2] / "compat_fixtures" / "holder"
HOLDERS = {int(path.name.split(".")[0].removeprefix("holder_")): path for path in FIXTURES.iterdir()}
"""Version that it speaks -> a holder as it was. It may run while a newer server comes."""


async def begin(folder: Path, fake: str, *args: str, starts: HolderStart | None = None) -> tuple[NumberedProcess, ProcessLog]:
    """Start a fake agent that is not ended with the test's processes."""
    seen, hold = ProcessLog(), new_hold(folder)
    hold = hold._replace(starts=starts or hold.starts)
    process = await NumberedProcess.spawn_on(
        hold, Nursery().spec(fake, *args), dict(os.environ), on_lines=seen.on_lines, on_exit=seen.on_exit
    )
    return process, seen


async def come_back(process: NumberedProcess) -> tuple[NumberedProcess, ProcessLog]:
    """Attach as a new server."""
    seen = ProcessLog()
    again = await NumberedProcess.attach(process.hold, process.pid, {}, on_lines=seen.on_lines, on_exit=seen.on_exit)
    again.lines_written = process.lines_written
    again.begin("again")
    return again, seen


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


async def is_refused(process: NumberedProcess) -> None:
    """Its holder lets nobody in who has another secret."""
    seen, stranger = ProcessLog(), process.hold._replace(secret="00" * 32)
    with pytest.raises(ConnectionError):
        await NumberedProcess.attach(stranger, process.pid, {}, on_lines=seen.on_lines, on_exit=seen.on_exit)


async def test_an_agent_is_taken_up_with_all_its_lines(tmp_path: Path) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    process.lease(60)
    process.write(b"one")
    await seen.wait_for_line(b"one")
    process.leave()
    again, seen_again = await come_back(process)
    again.write(b"two")
    await seen_again.wait_for_line(b"two")
    assert seen_again.lines == [b"ready", b"one", b"two"]
    assert seen.exits == []
    await again.stop()
    assert (await seen_again.exit()).code == 0
    await until_empty(process.hold.folder)


@pytest.fixture(params=[*sorted(HOLDERS), None], ids=lambda version: f"version {version}" if version else "present")
def has_notes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Agents get a holder of an older release, if there is one. Out: whether it has notes."""
    version = request.param or holder.PROTOCOL
    if request.param is not None:
        program = tmp_path_factory.mktemp("old") / "holder.py"
        program.write_bytes(lzma.decompress(HOLDERS[version].read_bytes()))
        if version == 1:
            monkeypatch.setattr(child_process, "hold", partial(hold_as_version_1, program))
        else:
            monkeypatch.setattr(child_process, "HOLDER", str(program))
    return version >= held_process.NOTES_SINCE


async def hold_as_version_1(
    program: Path, present: Process, folder: Path, secret: bytes, argv: Sequence[str], *, cwd: str, environment: ChildEnvironment
) -> int:
    """Start an agent on a holder as its own release did: with the folder as its argument."""
    await child_process.end(present)
    command = [*child_process.INTERPRETER, str(program), str(folder)]
    holder = await child_process.start(command, cwd=str(folder), environment=child_environment({}, {}), stdin=PIPE)
    parts = [secret.hex(), cwd, str(len(argv)), *argv, *(f"{name}={value}" for name, value in environment.items())]
    answer, _ = await holder.communicate("\0".join(parts).encode())
    return int(answer)


async def test_a_holder_that_waits_serves_one_agent_and_ends_with_its_stdin(tmp_path: Path) -> None:
    starts = HolderStart()
    starts.begin()
    waiting = await starts.take()
    assert waiting.stdin is not None
    waiting.stdin.close()
    assert await waiting.wait() == 0
    starts.begin()
    dead = await starts.take()
    await child_process.end(dead)
    starts._start = asyncio.create_task(as_result(dead))
    process, seen = await begin(tmp_path, "echo.py", starts=starts)
    await seen.wait_for_line(b"ready")
    await process.stop()
    starts.begin()
    await starts.close()


async def as_result(process: Process) -> Process:
    return process


async def test_a_holder_of_each_release_works_with_this_server(has_notes: bool, tmp_path: Path) -> None:
    """A line is given once, an exit is told, and notes come back from a holder that has them."""
    process, seen = await begin(tmp_path, "echo.py")
    process.lease(60)
    assert process.note(b"\0" * 100_000) == has_notes
    assert process.note(b"two") == has_notes
    process.write(b"one")
    await seen.wait_for_line(b"one")
    process.leave()
    process.lines_written = 0
    again, seen_again = await come_back(process)
    assert again.notes == ([b"\0" * 100_000, b"two"] if has_notes else [])
    again.write(b"one")
    again.write(b"three")
    await seen_again.wait_for_line(b"three")
    assert seen_again.lines == [b"ready", b"one", b"three"]
    again.close_input()
    assert (await seen_again.exit()).code == 0
    await again.stop()
    await until_empty(process.hold.folder)


async def test_notes_stand_in_no_file_and_have_a_bound(tmp_path: Path) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    assert process.note(b"a planted secret")
    assert not process.note(bytes(held_process.NOTES_BYTES))
    process.write(b"one")
    await seen.wait_for_line(b"one")
    files = [path for path in process.hold.folder.iterdir() if path.is_file()]
    assert files
    assert not any(b"planted" in path.read_bytes() for path in files)
    await process.stop()


async def test_the_agent_gets_a_repeated_line_once(tmp_path: Path) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    process.lease(60)
    process.write(b"one")
    await seen.wait_for_line(b"one")
    process.leave()
    process.lines_written = 0  # the next server does not know whether it was given
    again, seen_again = await come_back(process)
    again.write(b"one")
    again.write(b"two")
    await seen_again.wait_for_line(b"two")
    assert seen_again.lines == [b"ready", b"one", b"two"]
    await again.stop()


async def test_an_agent_without_a_lease_ends_with_its_server(tmp_path: Path) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    process.lease(0)
    await seen.wait_for_line(b"ready")
    process.leave()
    await has_died(process.pid)
    await until_empty(process.hold.folder)


async def test_the_next_server_learns_of_an_exit(tmp_path: Path) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    process.lease(60)
    await seen.wait_for_line(b"ready")
    process.leave()
    os.kill(process.pid, 9)
    await has_died(process.pid)
    again, seen_again = await come_back(process)
    assert (await seen_again.exit()).signal == 9
    assert seen_again.lines == [b"ready"]
    await again.stop()
    await until_empty(process.hold.folder)


async def test_a_killed_holder_takes_its_agent_along(tmp_path: Path) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    await seen.wait_for_line(b"ready")
    os.kill(parent_of(process.pid), 9)
    assert (await seen.exit()).signal == 9
    assert not is_live(process.pid)


async def test_a_sweep_removes_what_a_killed_holder_has_left(tmp_path: Path) -> None:
    """Its agent too, though no server has seen the end. A holder that lives, and a start in progress, are left alone."""
    process, _ = await begin(tmp_path, "ignores_term.py")
    other, seen = await begin(tmp_path, "echo.py")
    await seen.wait_for_line(b"ready")
    process.lease(60)
    process.leave()
    holder = parent_of(process.pid)
    os.kill(holder, 9)
    await has_died(holder)
    young = tmp_path / "young"
    young.mkdir()
    now = time.time()
    old = now - 2 * held_process.YOUNG_S
    os.utime(process.hold.folder, (old, old))
    os.utime(other.hold.folder, (old, old))
    assert await asyncio.to_thread(held_process.sweep, tmp_path, {process.hold.token}, int(now * 1000)) == 0, "it is taken up"
    assert await asyncio.to_thread(held_process.sweep, tmp_path, set[str](), int(now * 1000)) == 1
    await has_died(process.pid)
    assert {place.name for place in tmp_path.iterdir()} == {other.hold.token, "young"}
    other.write(b"still here")
    await seen.wait_for_line(b"still here")
    await other.stop()


async def test_a_holder_is_let_go_when_its_agent_has_ended(tmp_path: Path) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    await seen.wait_for_line(b"ready")
    holder = parent_of(process.pid)
    process.lease(600)
    process.leave()
    os.kill(process.pid, 9)
    await held_process.dismiss(process.hold, process.pid)
    async with asyncio.timeout(STEP_S - 1):  # it waits for no step of the end of an agent that has ended
        await has_died(holder)
    assert not process.hold.folder.exists()
    await held_process.dismiss(process.hold, process.pid)  # there is none


async def test_a_stranger_without_the_secret_cannot_attach(tmp_path: Path) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    process.lease(60)
    await seen.wait_for_line(b"ready")
    process.leave()
    await is_refused(process)
    again, _ = await come_back(process)
    await again.stop()


async def test_a_second_server_cannot_attach(tmp_path: Path) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    with pytest.raises(ConnectionError):
        await come_back(process)
    process.write(b"mine")
    await seen.wait_for_line(b"mine")
    await process.stop()


async def test_only_its_person_can_read_it(tmp_path: Path) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    await seen.wait_for_line(b"ready")
    folder = process.hold.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in folder.iterdir()} == {"tape": 0, "s": 0, "log": 0}
    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    assert process.hold.secret.encode() not in environment
    assert str(folder).encode() not in environment
    assert process.hold.token.encode() in environment
    await process.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_another_user_reads_no_tape() -> None:
    """All folders above are open to everybody."""
    with TemporaryDirectory() as top:
        Path(top).chmod(0o755)
        process, seen = await begin(Path(top), "echo.py")
        await seen.wait_for_line(b"ready")
        for words in (["cat", f"{process.hold.folder}/tape"], ["ls", str(process.hold.folder)]):
            refusal = await asyncio.create_subprocess_exec(*words, user=NOBODY, group=NOBODY, extra_groups=(), stderr=PIPE)
            _, why = await refusal.communicate()
            assert b"Permission denied" in why
        await process.stop()


async def test_a_holder_is_small_where_no_bytecode_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(child_process, "HOLDER", str(shutil.copy(child_process.HOLDER, tmp_path)))
    process, seen = await begin(tmp_path, "echo.py")
    await seen.wait_for_line(b"ready")
    lines = Path(f"/proc/{parent_of(process.pid)}/smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    assert sizes["Rss"] < MEMORY_KIB, sizes
    await process.stop()


@pytest.mark.parametrize("module", [held_process, holder_link], ids=["agent", "terminal"])
async def test_a_start_that_is_cancelled_leaves_no_program(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = asyncio.get_running_loop().create_future()

    async def hang(hold: Hold, pid: int, *more: object) -> None:
        started.set_result(pid)
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "attach", hang)
    if module is held_process:
        start = asyncio.create_task(begin(tmp_path, "echo.py"))
    else:
        hold = new_hold(tmp_path)
        environment = child_environment(dict(os.environ), {}, hold.token)
        terminal = os.openpty()
        start = asyncio.create_task(holder_link.HeldTerminal(hold, print, 0.0).spawn(["/bin/cat"], "/", environment, terminal))
    pid = await asyncio.wait_for(started, BOUND_S)
    start.cancel()
    await asyncio.wait([start])
    assert not is_live(pid)


async def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    seen, hold = ProcessLog(), new_hold(tmp_path)
    spec = LaunchSpec((str(tmp_path / "nothing"),), cwd=str(tmp_path))
    with pytest.raises(AgentNotFound, match="does not exist"):
        await NumberedProcess.spawn_on(hold, spec, {}, on_lines=seen.on_lines, on_exit=seen.on_exit)
    assert not hold.folder.exists()


async def test_an_agent_waits_while_too_much_is_unread(tmp_path: Path) -> None:
    """It writes 300 MB while no server is there: the tape stops at its bound, and all comes through afterwards."""
    process, seen = await begin(tmp_path, "flood.py", "300000")
    process.lease(60)
    process.leave()
    tape = process.hold.folder / "tape"
    sizes = [-1]
    async with asyncio.timeout(BOUND_S):
        while sizes[-1] < holder.AWAY_BYTES or sizes[-1] != tape.stat().st_size:
            sizes.append(tape.stat().st_size)
            await is_refused(process)  # it has looked at all that it waits for, and the agent has more to say
    assert holder.AWAY_BYTES <= sizes[-1] < holder.AWAY_BYTES + 2 * holder.READ_BYTES + 2 * holder.SEND_BYTES
    again, seen_again = await come_back(process)
    await seen_again.exit()
    assert len(seen_again.lines) == 300_001
    await again.stop()
    del seen


async def test_an_agent_waits_while_the_disk_is_full(tmp_path: Path) -> None:
    """The tape may not grow: nothing is lost, and all comes when there is room again."""
    process, seen = await begin(tmp_path, "echo.py")
    await seen.wait_for_line(b"ready")
    tape, lines = process.hold.folder / "tape", [b"%d " % number + b"x" * 1000 for number in range(50)]
    limit, pid = tape.stat().st_size + 5, parent_of(process.pid)  # a record begins, and does not end
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for line in lines:
        process.write(line)
    await is_refused(process)  # it goes on to look at what it waits for
    await is_refused(process)
    assert tape.stat().st_size <= limit
    assert seen.lines == [b"ready"]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    await seen.wait_for_line(lines[-1])
    assert seen.lines == [b"ready", *lines]
    await process.stop()
    assert seen.exits[0].code == 0


async def test_a_holder_of_an_unknown_version_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    process.lease(60)
    process.leave()
    monkeypatch.setattr(holder_link, "PROTOCOLS", frozenset({99}))
    with pytest.raises(ConnectionError, match=f"version {holder.PROTOCOL}"):
        await come_back(process)
    monkeypatch.undo()
    again, _ = await come_back(process)
    await again.stop()
    del seen


async def test_garbage_on_the_socket_ends_the_connection_alone(tmp_path: Path) -> None:
    process, seen = await begin(tmp_path, "echo.py")
    process.lease(60)
    process.leave()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(process.hold.folder / "s"))
        stranger.send(record(b"W", bytes(8) + b"evil\n") + os.urandom(100))
        stranger.settimeout(BOUND_S)
        with pytest.raises(ConnectionResetError):  # it hangs up, with something unread
            await asyncio.to_thread(stranger.recv, 1)
    again, seen_again = await come_back(process)
    again.write(b"good")
    await seen_again.wait_for_line(b"good")
    assert seen_again.lines == [b"ready", b"good"]
    await again.stop()
    del seen


def test_the_version_stands_in_both_programs() -> None:
    assert max(holder_link.PROTOCOLS) == holder.PROTOCOL
    assert HOLDERS.keys() | {holder.PROTOCOL} == holder_link.PROTOCOLS, "a holder of each release stays understood"


def test_a_long_path_fits_no_socket(tmp_path: Path) -> None:
    hold = new_hold(tmp_path)
    assert hold.fits
    assert not Hold(tmp_path / ("x" * 100), hold.secret, hold.token, hold.commit, hold.starts).fits
