"""The other servers of a cluster: what this one asks of them (`commands.py`, `pipes.py`), and what they tell each other.

owner  -> PREFIX.growth    a message of a journal is stored
server -> its lease        what it can take
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from shim.cluster.nats.batches import Envelope, envelope_of
from shim.cluster.nats.commands import FROM, Commands
from shim.cluster.nats.connection import Connection, Parcel
from shim.cluster.nats.journals import Journals
from shim.cluster.nats.layout import Layout
from shim.cluster.nats.leases import Leases
from shim.cluster.nats.pipes import Pipes
from shim.cluster.peers import Accept, Answer, Command, Growth, Handle, Node, Offer, Overview, Pipe
from shim.store.servers import ServerRef

READ_TRIES = 20
"""Tries to read messages of whose numbers this server has heard. A copy of the stream may be behind for a moment."""
READ_AGAIN_S = 0.05
"""Seconds between two of them."""


class JetStreamPeers:
    """The `Peers` of a server.

    In: `journals`, which learn how far those of other servers have come; `overview`, which describes the cluster.
    """

    def __init__(
        self,
        connection: Connection,
        layout: Layout,
        leases: Leases,
        server_id: str,
        journals: Journals,
        overview: Callable[[], Overview],
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._leases = leases
        self._server_id = server_id
        self._journals = journals
        self.overview = overview
        self.commands = Commands(connection, layout, server_id)
        self._pipes = Pipes(connection, layout, server_id)
        self._on_read: Callable[[Growth], None] | None = None

    def ask(self, server: ServerRef, command: Command) -> AbstractAsyncContextManager[Answer]:
        """Let another server do a command."""
        return self.commands.ask(server, command)

    async def serve(self, handle: Handle) -> None:
        """Do the commands of other servers from now on."""
        await self.commands.serve(handle)

    def open(self, server: ServerRef, command: Command) -> AbstractAsyncContextManager[Pipe]:
        """Open a stream to another server."""
        return self._pipes.open(server, command)

    async def accept(self, accept: Accept) -> None:
        """Serve the streams of other servers from now on."""
        await self._pipes.accept(accept)

    async def close(self) -> None:
        """End what is done for others."""
        await self._pipes.close()
        await self.commands.close()

    async def watch(self, on_growth: Callable[[Growth], None], on_read: Callable[[Growth], None]) -> int:
        """Call a function soon after a server has written to a journal. Returns the position of the last message before."""
        self._on_read = on_read

        async def receive(parcel: Parcel) -> None:
            by, session_id, first, last, position, epoch = json.loads(parcel.data)
            if by != self._server_id and last >= first:
                self._journals.note_last(session_id, last)
            on_growth(Growth(session_id, first, last, position, epoch, by == self._server_id))

        await self._connection.subscribe(self._layout.growth, receive)
        return await self._connection.last_sequence(self._layout.journal)

    def note_read(self, session_id: str, envelope: Envelope, position: int) -> None:
        """Tell the watcher of the journals that this server has read a message."""
        if self._on_read is not None:
            self._on_read(self._growth(session_id, envelope, position))

    def _growth(self, session_id: str, envelope: Envelope, position: int) -> Growth:
        is_ours = envelope.by == self._server_id
        return Growth(session_id, envelope.first, envelope.stored_last, position, envelope.epoch, is_ours)

    async def growths(self, after: int, until: int) -> Sequence[Growth]:
        """The messages between two positions that are still there, read from the stream. Raises StoreError.

        A copy of the stream that is behind is asked again; after READ_TRIES the last messages are taken to be gone.
        """
        return await self._read_growths(self._layout.journal.subjects, after, until)

    async def growths_of(self, session_id: str, after: int) -> Sequence[Growth]:
        """The messages of a session's journal after a position, up to this server's own last one. Raises StoreError."""
        return await self._read_growths(self._layout.journal_subject(session_id), after, self._journals.get(session_id).position)

    async def _read_growths(self, subject: str, after: int, until: int) -> Sequence[Growth]:
        found, newest = await self._read_growths_once(subject, after, until)
        for _ in range(READ_TRIES):
            if newest >= until:
                break
            await asyncio.sleep(READ_AGAIN_S)
            found, newest = await self._read_growths_once(subject, after, until)
        return found

    async def _read_growths_once(self, subject: str, after: int, until: int) -> tuple[list[Growth], int]:
        """The messages between two positions, and the newest one that was seen, perhaps a later one."""
        stream, found = self._layout.journal, list[Growth]()
        while after < until:
            page = await self._connection.read(stream, subject, after + 1)
            for message in page.messages:
                after = message.sequence
                if after > until:
                    break
                session_id = message.subject.rpartition(".")[2]
                found.append(self._growth(session_id, envelope_of(message.data), after))
            if not page.has_more or not page.messages:
                break
        return found, after

    def epoch_of(self, session_id: str) -> int:
        """The number of this server's ownership of a session; 1 for a new session."""
        return self._journals.epoch_of(session_id)

    async def broadcast(self, message: bytes) -> None:
        """Send a message to all other servers."""
        await self._connection.publish(self._layout.talk, message, {FROM: self._server_id})

    async def hear(self, receive: Callable[[str, bytes], None]) -> None:
        """Call a function with each message that another server broadcasts."""

        async def pass_on(parcel: Parcel) -> None:
            server_id = parcel.headers.get(FROM, "")
            if server_id != self._server_id:
                receive(server_id, parcel.data)

        await self._connection.subscribe(self._layout.talk, pass_on)

    def announce_offer(self, offer: Callable[[], Offer]) -> None:
        """Tell the other servers what this one can take, with each renewal of its lease."""
        self._leases.announce_offer(offer)

    def nodes(self) -> Sequence[Node]:
        """The other servers that lived at the last look."""
        return [node for server_id, node in self._leases.nodes.items() if server_id != self._server_id]
