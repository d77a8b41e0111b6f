"""The audit log: who has asked for what, a JSON line for each request that may change something, once there are named people.

    {"at": "2026-11-29T12:00:00.000Z", "person": "vera", "device": "1f2e...", "address": "10.0.0.7", "method": "POST",
     "route": "/session/{sessionID}/prompt_async", "names": {"sessionID": "ses_..."}, "status": 204}

`person` is "" for who has the password, and `status` 401 or 403 for what was refused. Bodies are not in it: what was said is in
the sessions. Lines are appended in a thread; whoever turns the file over renames it. In a cluster the client's server writes.
"""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import structlog
from aiohttp import web

from shim.http.access import ACCESS, PERSON, TOKEN_ID
from shim.http.people import OWNER, READING
from shim.lib.clock import Clock

log = structlog.get_logger(__name__)

FILE = "audit.jsonl"
"""In the data directory."""
ROWS = 10_000
"""Maximum lines that wait for the disk. Beyond it, the oldest are dropped, and the log counts them."""
CLOSE_S = 5.0
"""Maximum seconds that a stop waits for the disk."""


class Audit:
    """The audit log of one server, which is on once it has people."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._rows: list[str] = []
        self._writing: asyncio.Task[None] | None = None

    def note(self, request: web.Request, status: int) -> None:
        """Note the answer to a request. Never waits."""
        access = request.app[ACCESS]  # not of the request: one may be refused before its gate
        resource = request.match_info.route.resource
        if request.method in READING or resource is None or not access.pairing.has_people:
            return
        row = {
            "at": datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds"),
            "person": request.get(PERSON, OWNER).name,
            "device": request.get(TOKEN_ID, ""),
            "address": access.address(request),
            "method": request.method,
            "route": access.route_of(resource.canonical),
            "names": dict(request.match_info),
            "status": status,
        }
        self._rows.append(json.dumps(row) + "\n")
        if len(self._rows) > ROWS:
            del self._rows[0]
            log.error("audit.row_dropped", path=str(self._path))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="audit")

    async def _write(self) -> None:
        while self._rows:
            rows, count = "".join(self._rows), len(self._rows)
            try:
                await asyncio.to_thread(_append, self._path, rows.encode(errors="replace"))
            except OSError as error:  # the next request tries again
                log.error("audit.not_written", path=str(self._path), reason=str(error), waiting=count)
                return
            del self._rows[:count]

    async def close(self) -> None:
        """Write what waits, within CLOSE_S."""
        if self._rows and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write(), name="audit")
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=CLOSE_S)


def _append(path: Path, rows: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(rows)
