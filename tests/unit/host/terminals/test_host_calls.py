"""Files and commands of agents: where a command may run is looked up in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from shim.host.terminals import host_calls
from shim.host.terminals.host_calls import HostCalls
from universal.host import CommandEnded, HostAnswer, HostDone, RunCommand

WAIT_S = 10


class SlowDisk:
    """A look at the disk that ends when `let_go` is set."""

    def __init__(self) -> None:
        self.asked, self.let_go = threading.Event(), threading.Event()

    def within(self, path: str, roots: Sequence[str]) -> bool:
        self.asked.set()
        assert self.let_go.wait(WAIT_S)
        return True


async def wait_for(event: threading.Event) -> None:
    async with asyncio.timeout(WAIT_S):
        while not event.is_set():
            await asyncio.sleep(0)


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_the_loop_goes_on_while_it_is_looked_up_and_nothing_starts_for_an_agent_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_dropped: bool
) -> None:
    disk, answers, ended = SlowDisk(), list[HostAnswer](), asyncio.Event()

    def answer(told: HostAnswer) -> None:
        answers.append(told)
        if isinstance(told, CommandEnded):
            ended.set()

    monkeypatch.setattr(host_calls, "within", disk.within)
    calls = HostCalls(str(tmp_path), [], lambda: {"PATH": "/usr/bin:/bin"}, answer)
    calls.do(RunCommand("1", "touch made", cwd=str(tmp_path)))
    await wait_for(disk.asked)  # the loop is free
    if is_dropped:
        calls.drop()
    disk.let_go.set()
    if not is_dropped:
        await asyncio.wait_for(ended.wait(), WAIT_S)
        assert answers == [HostDone("1"), CommandEnded("1", 0, None)]
    await calls.close()
    assert (tmp_path / "made").exists() is not is_dropped
