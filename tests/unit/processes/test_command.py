"""Short programs: bounded in time and output, and nothing of them is left."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from shim.processes.command import STDERR_LIMIT_BYTES, ProgramMissing, run


def alive(pid: int) -> bool:
    """Zombies count as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def wait_for_exit(pid: int) -> bool:
    async with asyncio.timeout(5):
        while alive(pid):
            await asyncio.sleep(0.005)
    return True


async def test_the_output_of_a_command(tmp_path: Path) -> None:
    found = await run(["sh", "-c", "pwd; echo oops >&2; exit 3"], str(tmp_path))
    assert (found.code, found.text, found.stderr, found.ok, found.truncated) == (3, f"{tmp_path}\n", b"oops\n", False, False)


async def test_input_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONE", "1")
    found = await run(
        ["sh", "-c", 'cat; echo "$ADDED-$GONE"'], str(tmp_path), stdin=b"x" * 300_000, environment={"ADDED": "a", "GONE": None}
    )
    assert found.stdout == b"x" * 300_000 + b"a-\n"


async def test_input_that_is_not_read(tmp_path: Path) -> None:
    assert (await run(["true"], str(tmp_path), stdin=b"x" * 3_000_000)).code == 0


async def test_without_input_it_has_none(tmp_path: Path) -> None:
    assert (await run(["cat"], str(tmp_path))).stdout == b""


async def test_time_is_bounded(tmp_path: Path) -> None:
    """With all that it started, also what holds its output open."""
    found = await run(["sh", "-c", "sleep 100 & echo $! $$; sleep 100"], str(tmp_path), timeout_s=1)
    assert (found.code, found.ok, found.truncated) == (None, False, False)
    pids = found.text.split()
    assert len(pids) == 2 and all([await wait_for_exit(int(pid)) for pid in pids])


async def test_output_is_bounded(tmp_path: Path) -> None:
    async with asyncio.timeout(5):  # at once, and not when its time is up
        found = await run(["sh", "-c", "echo $$; exec yes"], str(tmp_path), limit_bytes=1000)
    assert (len(found.stdout), found.truncated, found.code) == (1000, True, None)
    assert await wait_for_exit(int(found.text.split()[0]))


async def test_much_on_stderr_does_not_block(tmp_path: Path) -> None:
    found = await run(["sh", "-c", "head -c 5000000 /dev/zero >&2; echo done"], str(tmp_path))
    assert (found.code, found.text, len(found.stderr)) == (0, "done\n", STDERR_LIMIT_BYTES)


async def test_cancelling_ends_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    task = asyncio.ensure_future(run(["sh", "-c", f"echo $$ > {pids}; sleep 100"], str(tmp_path)))
    pid = int(await asyncio.to_thread(pids.read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await wait_for_exit(pid)


async def test_missing(tmp_path: Path) -> None:
    with pytest.raises(ProgramMissing, match="nosuch-program is not installed"):
        await run(["nosuch-program"], str(tmp_path))
    with pytest.raises(FileNotFoundError):
        await run(["true"], str(tmp_path / "missing"))
