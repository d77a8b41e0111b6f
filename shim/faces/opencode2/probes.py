"""Remembers which dialect of OpenCode 2 each client speaks, by the route that it called first. Bounded.

A client calls `/api/health` or `/api/info` once, at its start, and does not call it again when the server restarts. So dialects
that the User-Agent does not tell are kept in a file (`ProbeFile`).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import structlog

from shim.faces.opencode2.dialects import V2_0, V2_JULY, find_dialect
from universal.lib.jsonvalue import arr, obj

CLIENTS = 1024
"""Maximum of clients remembered. The client that has been silent for the longest time is forgotten first."""
JULY_AGENT = "opencode2/"
"""Beginning of the User-Agent of July's builds, which call `/api/health`. That of 2.0 is `opencode/latest/2.0.26/cli`."""

Client: TypeAlias = tuple[str, str]
"""Address and User-Agent."""


class Probe(NamedTuple):
    """A client and the name of the dialect that its last probe stands for."""

    address: str
    user_agent: str
    dialect: str


def dialect_by_agent(user_agent: str) -> str:
    """The name of the dialect of a client that has called neither `/api/health` nor `/api/info`."""
    return (V2_JULY if user_agent.startswith(JULY_AGENT) else V2_0).name


class Probes:
    """The last probe of each client. `changed` is called when a client's dialect becomes another one."""

    def __init__(self, size: int = CLIENTS) -> None:
        self._size = size
        self._last: dict[Client, str] = {}
        self.changed: Callable[[], None] = lambda: None

    def note(self, client: Client, dialect: str) -> None:
        before = self._last.pop(client, None)
        self._last[client] = dialect
        self._shrink()
        if before != dialect:
            self.changed()

    def last(self, client: Client) -> str | None:
        """The name of the dialect of the client's last probe, or None. The client counts as heard."""
        dialect = self._last.get(client)
        if dialect is not None:
            self.note(client, dialect)
        return dialect

    def unusual(self) -> list[Probe]:
        """Probes whose dialect differs from what the User-Agent tells, the longest silent client first."""
        return [Probe(*client, dialect) for client, dialect in self._last.items() if dialect != dialect_by_agent(client[1])]

    def restore(self, probes: Iterable[Probe]) -> None:
        """Add the probes of before a restart. Probes of clients that have called since then win."""
        older = {(probe.address, probe.user_agent): probe.dialect for probe in probes}
        newer = self._last
        self._last = {**{client: dialect for client, dialect in older.items() if client not in newer}, **newer}
        self._shrink()

    def _shrink(self) -> None:
        while len(self._last) > self._size:
            del self._last[next(iter(self._last))]


# --- the file of probes ----------------------------------------------------------------------------------

# The file `clients.json` of the data directory, which keeps `Probes` over a restart of the server.
#
#     {"probes": [{"address": "127.0.0.1", "user_agent": "node", "dialect": "v2_july"}]}
#
# It holds only clients whose User-Agent does not tell their dialect, and is written soon after a change. The server starts
# without it: if the file cannot be read or written, a client loses its dialect until it calls `/api/health` again. Letters of
# older servers are read as names (`dialects.LETTERS`); rows with an unknown dialect are dropped.

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
