"""Reads pages of checkpoints for callers that must not await, in a thread with a connection of its own.

A page may be asked for in any thread, the event loop's included. So the request must not need that event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from shim.errors import StoreError
from shim.store.jetstream.connection import CONNECT_S, REQUEST_S, Connection
from shim.store.jetstream.layout import ClusterOptions, Stream

T = TypeVar("T")

CLOSE_S = 2.0
"""Maximum seconds for the thread to end."""


class PageReader:
    """The thread, started by the first page."""

    def __init__(self, options: ClusterOptions, name: str, blobs: Stream) -> None:
        self._options = options
        self._name = name
        self._blobs = blobs
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()

    def read(self, parts: Sequence[int]) -> bytes | None:
        """The bytes of these parts, or None if one is gone. Blocks. Raises StoreError."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="store-pages", daemon=True)
                self._thread.start()
            loop = self._loop
        return self._wait(self._read(parts), loop, CONNECT_S + len(parts) * REQUEST_S)

    async def _read(self, parts: Sequence[int]) -> bytes | None:
        async with self._opening:
            if self._connection is None:
                connection = Connection(self._options, self._name)
                await connection.open()
                self._connection = connection
        pieces: list[bytes] = []
        for part in parts:
            piece = await self._connection.by_sequence(self._blobs, part)
            if piece is None:
                return None
            pieces.append(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Close the connection and end the thread. Blocks for at most CLOSE_S and a request. May be called again."""
        with self._lock:
            loop, thread, connection = self._loop, self._thread, self._connection
            self._loop = self._thread = self._connection = None
        if loop is None or thread is None:
            return
        if connection is not None:
            self._wait(connection.close(), loop, 2 * REQUEST_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSE_S)
        if not thread.is_alive():
            loop.close()

    def _wait(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, seconds: float) -> T:
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result(seconds)
        except FutureTimeoutError as error:
            future.cancel()
            raise StoreError(f"NATS at {self._options.address} does not answer. Look at the network and at NATS.") from error
