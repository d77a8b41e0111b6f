"""Runs clients' shell commands outside of sessions, without a terminal. Clients read the output by byte position.

    create -> ShellCreated     its end -> ShellExited     remove -> ShellDeleted

The output goes to a file. A command leads a process group, which ends as a whole when its time is over, when the command is
removed, and when the server stops. Clients can read the last `ENDED_LIMIT` ended commands.
Source: OpenCode 2.0.21; events of the recording `extras`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from shim.host.changes import HostFeed, ShellCreated, ShellDeleted, ShellExited
from shim.host.terminals.shell_command import Enclose, ShellCommand, leave_command, shell_of
from shim.host.values import ShellInfo, ShellStatus
from shim.lib.clock import Clock
from shim.lib.disk import is_folder, private_folder
from shim.lib.errors import InvalidRequest, ShellNotFound
from shim.lib.ids import Ids
from shim.processes import process_family
from shim.processes.child_environment import child_environment

RUNNING_LIMIT = 64
"""Maximum running commands on the whole server."""
ENDED_LIMIT = 64
"""Ended commands that clients can still read; the oldest are dropped."""
OUTPUT_LIMIT_BYTES = 64 * 2**20
"""Maximum output of one command in its file. The rest is read and dropped."""
PAGE_LIMIT_BYTES = 2**20
FILE_MODE = 0o600
STOP_S = 3.0
"""Seconds to wait for a command to end when it is removed or the server stops."""


@dataclass(frozen=True, slots=True)
class OutputPage:
    """A part of a command's output. `cursor`: the byte after it. `is_truncated`: more output is available."""

    output: str
    cursor: int
    size: int
    is_truncated: bool


@dataclass(slots=True)
class Shell:
    """A shell command and its process. `end_status` is the status that it gets when it ends."""

    directory: str
    info: ShellInfo
    process: ShellCommand
    file: Path
    out: BinaryIO
    size: int = 0
    end_status: ShellStatus = "exited"
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def id(self) -> str:
        """`sh_...`"""
        return self.info.id

    @property
    def runs(self) -> bool:
        return self.info.status == "running"


@dataclass(eq=False)
class Shells:
    """All commands of the server. Used from one event loop."""

    _folder: Path
    _: KW_ONLY
    clock: Clock
    ids: Ids
    environ: Mapping[str, str]
    owner: str
    changes: HostFeed
    enclose: Enclose = leave_command
    _shells: dict[str, Shell] = field(default_factory=dict[str, Shell])
    _closed: bool = False
    _swept: bool = False
    _sweeping: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.owner:
            self.environ = process_family.with_owner(self.environ, self.owner)

    def list_of(self, directory: str) -> list[ShellInfo]:
        """List the running commands of a directory, oldest first."""
        return [shell.info for shell in self._shells.values() if shell.directory == directory and shell.runs]

    def directories(self) -> list[str]:
        """List the directories with commands, also ended ones."""
        return list(dict.fromkeys(shell.directory for shell in self._shells.values()))

    def get(self, directory: str, id_: str) -> Shell:
        """Return a command. Raises ShellNotFound (404), also for a command of another directory."""
        shell = self._shells.get(id_)
        if shell is None or shell.directory != directory:
            raise ShellNotFound(id_)
        return shell

    async def create(
        self,
        directory: str,
        command: str,
        *,
        cwd: str | None,
        timeout_ms: float | None,
        metadata: Mapping[str, object],
        variables: Mapping[str, str],
    ) -> Shell:
        """Start a command. Raises InvalidRequest for a missing folder, a NUL, or too many running commands."""
        if self._closed or sum(running.runs for running in self._shells.values()) >= RUNNING_LIMIT:
            raise InvalidRequest(f"There are {RUNNING_LIMIT} commands running, which is the limit. End some.")
        if "\0" in command or "\0" in (cwd or ""):
            raise InvalidRequest("A command may not contain NUL", path=("command",))
        place = str(Path(directory, cwd or "."))
        id_ = self.ids.new("shell")
        file, out = await asyncio.to_thread(self._open_output, place, id_)
        program = await asyncio.to_thread(shell_of, self.environ)
        process = ShellCommand(
            command,
            place,
            child_environment({**self.environ, **variables, "SHELL": program}, {}, _token(id_)),
            lambda text: self._on_output(id_, text),
            on_started=lambda: self._note_start(id_),
            limit_chars=OUTPUT_LIMIT_BYTES,
            enclose=self.enclose,
        )
        info = ShellInfo(id_, command, place, program, str(file), metadata, self.clock.now_ms())
        shell = self._shells[id_] = Shell(directory, info, process, file, out)
        self.changes.publish(ShellCreated(info), directory)
        shell.task = asyncio.create_task(self._run(shell), name=f"shell {id_}")
        if timeout_ms is not None:
            self.limit(shell, timeout_ms)
        return shell

    def limit(self, shell: Shell, timeout_ms: float) -> None:
        """End the command after this time, counted from now. It replaces any earlier limit; 0 removes the limit."""
        if shell.timer is not None:
            shell.timer.cancel()
            shell.timer = None
        if timeout_ms > 0 and shell.runs:
            shell.timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._stop, shell, "timeout")

    async def output(self, shell: Shell, cursor: int, limit: int) -> OutputPage:
        """Read the output from a byte position on."""
        data = await asyncio.to_thread(_read, shell.file, cursor, min(limit, PAGE_LIMIT_BYTES))
        end = cursor + len(data) if data else min(cursor, shell.size)
        return OutputPage(data.decode("utf-8", "replace"), end, shell.size, end < shell.size)

    async def remove(self, shell: Shell) -> None:
        """End a command, and delete it with its output."""
        self._shells.pop(shell.id, None)
        self._stop(shell, "killed")
        if shell.task is not None:
            await asyncio.wait({shell.task}, timeout=STOP_S)
        await asyncio.to_thread(_forget, [shell])
        self.changes.publish(ShellDeleted(shell.id), shell.directory)

    async def dispose(self, directory: str | None) -> None:
        """End and delete all commands of a directory (None: of all). It emits no events, as for terminals."""
        going = [shell for shell in self._shells.values() if directory in (None, shell.directory)]
        for shell in going:
            self._shells.pop(shell.id, None)
            if shell.runs:
                shell.process.kill()
        tasks = [shell.task for shell in going if shell.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_S)
        await asyncio.to_thread(_forget, going)

    async def close(self) -> None:
        """End all commands and accept no new ones, for the server's shutdown."""
        self._closed = True
        await self.dispose(None)

    # --- inside

    def _sweep(self) -> None:
        """Remove, once, the output that a killed server has left, before the first output file is made. Blocking."""
        with self._sweeping:
            if not self._swept:
                for file in self._folder.glob("sh_*.log"):
                    file.unlink(missing_ok=True)
                self._swept = True

    def _open_output(self, place: str, id_: str) -> tuple[Path, BinaryIO]:
        if not is_folder(place):
            raise InvalidRequest(f"There is no folder {place}", path=("cwd",))
        private_folder(self._folder)
        self._sweep()
        file = self._folder / f"{id_}.log"
        return file, os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), "wb", buffering=0)

    def _note_start(self, id_: str) -> None:
        shell = self._shells.get(id_)
        if shell is not None and shell.process.pid is not None:
            shell.info = replace(shell.info, pid=shell.process.pid)

    def _on_output(self, id_: str, text: str) -> None:
        shell = self._shells.get(id_)
        if shell is not None:
            with suppress(OSError):  # a full disk must not end the command
                shell.size += shell.out.write(text.encode("utf-8", "replace"))

    def _stop(self, shell: Shell, status: ShellStatus) -> None:
        if shell.runs:
            shell.end_status = status
            shell.process.stop()

    async def _run(self, shell: Shell) -> None:
        code = -signal.SIGKILL
        try:
            code = await shell.process.run()
        except OSError as error:
            self._on_output(shell.id, f"{shell.info.command}: {error.strerror or error}\n")
            code = 127
        finally:
            if files := [old.file for old in self._note_end(shell, code)]:
                asyncio.get_running_loop().run_in_executor(None, _unlink, files)  # not awaited: this task may be cancelled

    def _note_end(self, shell: Shell, code: int) -> list[Shell]:
        """Note that a command has ended. Returns older commands that are not listed any more."""
        shell.out.close()
        if shell.timer is not None:
            shell.timer.cancel()
        ended = replace(shell.info, status=shell.end_status, completed_ms=self.clock.now_ms())
        shell.info = replace(ended, exit_code=code) if code >= 0 else replace(ended, signal=signal.Signals(-code).name)
        if shell.id in self._shells:
            self.changes.publish(ShellExited(shell.id, shell.info.status, shell.info.exit_code), shell.directory)
        finished = [candidate for candidate in self._shells.values() if not candidate.runs]
        oldest = finished[: max(0, len(finished) - ENDED_LIMIT)]
        for old in oldest:
            self._shells.pop(old.id, None)
        return oldest


def _read(file: Path, cursor: int, limit: int) -> bytes:
    try:
        with file.open("rb") as source:
            source.seek(cursor)
            return source.read(limit)
    except OSError:
        return b""


def _unlink(files: list[Path]) -> None:
    """Delete output. What cannot be deleted is removed with the next start. Blocking."""
    for file in files:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _forget(shells: list[Shell]) -> None:
    """Delete the commands' output, and end processes that they left behind (`nohup`)."""
    for shell in shells:
        process_family.end_owned(_token(shell.id))
        shell.file.unlink(missing_ok=True)


def _token(id_: str) -> str:
    """The token in the environment by which `process_family` finds a command's processes, even in another process session."""
    return f"shell-{id_}"
