"""A short run of an agent's program that is asked one thing: `--version`, `auth status`. Bounded; nothing of it stays."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shim.runtime.process import AgentProcess
from universal.codec import Exit, LaunchSpec

MOST_LINES = 500
"""So many lines of what it says are kept."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """What it wrote. `over` is False when it neither ended nor said what was waited for, in time."""

    text: str
    exit: Exit | None
    over: bool


async def ask(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    *,
    wait_s: float,
    lines: Sequence[bytes] = (),
    enough: Callable[[str], bool] = lambda _: False,
) -> CommandOutput:
    """Run it in `/`, write `lines`, and wait until it ends or a line of it is `enough`; then it is killed.

    Its stdin is closed at once when there are no lines. Raises: AgentError when it cannot be started.
    """
    said: list[str] = []
    over: asyncio.Future[Exit | None] = asyncio.get_running_loop().create_future()

    def finish(exit_: Exit | None) -> None:
        if not over.done():
            over.set_result(exit_)

    def on_lines(more: list[bytes]) -> None:
        for line in more[: MOST_LINES - len(said)]:
            said.append(line.decode("utf-8", "replace"))
            if enough(said[-1]):
                finish(None)

    process = await AgentProcess.spawn(LaunchSpec(argv, cwd=os.sep), env, on_lines=on_lines, on_exit=finish, name="ask")
    exit_: Exit | None = None
    in_time = True
    try:
        for line in lines:
            process.write(line)
        if not lines:
            process.close_input()
        async with asyncio.timeout(wait_s):
            exit_ = await over
    except TimeoutError:
        in_time = False
    finally:
        process.kill()
    text = "\n".join([*said, exit_.stderr if exit_ is not None else ""])
    return CommandOutput(text, exit_, in_time)
