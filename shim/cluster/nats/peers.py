"""The other servers of a cluster: what this one asks of them (`commands.py`, `pipes.py`), and what they tell each other.

owner  -> PREFIX.growth    a message of a journal is stored; heard by servers at which clients read
owner  -> PREFIX.growths   those of GATHER_S together; heard by all
server -> its lease        what it can take
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import structlog

from shim.cluster.nats.batches import Envelope, envelope_of
from shim.cluster.nats.commands import FROM, Commands, decode_command, encode_command, pieces
from shim.cluster.nats.connection import Connection, Parcel
from shim.cluster.nats.journals import Journals
from shim.cluster.nats.layout import Layout
from shim.cluster.nats.leases import Leases
from shim.cluster.peers import Accept, Answer, Command, Growth, Handle, Node, Offer, Overview, Pipe, PipeEnded
from shim.lib.errors import ServerLost, StoreError
from shim.store.servers import ServerRef

READ_TRIES = 20
"""Tries to read messages of whose numbers this server has heard. A copy of the stream may be behind for a moment."""
HEARD = 65_536
"""Maximum messages that are remembered as heard of at once."""
READ_AGAIN_S = 0.05
"""Seconds between two of them."""


class JetStreamPeers:
    """The `Peers` of a server.

    In: `journals`, which learn how far those of other servers have come; `find_owner`, the id of the server that has a session,
    empty for nobody, None if that is not known; `overview`, which describes the cluster; `has_writes`, as `Peers.has_writes`.
    """

    def __init__(
        self,
        connection: Connection,
        layout: Layout,
        leases: Leases,
        server_id: str,
        journals: Journals,
        find_owner: Callable[[str], str | None],
        overview: Callable[[], Overview],
        has_writes: Callable[[str], bool],
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._leases = leases
        self._server_id = server_id
        self._journals = journals
        self._find_owner = find_owner
        self.overview = overview
        self._has_writes = has_writes
        self.commands = Commands(connection, layout, server_id)
        self._pipes = Pipes(connection, layout, server_id)
        self._on_read: Callable[[Growth], None] | None = None
        self._on_growth: Callable[[Growth], None] = lambda growth: None
        self._end_attention: Callable[[], Awaitable[None]] | None = None
        self._attending = asyncio.Lock()
        self._heard: set[int] = set()
        """Messages of which this server was told at once, until it is told again of some together."""

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
        self._on_read, self._on_growth = on_read, on_growth
        await self._connection.subscribe(self._layout.growths, self._hear_some)
        await self.attend(is_wanted=True)
        return await self.newest()

    async def attend(self, *, is_wanted: bool) -> bool:
        """As `Peers.attend`."""
        async with self._attending:
            end = self._end_attention
            if is_wanted and end is None:
                self._end_attention = await self._connection.subscribe(self._layout.growth, self._hear_one)
            elif not is_wanted and end is not None:
                self._end_attention = None
                await end()
            return is_wanted and end is None

    async def newest(self) -> int:
        """As `Peers.newest`."""
        return await self._connection.last_sequence(self._layout.journal)

    async def _hear_one(self, parcel: Parcel) -> None:
        word = json.loads(parcel.data)
        if len(self._heard) >= HEARD:  # of servers of a version that tells them once
            self._heard.clear()
        self._heard.add(word[4])
        self._note_word(word)

    async def _hear_some(self, parcel: Parcel) -> None:
        for word in json.loads(parcel.data):
            if word[4] in self._heard:
                self._heard.discard(word[4])
            else:
                self._note_word(word)

    def _note_word(self, word: Sequence[Any]) -> None:
        by, session_id, first, last, position, epoch, *_ = word
        if by != self._server_id and last >= first:
            self._journals.note_last(session_id, last)
        self._on_growth(Growth(session_id, first, last, position, epoch, by == self._server_id))

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

    def is_orphan(self, session_id: str) -> bool:
        """As `Peers.is_orphan`."""
        owner = self._find_owner(session_id)
        return bool(owner) and owner != self._server_id and owner not in self._leases.live_servers

    def has_writes(self, session_id: str) -> bool:
        """As `Peers.has_writes`."""
        return self._has_writes(session_id)

    async def need_session(self, session_id: str) -> None:
        """As `Peers.need_session`."""
        await self._journals.need_entry(session_id)

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


# --- pipes -----------------------------------------------------------------------------------------------

# Two-way streams of messages between two servers, over NATS. Both ends are the same (`_End`).
#
# asker -> PREFIX.pipe.SERVER   a command; `reply` is the inbox of the asker
# end   -> inbox of the other   Number: a piece of a message (More: it goes on), `taken` with the cost of what was taken so far,
#                               `beat` each BEAT_S with the same, because a `taken` may be lost while NATS is away,
#                               `end` with a reason, which is empty if all is well
#
# An end has at most WINDOW on its way that the other one has not taken. No piece is sent twice: a missing one ends the stream,
# and so do SILENCE_S without a beat, and NATS's word that nobody listens any more, which comes at the next beat after a death.

log = structlog.get_logger(__name__)

BEAT_S = 1.0
"""Seconds between signs of life."""
SILENCE_S = 9.0
"""Seconds without a sign of life after which the other end counts as lost."""
OPEN_S = 5.0
"""Maximum seconds for the first sign of life of a server."""
OPEN_TRIES = 3
"""So often a stream is opened to a server that NATS does not know: it may be about to connect again."""
AGAIN_S = 0.5
"""Seconds between two of them."""
STALL_S = 20.0
"""Maximum seconds that the other end may take nothing while something waits to be sent."""
WINDOW = 256 * 2**10
"""Maximum cost of what is on its way: its bytes, and PIECE_COST for each piece."""
PIECE_BYTES = 32 * 2**10
PIECE_COST = 256
MESSAGE_BYTES = 4 * 2**20
"""Maximum bytes of a message. A longer one ends the stream."""
PIPES = 256
"""Maximum streams that a server keeps open for others."""
PARCELS = 4096
"""Maximum messages of NATS that wait to be read: more than fit in the window."""

NUMBER, MORE = "Shim-Number", "Shim-More"
TAKEN, BEAT, END = "taken", "beat", "end"


class Pipes:
    """The streams that this server opens, and those that others open to it."""

    def __init__(self, connection: Connection, layout: Layout, server_id: str) -> None:
        self._connection = connection
        self._layout = layout
        self._server_id = server_id
        self._accept: Accept | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self, server: ServerRef, command: Command) -> AsyncGenerator[_End]:
        """Open a stream to a server. Raises ServerLost, StoreError. It ends with the block."""
        async with self._connection.inbox(PARCELS) as (inbox, parcels):
            subject = self._layout.pipe_subject(server.id)
            for again in range(OPEN_TRIES):
                if again:
                    await asyncio.sleep(AGAIN_S)
                await self._connection.publish(subject, encode_command(command), reply=inbox)
                try:
                    async with asyncio.timeout(OPEN_S):
                        first = await parcels.get()
                except TimeoutError:
                    raise ServerLost(f"The server {server.label} does not answer. Try again in some seconds.") from None
                if not first.is_unheard:
                    break
            else:
                raise ServerLost(f"The server {server.label} cannot be reached. Try again in some seconds.")
            if first.headers.get(NUMBER) == END:
                raise ServerLost(f"The server {server.label} {first.data.decode(errors='replace')}.")
            async with _End(self._connection, inbox, parcels, first.reply, f"The server {server.label}").life() as end:
                yield end

    async def accept(self, accept: Accept) -> None:
        """Call a function with each stream that another server opens, from now on."""
        self._accept = accept
        await self._connection.subscribe(self._layout.pipe_subject(self._server_id), self._receive)

    async def close(self) -> None:
        """End the streams that others have opened."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _receive(self, parcel: Parcel) -> None:
        if len(self._tasks) >= PIPES:
            reason = f"has {PIPES} streams of other servers already"
            await self._connection.publish(parcel.reply, reason.encode(), {NUMBER: END})
            return
        task = asyncio.create_task(self._serve(decode_command(parcel.data), parcel.reply), name="stream of another server")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, command: Command, asker: str) -> None:
        assert self._accept is not None
        try:
            async with (
                self._connection.inbox(PARCELS) as (inbox, parcels),
                _End(self._connection, inbox, parcels, asker, "The client's server").life() as end,
            ):
                await self._accept(command, end)
        except (ServerLost, StoreError) as error:
            log.info("cluster.stream_lost", path=command.path, error=str(error))
        except Exception:  # a task that nobody awaits: its fault would be lost
            log.exception("cluster.stream_failed", path=command.path)


class _End:
    """One end of a stream. One task at a time may send, and one may receive."""

    def __init__(self, connection: Connection, inbox: str, parcels: asyncio.Queue[Parcel], other: str, label: str) -> None:
        self._connection = connection
        self._inbox = inbox
        self._parcels = parcels
        self._other = other
        self._label = label
        self._number = self._sent = self._acknowledged = 0
        self._expected, self._taken, self._reported = 1, 0, 0
        self._received: deque[tuple[bytes, bool]] = deque()
        self._changed = asyncio.Condition()
        self._is_over = False
        self._loss = ""

    @asynccontextmanager
    async def life(self) -> AsyncGenerator[_End]:
        """Keep the stream alive for the time of the block, and end it then."""
        await self._publish(BEAT, b"")
        task = asyncio.create_task(self._run(), name="keep a stream alive")
        reason = "has ended the stream"
        try:
            yield self
            reason = ""
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not self._is_over:
                with suppress(StoreError):
                    await self._publish(END, reason.encode())

    async def send(self, message: bytes) -> None:
        """Send a message. Waits while the other end does not take what was sent before. Raises ServerLost, StoreError."""
        parts = pieces(message, PIECE_BYTES)
        for index, part in enumerate(parts, 1):
            try:
                async with asyncio.timeout(STALL_S), self._changed:
                    await self._changed.wait_for(lambda: self._is_over or self._sent - self._acknowledged < WINDOW)
            except TimeoutError:
                raise ServerLost(f"{self._label} reads too slowly.") from None
            if self._is_over:
                raise PipeEnded(self._loss or f"{self._label} has ended the stream.")
            self._number += 1
            self._sent += len(part) + PIECE_COST
            await self._publish(str(self._number), part, {MORE: "1"} if index < len(parts) else {})

    async def receive(self) -> bytes | None:
        """The next message; None after the last one. Raises ServerLost, StoreError."""
        parts: list[bytes] = []
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._received or self._is_over)
            if not self._received:
                if self._loss:
                    raise ServerLost(self._loss)
                return None
            part, has_more = self._received.popleft()
            parts.append(part)
            self._taken += len(part) + PIECE_COST
            if self._taken - self._reported >= WINDOW // 4 and not self._is_over:
                self._reported = self._taken
                await self._publish(TAKEN, str(self._taken).encode())
            if not has_more:
                return b"".join(parts)
            if sum(map(len, parts)) > MESSAGE_BYTES:
                raise ServerLost(f"{self._label} has sent a message of more than {MESSAGE_BYTES} bytes.")

    async def _run(self) -> None:
        """Send beats, and sort what comes, until the stream is over."""
        now = asyncio.get_running_loop().time
        heard, beat = now(), now() + BEAT_S
        while not self._is_over:
            try:
                if now() >= beat:
                    await self._publish(BEAT, str(self._taken).encode())
                    beat = now() + BEAT_S
                async with asyncio.timeout_at(beat):
                    parcel = await self._parcels.get()
            except TimeoutError:
                if now() - heard > SILENCE_S:
                    await self._finish(f"{self._label} does not answer any more.")
                continue
            except StoreError as error:
                await self._finish(str(error))
                return
            heard = now()
            await self._take_in(parcel)

    async def _take_in(self, parcel: Parcel) -> None:
        number = parcel.headers.get(NUMBER, "")
        if parcel.is_unheard:
            await self._finish(f"{self._label} was lost.")
        elif number == END:
            reason = parcel.data.decode(errors="replace")
            await self._finish(f"{self._label} {reason}." if reason else "")
        elif number == TAKEN or (number == BEAT and parcel.data):  # without data: the first beat, and those of older versions
            async with self._changed:
                self._acknowledged = int(parcel.data)
                self._changed.notify_all()
        elif number == str(self._expected):
            async with self._changed:
                self._expected += 1
                self._received.append((parcel.data, MORE in parcel.headers))
                self._changed.notify_all()
        elif number.isdecimal():  # else a beat, or a sign of a later version
            await self._finish(f"A part of what {self._label[0].lower()}{self._label[1:]} has sent was lost on its way.")

    async def _finish(self, loss: str) -> None:
        async with self._changed:
            self._is_over, self._loss = True, loss
            self._changed.notify_all()

    async def _publish(self, number: str, payload: bytes, headers: dict[str, str] | None = None) -> None:
        """Send to the other end. `reply` makes NATS say if nobody listens."""
        await self._connection.publish(self._other, payload, {NUMBER: number, **(headers or {})}, reply=self._inbox)
