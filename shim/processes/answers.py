"""Runs a program of an agent for one answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shim.processes.agent_pipes import AgentProcess
from universal.launch import Exit, LaunchSpec

MOST_LINES = 500
"""Maximum number of output lines that are kept, if the caller wants no more."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The program's output. `over` is False if it neither ended nor printed the expected line in time."""

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
    most_lines: int = MOST_LINES,
) -> CommandOutput:
    """Run a program in `/`, write `lines`, and kill it once it ends or prints a line for which `enough` is true.

    Without `lines` its stdin is closed at once. Raises AgentError if it cannot be started.
    """
    output: list[str] = []
    over: asyncio.Future[Exit | None] = asyncio.get_running_loop().create_future()

    def finish(exit_: Exit | None) -> None:
        if not over.done():
            over.set_result(exit_)

    def on_lines(more: list[bytes]) -> None:
        for line in more[: most_lines - len(output)]:
            output.append(line.decode("utf-8", "replace"))
            if enough(output[-1]):
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
    text = "\n".join([*output, exit_.stderr if exit_ is not None else ""])
    return CommandOutput(text, exit_, in_time)
