"""Carries out the file reads, file writes and commands that an agent requests through its codec (`universal.host`).

One `HostCalls` serves one session and owns its running commands. Each command has a unique token in its environment. By the
token `process_family` finds and ends all processes of a command when the agent releases it, when the agent ends, and when the
session ends.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from shim.host.files.roots import within
from shim.host.terminals.shell_command import ShellCommand
from shim.lib import disk
from shim.processes import process_family
from shim.processes.child_environment import child_environment
from universal.host import (
    CommandEnded,
    CommandOutput,
    HostAnswer,
    HostCall,
    HostDone,
    ReadText,
    RunCommand,
    StopCommand,
    Trouble,
    WriteText,
)

# --- files for an agent (`fs/*`) --------------------------------------------------------------------------------

FILE_LIMIT_BYTES = 10 * 2**20
"""Maximum size of one file to read or write. Agents show far less than that to a model."""


class _RefusedError(Exception):
    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble: Trouble = trouble


def carry_out(call: ReadText | WriteText, allowed: Sequence[str]) -> HostDone:
    """Read or write a file. `allowed`: absolute and resolved directories, at least one."""
    try:
        path = _place(call.path, allowed)
        if isinstance(call, ReadText):
            return HostDone(call.call, text=_lines(_read(path, allowed), call.line, call.limit))
        _write(path, call.text, allowed)
        return HostDone(call.call)
    except _RefusedError as refused:
        return HostDone(call.call, trouble=refused.trouble, error=str(refused))
    except disk.OutsideError:
        return HostDone(call.call, trouble="refused", error=outside(call.path, allowed))
    except IsADirectoryError:
        return HostDone(call.call, trouble="refused", error=_no_file(call.path))
    except FileNotFoundError:
        return HostDone(call.call, trouble="not_found", error=f"Resource not found: {call.path}: No such file or directory.")
    except (OSError, ValueError) as error:
        action = "read" if isinstance(call, ReadText) else "written"
        reason = getattr(error, "strerror", None) or error
        return HostDone(call.call, trouble="failed", error=f"{call.path} cannot be {action}: {reason}.")


def outside(path: str, allowed: Sequence[str]) -> str:
    """The error text for a path outside of the allowed directories."""
    return f"{path} is outside of the directories of this session ({', '.join(allowed)}). Use a path below one of them."


def _place(path: str, allowed: Sequence[str]) -> str:
    if not Path(path).is_absolute() or "\0" in path:
        raise _RefusedError("refused", f"{path!r} is no absolute path. Paths must be absolute.")
    if not within(path, allowed):
        raise _RefusedError("refused", outside(path, allowed))
    return os.path.realpath(path)


def _read(path: str, allowed: Sequence[str]) -> str:
    with disk.open_confined(path, allowed) as (file, state):
        _need_regular(path, state)
        data = file.read(FILE_LIMIT_BYTES + 1)
    _small(path, len(data))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise _RefusedError("failed", f"{path} is no text file: it is not UTF-8. Read it with a command.") from None


def _write(path: str, text: str, allowed: Sequence[str]) -> None:
    data = text.encode("utf-8", "surrogatepass")
    _small(path, len(data))
    with disk.open_confined_for_writing(path, allowed) as (file, state):
        _need_regular(path, state)
        file.write(data)
        file.truncate()


def _need_regular(path: str, state: os.stat_result) -> None:
    if not disk.is_regular(state):
        raise _RefusedError("refused", _no_file(path))


def _no_file(path: str) -> str:
    return f"{path} is no file (but a directory, a pipe or a device)."


def _small(path: str, size: int) -> None:
    if size > FILE_LIMIT_BYTES:
        raise _RefusedError(
            "refused", f"{path}: more than {FILE_LIMIT_BYTES} bytes, which is the most here. Use a command for the part you need."
        )


def _lines(text: str, line: int | None, limit: int | None) -> str:
    if line is None and limit is None:
        return text
    first = max((line or 1) - 1, 0)
    lines = text.splitlines(keepends=True) if "\r" not in text else text.replace("\r\n", "\n").splitlines(keepends=True)
    return "".join(lines[first:] if limit is None else lines[first : first + limit])


# --- calls of an agent ------------------------------------------------------------------------------------------

COMMAND_S = 3600.0
"""Seconds after which a command is ended, since nobody waits for it any more."""
REAP_S = 2.0
"""Seconds after SIGKILL for the system to remove the processes."""
CLOSE_S = 10.0
"""Seconds for all commands of a session to be gone."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _RunningCommand:
    command: ShellCommand
    token: str
    over: bool = False
    released: bool = False


@dataclass(eq=False)
class HostCalls:
    """Carries out host calls of one session.

    `directory` and `roots` bound the files and working directories. `environ` returns the environment of agents. `answer` is
    called from the running loop, never from within `do`, and not after `drop`.
    """

    _directory: str
    _roots: Sequence[str]
    _environ: Callable[[], Mapping[str, str]]
    _answer: Callable[[HostAnswer], None]
    _commands: dict[str, _RunningCommand] = field(default_factory=dict[str, _RunningCommand])
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _era: int = 0
    """Counts the agents that are gone. File calls of an earlier agent get no answer."""

    def do(self, call: HostCall) -> None:
        """Start a call. Its answers come later."""
        match call:
            case ReadText() | WriteText():
                self._start(self._file(call, self._era))
            case RunCommand():
                self._run(call)
            case StopCommand():
                self._stop(call)
            case _:
                log.error("host.unknown_call", call=type(call).__name__)

    def drop(self) -> None:
        """End all commands and send no more answers, since the agent is gone."""
        self._era += 1
        commands, self._commands = self._commands, {}
        for running in commands.values():
            self._end(running)

    async def close(self) -> None:
        """Do `drop` and wait until all commands are gone, at most CLOSE_S."""
        self.drop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)

    # --- files ------------------------------------------------------------------------------------------

    def _allowed_roots(self) -> list[str]:
        return [os.path.realpath(self._directory), *self._roots]

    async def _file(self, call: ReadText | WriteText, era: int) -> None:
        answer = await asyncio.to_thread(lambda: carry_out(call, self._allowed_roots()))
        if era == self._era:
            self._answer(answer)

    # --- commands ---------------------------------------------------------------------------------------

    def _refusal(self, cwd: str) -> str | None:
        """Return why a command may not run in this folder, or None if it may. Blocks."""
        allowed = self._allowed_roots()
        return None if within(cwd, allowed) else outside(cwd, allowed)

    def _run(self, call: RunCommand) -> None:
        def on_output(data: str) -> None:
            self._send_answer(running, CommandOutput(call.call, data))

        token = secrets.token_hex(8)
        env = child_environment(self._environ(), call.env, token)
        command = ShellCommand(
            (call.command, *call.args) if call.args else call.command,
            call.cwd or self._directory,
            env,
            on_output,
            on_started=lambda: self._send_answer(running, HostDone(call.call)),
            limit_chars=float("inf"),
        )
        running = self._commands[call.call] = _RunningCommand(command, token)
        self._start(self._command(call, running))

    def _send_answer(self, running: _RunningCommand, answer: HostAnswer) -> None:
        """Send an answer unless its command was dropped meanwhile."""
        if self._commands.get(answer.call) is running:
            self._answer(answer)

    async def _command(self, call: RunCommand, running: _RunningCommand) -> None:
        cwd = call.cwd or self._directory
        error = await asyncio.to_thread(self._refusal, cwd) if call.cwd is not None else None
        if error is not None:
            self._forget(call, running, HostDone(call.call, trouble="refused", error=error))
            return
        if self._commands.get(call.call) is not running:
            return  # the agent has gone meanwhile
        late = asyncio.get_running_loop().call_later(COMMAND_S, running.command.stop)
        try:
            code = await running.command.run()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            message = f"Cannot start {call.command} in {cwd}: {why}."
            self._forget(call, running, HostDone(call.call, trouble="failed", error=message))
            return
        finally:
            late.cancel()
        running.over = True
        self._send_answer(running, CommandEnded(call.call, code if code >= 0 else None, _name(-code) if code < 0 else None))
        if running.released and self._commands.get(call.call) is running:
            del self._commands[call.call]

    def _forget(self, call: RunCommand, running: _RunningCommand, last: HostAnswer) -> None:
        self._send_answer(running, last)
        if self._commands.get(call.call) is running:
            del self._commands[call.call]

    def _stop(self, call: StopCommand) -> None:
        running = self._commands.get(call.call)
        if running is None:
            return
        if not call.release:
            running.command.stop()
            return
        running.released = True
        self._end(running)
        if running.over:
            del self._commands[call.call]

    def _end(self, running: _RunningCommand) -> None:
        running.command.kill()
        self._start(_sweep(running.token))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="host call")
        self._tasks.add(task)
        task.add_done_callback(self._note_done)

    def _note_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("host.call_failed", exc_info=error)


async def _sweep(token: str) -> None:
    survivors = await asyncio.to_thread(process_family.sweep, process_family.NO_LEADER, token, 0, (), REAP_S)
    if survivors:
        log.warning("host.family_left", left=sorted(process.pid for process in survivors))


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
