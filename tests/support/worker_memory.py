"""Fails a run one of whose processes holds too much memory when its tests are over: some test keeps what it has made.

A worker of pytest-xdist tells the process that started it. What a process holds at its end, and not its peak, is looked at: large
inputs are fine.
"""

from __future__ import annotations

import ctypes
import gc
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

MAX_MIB = 600
"""For each process."""
TOO_MUCH = 10
"""The exit code then. It is not that of tests that failed, which are run once more."""
STATUS = Path("/proc/self/status")


def held_mib() -> int:
    """The memory that this process needs now, in MiB; 0 where the system does not tell. What is free is given back first."""
    gc.collect()
    with suppress(OSError, AttributeError):  # of glibc alone
        ctypes.CDLL(None).malloc_trim(0)
    found = re.search(r"^VmRSS:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE) if STATUS.exists() else None
    return int(found[1]) // 1024 if found else 0


class WorkerMemory:
    """In a worker it tells what the worker holds; in the process that has the results it judges."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended. One that died has told nothing."""
        self._held[node.gateway.id] = getattr(node, "workeroutput", {}).get("held_mib", 0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        told: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if told is not None:
            told["held_mib"] = held_mib()
            return
        self._held["pytest"] = held_mib()
        if self.excess() and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = TOO_MUCH

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.excess():
            terminalreporter.write_line(line, red=True)

    def excess(self) -> list[str]:
        """A sentence for each process that holds too much."""
        return [
            f"{name} holds {mib} MiB when its tests are over, {MAX_MIB} are allowed: a test keeps what it has made"
            for name, mib in self._held.items()
            if mib > MAX_MIB
        ]
