"""Starts child processes in a group of their own with a log file, waits for them, and ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from .forks import Fork

T = TypeVar("T")
POLL_S = 0.05


def wait_for(what: Callable[[], T | None], timeout_s: float, hint: Callable[[], str] | str = "") -> T:
    """Polls until `what()` is true; AssertionError with the hint when the time is up."""
    end = time.monotonic() + timeout_s
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s} s: {hint() if callable(hint) else hint}")
        time.sleep(POLL_S)


class Child:
    """A process with its output in `log`. `close()` ends it and its group, with a signal first; it may be called twice.

    is_fork  it is one of `forks`
    """

    process: subprocess.Popen[bytes] | Fork

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        log: Path,
        end_signal: int = signal.SIGTERM,
        *,
        is_fork: bool = False,
    ) -> None:
        self.log_path, self.end_signal = log, end_signal
        if is_fork:
            self.process = Fork(argv, cwd, env, log)
            return
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                list(argv), cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    def wait_log(self, find: Callable[[str], T | None], timeout_s: float) -> T:
        def look() -> T | None:
            found = find(self.log())
            if not found and self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.log()[-4000:]}")
            return found

        return wait_for(look, timeout_s, lambda: self.log()[-4000:])

    def send(self, number: int) -> None:
        if self.process.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        return self.process.wait(timeout_s)

    def close(self, timeout_s: float = 8) -> None:
        self.send(self.end_signal)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        for group_left in (True, False):
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                break
            if group_left:
                self.process.wait(5)


def processes_with(text: str) -> dict[int, str]:
    """Live processes (no zombies) whose environment or command line holds `text`: pid -> command line."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            if command and (text in command or text.encode() in (entry / "environ").read_bytes()):
                found[int(entry.name)] = command
        except OSError:
            continue
    return found


def children_of(parent: int) -> dict[int, str]:
    """Live processes (no zombies) that this one has started itself: pid -> command line."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) != parent:
                continue
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            continue
        if command:
            found[int(entry.name)] = command
    return found


def holders_in(data_dir: Path) -> list[int]:
    """The holders of agents that outlive the server of this data directory, which are children of nobody."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "cwd").resolve().parent == data_dir / "held":
                found.append(int(entry.name))
    return found


def connections_to(port: int) -> int:
    """How many established TCP connections the server at this port of the machine has."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)
