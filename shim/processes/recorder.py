"""Records the raw traffic with an agent, one file per process, for bug reports and new fixtures.

The first line is {cmd, agent, version, cwd}. The others are {t, dir, msg}: `in` for a line that we wrote, `out` for a line of
the agent (parsed JSON, or text), `exit` for {code} or {signal}. This is the format of `compat_fixtures/agents`. Files hold
prompts and file contents, so recording is off unless `record_dir` is set, and files have mode 0600.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import structlog

from shim.processes.handle import AgentHandle, OnExit, OnLines
from universal.launch import Exit, LaunchSpec

log = structlog.get_logger()


class Recorder:
    """Writes one process's file. A failing disk is logged once, and the agent goes on."""

    def __init__(self, folder: Path, agent: str, version: str | None, spec: LaunchSpec) -> None:
        self._began = time.monotonic()
        self._path = folder / f"{agent}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{id(self) & 0xFFFF:04x}.jsonl"
        self._failed = False
        self._append({"cmd": list(spec.argv), "agent": agent, "version": version, "cwd": spec.cwd})

    def row(self, direction: str, data: bytes) -> None:
        """Record one line of traffic."""
        text = data.decode("utf-8", "replace")
        try:
            msg: Any = json.loads(text)
        except ValueError:
            msg = text
        self._append({"t": round(time.monotonic() - self._began, 4), "dir": direction, "msg": msg})

    def exit(self, exit_: Exit) -> None:
        """Record how the process ended."""
        how = {"signal": exit_.signal} if exit_.signal is not None else {"code": exit_.code}
        self._append({"t": round(time.monotonic() - self._began, 4), "dir": "exit", "msg": how})

    def _append(self, row: dict[str, Any]) -> None:
        if self._failed:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            self._failed = True
            log.warning("recorder.failed", path=str(self._path), error=str(error))

    def lines(self, on_lines: OnLines) -> OnLines:
        """Return `on_lines`, wrapped to record the agent's lines first."""

        def record_lines(lines: list[bytes]) -> Awaitable[None] | None:
            for line in lines:
                self.row("out", line)
            return on_lines(lines)

        return record_lines

    def exits(self, on_exit: OnExit) -> OnExit:
        """Return `on_exit`, wrapped to record the exit first."""

        def record_exit(exit_: Exit) -> None:
            self.exit(exit_)
            on_exit(exit_)

        return record_exit


class RecordedHandle:
    """A handle that records its writes."""

    def __init__(self, handle: AgentHandle, recorder: Recorder) -> None:
        self._handle = handle
        self._recorder = recorder

    @property
    def pid(self) -> int | None:
        return self._handle.pid

    @property
    def alive(self) -> bool:
        """True while the agent accepts input."""
        return self._handle.alive

    @property
    def stderr(self) -> str:
        """The beginning and the end of its stderr so far."""
        return self._handle.stderr

    def write(self, data: bytes) -> None:
        self._recorder.row("in", data)
        self._handle.write(data)

    def interrupt(self) -> None:
        """Interrupt the agent's turn."""
        self._handle.interrupt()

    def kill(self) -> None:
        self._handle.kill()

    async def stop(self) -> None:
        await self._handle.stop()
