"""The queue that a program may read instead of the events: `/tui/control/next` waits for the next `/tui/*` request.

A request goes to one waiting reader of its directory, the one that has waited longest; with nobody waiting it is not kept, since
it would come true at some later time. Native 1.18.33 has the two routes and puts nothing into the queue of a server.
"""

from __future__ import annotations

import asyncio
from typing import Any


class TuiControl:
    """Readers by directory. Used from one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[dict[str, Any]], None]] = {}
        self._closed = False

    def offer(self, directory: str, path: str, body: Any) -> bool:
        """Give a request to a reader; whether there was one."""
        readers = self._waiting.get(directory, {})
        reader = next((one for one in readers if not one.done()), None)
        if reader is None:
            return False
        reader.set_result({"path": path, "body": body})
        return True

    def wait(self, directory: str) -> asyncio.Future[dict[str, Any]]:
        """The next request; cancelled when the server stops. It is given to `leave`, whatever came of it."""
        reader: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self._closed:
            reader.cancel()
        self._waiting.setdefault(directory, {})[reader] = None
        return reader

    def leave(self, directory: str, reader: asyncio.Future[dict[str, Any]]) -> None:
        """It waits no more."""
        reader.cancel()
        readers = self._waiting.get(directory, {})
        readers.pop(reader, None)
        if not readers:
            self._waiting.pop(directory, None)

    def waiting_count(self, directory: str) -> int:
        """How many wait."""
        return len(self._waiting.get(directory, {}))

    def close(self) -> None:
        """For the server's shutdown."""
        self._closed = True
        for readers in self._waiting.values():
            for reader in readers:
                reader.cancel()
