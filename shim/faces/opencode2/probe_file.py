"""The file of the data directory in which `Probes` outlive a restart of the server.

    {"probes": [{"address": "127.0.0.1", "user_agent": "node", "dialect": "J"}]}

It holds only clients whose User-Agent does not say what they are, is written soon after one is new, and is never needed to
start: a file that cannot be read or written costs a client its dialect until it asks `/api/health` again.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import structlog

from shim.faces.opencode2.probes import CLIENTS, Probe, Probes
from universal.jsonvalue import arr, obj

FILE = "clients.json"
WRITE_AFTER_S = 0.2
"""After a change: several clients that start together are one write."""
AGENT_LIMIT_CHARS = 512
"""Clients with a longer User-Agent are not kept."""
SIZE_LIMIT_BYTES = CLIENTS * (2 * AGENT_LIMIT_CHARS + 256)
"""No file of ours is larger."""
FILE_MODE = 0o600

log = structlog.get_logger()


class ProbeFile:
    """Keeps `probes` in a file. `start` before requests come, `close` when they are over."""

    def __init__(self, path: Path, probes: Probes) -> None:
        self._path = path
        self._probes = probes
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read what was known before, and follow what changes."""
        self._probes.restore(await asyncio.to_thread(_read, self._path))
        self._probes.changed = self._schedule_save

    async def close(self) -> None:
        """Write what is not written yet. Again is fine."""
        self._probes.changed = lambda: None
        if self._writing is not None:
            await self._writing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            await self._write()

    def _schedule_save(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_AFTER_S, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._writing is not None and not self._writing.done():
            self._schedule_save()  # a slow disk: once more when it is through
            return
        self._writing = asyncio.get_running_loop().create_task(self._write(), name="write clients")

    async def _write(self) -> None:
        rows = [probe for probe in self._probes.unusual() if len(probe.user_agent) <= AGENT_LIMIT_CHARS]
        try:
            await asyncio.to_thread(_replace, self._path, rows)
        except OSError as error:
            log.warning("probes.not_written", path=str(self._path), error=error.strerror or str(error))


def _read(path: Path) -> list[Probe]:
    try:
        with path.open("rb") as file:
            given: Any = json.loads(file.read(SIZE_LIMIT_BYTES))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        log.warning("probes.not_read", path=str(path), error=str(error))
        return []
    rows = [obj(row) for row in arr(obj(given).get("probes"))][-CLIENTS:]
    found = [tuple(row.get(name) for name in Probe._fields) for row in rows]
    return [Probe(*values) for values in found if all(isinstance(value, str) for value in values)]  # type: ignore[arg-type]


def _replace(path: Path, rows: list[Probe]) -> None:
    """Raises OSError; then the old file is as it was."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w") as file:
        json.dump({"probes": [row._asdict() for row in rows]}, file)
    new.replace(path)
