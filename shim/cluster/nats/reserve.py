"""Room in JetStream that events do not take, so that a full one is no dead end.

JetStream has one limit for all that it keeps on disk, and a stream cannot be promised a part of it. So a message of RESERVE_BYTES
stands in a stream of its own. If an entry of a session has no room (a deletion, a claim, the end of a turn), the reserve is
removed and the entry is written in its place. Until there is the reserve again, and as much room beside it, no event is written:
what a deletion frees is for the reserve first. Leases need none of it (`leases.py`).
"""

from __future__ import annotations

from contextlib import suppress

import structlog

from shim.cluster.nats.connection import Connection, WrongSequence
from shim.cluster.nats.layout import Layout
from shim.lib.errors import StoreFull

log = structlog.get_logger(__name__)

RESERVE_BYTES = 512 * 2**10
"""Bytes of the reserve: some hundred entries of sessions."""


class Reserve:
    """The reserve of a cluster, as this server knows it."""

    def __init__(self, connection: Connection, layout: Layout) -> None:
        self._connection = connection
        self._layout = layout
        self.is_spent = False
        """Whether JetStream had no room at the last write."""

    def note_full(self) -> None:
        """Note that a write was refused for want of room."""
        if not self.is_spent:
            log.error("cluster.jetstream_full", stream=self._layout.journal.name)
        self.is_spent = True

    async def need(self) -> None:
        """Raise StoreFull if JetStream was full, and has not RESERVE_BYTES of room beside the reserve. Raises StoreError."""
        if not self.is_spent:
            return
        try:
            await self.fill()
            probe = await self._append()
        except StoreFull as error:
            raise StoreFull(f"No prompt is taken, because nothing more can be stored. {error}") from error
        await self._connection.remove(self._layout.reserve, probe)
        self.is_spent = False
        log.info("cluster.jetstream_has_room")

    async def fill(self) -> None:
        """Write the reserve if it is not there. Raises StoreFull, StoreError."""
        stream = self._layout.reserve
        if await self._connection.last(stream, stream.subjects) is None:
            with suppress(WrongSequence):  # another server has written it
                await self._append(after=0)

    async def _append(self, after: int | None = None) -> int:
        try:
            size = min(RESERVE_BYTES, self._connection.message_bytes)
            return await self._connection.append(self._layout.reserve.subjects, bytes(size), after=after)
        except StoreFull:
            self.note_full()
            raise

    async def release(self) -> None:
        """Give the room of the reserve to an entry."""
        self.note_full()
        await self._connection.purge(self._layout.reserve, self._layout.reserve.subjects)
