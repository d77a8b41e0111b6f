"""The queue behind `/tui/control/next`, which waits for the next `/tui/*` request.

A request goes to the reader of its directory that has waited longest. Without a reader it is dropped, since it would otherwise
run at some later time. Native OpenCode 1.18.33 has the two routes, but its server puts nothing into the queue.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TuiRequest:
    """A `/tui/*` request: its path, and its JSON."""

    path: str
    body: object


class TuiControl:
    """Waiting readers by directory. Used from one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[TuiRequest], None]] = {}
        self._closed = False

    def offer(self, directory: str, request: TuiRequest) -> bool:
        """Pass a request to a reader; return whether there was one."""
        readers = self._waiting.get(directory, {})
        reader = next((future for future in readers if not future.done()), None)
        if reader is None:
            return False
        reader.set_result(request)
        return True

    def wait(self, directory: str) -> asyncio.Future[TuiRequest]:
        """Return a future of the next request, cancelled when the server stops. The caller must pass it to `leave`."""
        reader: asyncio.Future[TuiRequest] = asyncio.get_running_loop().create_future()
        if self._closed:
            reader.cancel()
        self._waiting.setdefault(directory, {})[reader] = None
        return reader

    def leave(self, directory: str, reader: asyncio.Future[TuiRequest]) -> None:
        reader.cancel()
        readers = self._waiting.get(directory, {})
        readers.pop(reader, None)
        if not readers:
            self._waiting.pop(directory, None)

    def waiting_count(self, directory: str) -> int:
        return len(self._waiting.get(directory, {}))

    def close(self) -> None:
        """Cancel all readers, for the server's shutdown."""
        self._closed = True
        for readers in self._waiting.values():
            for reader in readers:
                reader.cancel()
