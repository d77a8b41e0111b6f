"""The file `clients.json` of the data directory, which keeps `Probes` over a restart of the server.

    {"probes": [{"address": "127.0.0.1", "user_agent": "node", "dialect": "v2_july"}]}

It holds only clients whose User-Agent does not tell their dialect, and is written soon after a change. The server starts without
it: if the file cannot be read or written, a client loses its dialect until it calls `/api/health` again. Letters of older servers
are read as names (`dialects.LETTERS`); rows with an unknown dialect are dropped.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import structlog

from shim.faces.opencode2.dialects import find_dialect
from shim.faces.opencode2.probes import CLIENTS, Probe, Probes
from universal.lib.jsonvalue import arr, obj

FILE = "clients.json"
WRITE_AFTER_S = 0.2
"""Seconds from a change to its write, so that several clients that start together need one write."""
AGENT_LIMIT_CHARS = 512
"""Maximum length of a User-Agent. Clients with a longer one are not kept."""
SIZE_LIMIT_BYTES = CLIENTS * (2 * AGENT_LIMIT_CHARS + 256)
"""Maximum size of the file that is read. The file of `CLIENTS` clients is smaller."""
FILE_MODE = 0o600

log = structlog.get_logger()


class ProbeFile:
    """Keeps `probes` in a file. Call `start` before the first request and `close` after the last."""

    def __init__(self, path: Path, probes: Probes) -> None:
        self._path = path
        self._probes = probes
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Restore the probes of the file, and write the file at each later change."""
        self._probes.restore(await asyncio.to_thread(_read, self._path))
        self._probes.changed = self._schedule_save

    async def close(self) -> None:
        """Write what is not written yet. May be called again."""
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
            self._schedule_save()  # the disk is slow: try again when its write has ended
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
            document: Any = json.loads(file.read(SIZE_LIMIT_BYTES))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        log.warning("probes.not_read", path=str(path), error=str(error))
        return []
    rows = [obj(row) for row in arr(obj(document).get("probes"))][-CLIENTS:]
    return [probe for probe in map(_probe, rows) if probe is not None]


def _probe(row: dict[str, Any]) -> Probe | None:
    """The probe of a row, or None if the row is not valid."""
    values = [value for name in Probe._fields if isinstance(value := row.get(name), str)]
    if len(values) < len(Probe._fields):
        return None
    probe = Probe(*values)
    dialect = find_dialect(probe.dialect)
    return None if dialect is None else probe._replace(dialect=dialect.name)


def _replace(path: Path, rows: list[Probe]) -> None:
    """Replace the file in one step. Raises OSError and leaves the old file as it was."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w") as file:
        json.dump({"probes": [row._asdict() for row in rows]}, file)
    new.replace(path)
