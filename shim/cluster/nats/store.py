"""The store of a cluster, in NATS JetStream. Servers on any machines share it; each session belongs to one of them.

    peers.py       what servers do for each other, and tell each other
    lanes.py       queues of writes          spool.py       those that wait on disk
    journals.py    appends, rows, checkpoints, with fencing
    reserve.py     room for deletions, when JetStream is full
    leases.py      which servers live        connection.py  requests to NATS
    layout.py      streams and subjects      batches.py     events as messages
    values.py      small values              list_image.py  the list of sessions on this machine's disk

What is acknowledged is on disk at NATS, on most of its replicas. A flushed event survives the death of this server and of a NATS
server (docs/adr/0031).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import structlog

from shim.cluster.nats.batches import Events, Reader, encode_event, envelope_of
from shim.cluster.nats.connection import NO_ROOM_KNOWN, Connection, Message, Room, StreamState
from shim.cluster.nats.journals import Delete, Journal, Journals, Release, Row, SaveCheckpoint
from shim.cluster.nats.lanes import DEFAULT_LIMITS, LaneWriter, Limits, Write
from shim.cluster.nats.layout import ClusterOptions, Layout, SessionRecord, decode_record
from shim.cluster.nats.leases import LEASE_S, Leases
from shim.cluster.nats.list_image import FILE, ListImage
from shim.cluster.nats.nats_process import EmbeddedServer
from shim.cluster.nats.pages import PageCopies
from shim.cluster.nats.peers import JetStreamPeers
from shim.cluster.nats.reserve import Reserve
from shim.cluster.nats.values import Values
from shim.cluster.peers import NodeStatus, Overview, Peers
from shim.lib.errors import LimitReached, SessionElsewhere, SessionNotFound, ShimError, StoreError, StoreFull, StoreUnavailable
from shim.store.base import Checkpoint, SessionRow
from shim.store.lock import DirectoryLock, make_directory
from shim.store.ownership import ClaimedSession, Look, LostSession, Ownership, SessionChange
from shim.store.rows import EventRow, JsonText, dump, event_of, event_rows, follow, text_of_data
from shim.store.servers import Presence, ServerRef, forget, new_server_id, present
from universal.events import UniversalEvent

log = structlog.get_logger(__name__)

READ_TRIES = 20
"""Tries to read an acknowledged event. A replica that was asked may be behind for a moment."""
READ_AGAIN_S = 0.05
"""Seconds between two of them."""
START_S = 60.0
"""Seconds that a start waits for NATS servers that have no leader yet: they may have started at the same moment."""
START_AGAIN_S = 1.0
"""Seconds between two tries."""
MEASURE_S = 10.0
"""Seconds between two looks at how much the streams take."""
MAKE_ROOM = "Delete sessions, or remove old ones with `opencode-shim cluster prune`."
VALUES_LANE = ""
"""The lane of small values. Other lanes are ids of sessions."""


@dataclass(frozen=True, slots=True)
class _Value:
    """The entry of a small value to write."""

    subject: str
    payload: bytes
    is_removed: bool


@dataclass(slots=True)
class _LocalPresence:
    """The marks of this server in its data directory, by which programs and later servers of the machine find it."""

    directory: Path
    lock: DirectoryLock
    presence: Presence
    dead: tuple[str, ...]

    @classmethod
    def enter(cls, directory: Path, server_id: str) -> _LocalPresence:
        """Share the data directory. Blocking. Raises StoreError."""
        make_directory(directory)
        lock, presence = DirectoryLock(directory), Presence(directory, server_id)
        if lock.join():
            lock.share()
        dead = present(directory).dead
        try:
            presence.enter()
        except StoreError:
            lock.release()
            raise
        return cls(directory, lock, presence, dead)

    def leave(self) -> None:
        """Remove the marks. Blocking."""
        self.presence.leave()
        self.lock.release()


@dataclass(slots=True)
class _OpenStore:
    """The parts of an open store.

    seen    number of the last entry of a session that `look` has read
    state   the bucket of sessions, as NATS told it last
    image   the list of sessions on this machine's disk
    owners  session -> id of the server that owns it, of entries that were read
    room    what the streams take on the disk of NATS; `measured_s`: the time of the loop of that
    ended   servers that have ended, lost: sessions that were taken from us, back: servers that live again; for the next `look`
    """

    connection: Connection
    leases: Leases
    journals: Journals
    lanes: LaneWriter
    pages: PageCopies
    peers: JetStreamPeers
    values: Values
    lost: list[Journal]
    local: _LocalPresence | None
    reserve: Reserve
    image: ListImage
    state: StreamState
    seen: int = 0
    owners: dict[str, str] = field(default_factory=dict[str, str])
    ended: list[str] = field(default_factory=list[str])
    back: set[str] = field(default_factory=set[str])
    room: Room = NO_ROOM_KNOWN
    measured_s: float = -MEASURE_S

    def note(self, record: SessionRecord, revision: int) -> None:
        """Note who owns a session, and how far its journal has come, unless this server has written a later entry."""
        journal = self.journals.find(record.session_id)
        if journal is not None and journal.revision > revision:
            return
        if record.is_deleted:
            self.owners.pop(record.session_id, None)
        else:
            self.owners[record.session_id] = record.owner
            self.journals.note_last(record.session_id, record.last, record.size)


class JetStreamStore(Ownership):
    """A `Store` in NATS JetStream, and the `Ownership` of its sessions.

    In: `directory`, the data directory of this machine, in which the server is announced and its spool lies; None: it is not
    announced, and the spool lies in the directory for temporary files. `embedded`: a NATS
    server to start at `open` and end at `close`. `name`: what people call this server.

    Call it from the event loop that opened it. Writes never wait; reads see all earlier writes of this server.
    """

    sessions_move = True

    def __init__(
        self,
        options: ClusterOptions,
        *,
        directory: Path | None = None,
        limits: Limits = DEFAULT_LIMITS,
        lease_s: float = LEASE_S,
        embedded: EmbeddedServer | None = None,
        name: str = "",
    ) -> None:
        self.options = options
        self._embedded = embedded
        self._name = name
        self.layout = Layout(options.prefix, lease_s)
        self.server_id = new_server_id()
        self._directory = directory
        self._limits = limits
        self._lease_s = lease_s
        self._opened: _OpenStore | None = None
        self._is_opening = False

    @property
    def ownership(self) -> Ownership:
        """The ownership of sessions among the servers of the cluster."""
        return self

    @property
    def peers(self) -> Peers:
        """The other servers of the cluster."""
        return self._use().peers

    @property
    def failure(self) -> str | None:
        """Why writes fail at present, or None. For health reports."""
        failure = self._opened.lanes.failure if self._opened else None
        return str(failure) if failure else None

    @property
    def pending(self) -> int:
        """Number of queued rows that NATS has not acknowledged."""
        return self._opened.lanes.pending if self._opened else 0

    # --- opening -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, create the streams that are missing, and take a lease."""
        if self._is_opening:
            raise StoreError(f"The store in NATS at {self.options.address} is open already.")
        self._is_opening = True
        try:
            if self._embedded is not None:
                await self._embedded.start()
                self.options = replace(self.options, servers=(self._embedded.url,), secret=self._embedded.token)
            self._opened = await _when_led(self._open)
        except BaseException:  # a cancelled start leaves nothing behind
            self._is_opening = False
            if self._embedded is not None:
                await self._embedded.stop()
            raise

    async def _open(self) -> _OpenStore:
        name = f"opencode-shim {self.server_id}"
        connection, local = Connection(self.options, name), None
        leases = Leases(connection, self.layout, self.server_id, self._lease_s, self._name)
        pages, reserve = PageCopies(), Reserve(connection, self.layout)
        lost: list[Journal] = []
        lanes = LaneWriter(self._commit, self._limits, self._directory)
        journals = Journals(
            connection,
            self.layout,
            self.server_id,
            pages,
            find_server=leases.find,
            on_lost=lost.append,
            is_queued=lanes.has_events,
            reserve=reserve,
        )
        values = Values(connection, self.layout, self.server_id)
        peers = JetStreamPeers(
            connection,
            self.layout,
            leases,
            self.server_id,
            journals,
            lambda session_id: self._use().owners.get(session_id),
            lambda: _overview(self._use(), self.server_id),
            lanes.has_writes,
        )
        try:
            await connection.open()
            await connection.prepare(self.layout)
            if self._directory is not None:
                local = await asyncio.to_thread(_LocalPresence.enter, self._directory, self.server_id)
                for server_id in local.dead:  # the kernel says that it is dead: its lease need not be waited for
                    await leases.end(server_id)
            with suppress(StoreFull):  # then it is filled as soon as there is room
                await reserve.fill()
            state = await connection.state(self.layout.sessions)
            await values.open()
            await leases.start()
        except BaseException:  # a cancelled start leaves nothing behind
            if local is not None:
                await asyncio.to_thread(local.leave)
            await connection.close()
            pages.close()
            raise
        parts = connection, leases, journals, lanes, pages, peers, values, lost, local, reserve
        return _OpenStore(*parts, ListImage(self._directory and self._directory / FILE), state, state.last)

    async def close(self) -> None:
        """Write what is queued, give up the lease, and disconnect. May be called again. Raises StoreError if rows were lost."""
        opened = self._opened
        if opened is None:
            return
        try:
            await opened.peers.close()
            await opened.lanes.close()
            await opened.journals.close()
        finally:
            await opened.leases.stop()
            await opened.connection.close()  # its last messages still find the store open
            self._opened, self._is_opening = None, False
            opened.pages.close()
            await opened.image.save(opened.state)
            opened.image.close()
            if opened.local is not None:
                await asyncio.to_thread(opened.local.leave)
            if self._embedded is not None:
                await self._embedded.stop()

    def _use(self) -> _OpenStore:
        if self._opened is None:
            raise StoreError(f"The store in NATS at {self.options.address} is not open. This is a bug of the server.")
        return self._opened

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, events: Sequence[UniversalEvent]) -> None:
        """Queue events, all or none. Events of a session that another server has taken are dropped: `look` reports it."""
        opened = self._use()
        opened.lanes.need_room(len(events))
        journals = {event.session_id: opened.journals.get(event.session_id) for event in events}
        kept = [event for event in events if journals[event.session_id].lost_to is None]
        new = follow({session_id: journal.last for session_id, journal in journals.items()}, kept)
        encoded = [(row.session_id, row.sequence, encode_event(row)) for row in event_rows(kept)]
        opened.lanes.need_room(len(encoded), sum(len(event) for _, _, event in encoded))
        for session_id, run in groupby(encoded, key=lambda event: event[0]):
            texts = list(run)
            write = Events(texts[0][1], tuple(event for _, _, event in texts))
            opened.lanes.put(session_id, [Write(write, len(texts), sum(len(event) for _, _, event in texts))])
        for session_id, last in new.items():
            journals[session_id].last = last

    def save_session(self, row: SessionRow) -> None:
        """Queue an insert or update. It is written at once, because it is the end of a turn or a client's answer."""
        opened = self._use()
        data = dump(dict(row.data), f"session {row.id}")
        size = 1024 + len(data.encode()) + len(row.directory.encode("utf-8", "surrogatepass"))
        _need_message(opened.connection, size, f"session {row.id}")
        if opened.journals.get(row.id).lost_to is None:
            copy = row._replace(data=json.loads(data))  # the caller may change its own before it is written
            opened.lanes.put(row.id, [Write(Row(copy), 1, size)], at_once=True)

    def delete_session(self, session_id: str) -> None:
        """Queue the removal of a session, its journal and its checkpoint. An unknown id is ignored."""
        opened = self._use()
        opened.lanes.put(session_id, [Write(Delete(), 1, 64)])
        opened.journals.get(session_id).last = 0

    def save_checkpoint(
        self, session_id: str, checkpoint: Checkpoint, pages: Mapping[int, bytes], dropped: Collection[int] = ()
    ) -> None:
        """Queue a checkpoint, after all earlier writes of the session."""
        opened = self._use()
        size = len(checkpoint.head) + sum(map(len, pages.values()))
        if opened.journals.get(session_id).lost_to is None:
            write = SaveCheckpoint(checkpoint, dict(pages), frozenset(dropped))
            opened.lanes.put(session_id, [Write(write, 1 + len(pages), size)])

    def set_value(self, namespace: str, key: str, value: Any) -> None:
        """Queue a small value; None removes it."""
        opened = self._use()
        payload = opened.values.encode(namespace, key, value)
        _need_message(opened.connection, len(payload), f"value {namespace}/{key}")
        write = _Value(self.layout.value_key(namespace, key), payload, value is None)
        opened.lanes.put(VALUES_LANE, [Write(write, 1, 64 + len(payload))])

    async def flush(self, session_id: str | None = None) -> None:
        """Wait until NATS has acknowledged all that is queued, or all of one session. Raises StoreError, SessionElsewhere."""
        opened = self._use()
        journal = None if session_id is None else opened.journals.find(session_id)
        if journal is not None and journal.lost_to is not None:
            raise SessionElsewhere(journal.session_id, journal.lost_to)
        await opened.lanes.flush(session_id)

    async def require_writable(self, session_id: str) -> None:
        """Flush the session: only the answer of NATS tells whether another server has taken it.

        Raises StoreUnavailable while NATS is away, StoreFull while it has no room, LimitReached beyond a bound of the operator:
        what is refused then is not done later.
        """
        opened, options = self._use(), self.options
        opened.connection.need()
        await opened.reserve.need()
        if options.max_bytes is not None and opened.room.used >= options.max_bytes:
            raise LimitReached("cluster_max_bytes", options.max_bytes, f"All sessions take {opened.room.used} bytes. {MAKE_ROOM}")
        if options.max_session_bytes is not None and (size := self.size_of(session_id) or 0) >= options.max_session_bytes:
            problem = f"The journal of session {session_id} has {size} bytes. Go on in a new session."
            raise LimitReached("cluster_max_session_bytes", options.max_session_bytes, problem)
        await self.flush(session_id)

    def room(self) -> Awaitable[None] | None:
        """None, or an awaitable while the lanes are half full."""
        return _until_written(self) if self._opened is not None and self._opened.lanes.is_crowded else None

    async def _commit(self, key: str, writes: Sequence[Write]) -> int:
        opened = self._use()
        if key != VALUES_LANE:
            return await opened.journals.commit(key, writes)
        value: _Value = writes[0].what
        await opened.values.write(value.subject, value.payload, is_removed=value.is_removed)
        return 1

    # --- reading -----------------------------------------------------------------------------------------------------

    async def sessions(self) -> list[SessionRow]:
        """All rows. The first time, those that this machine's disk has are not read from NATS."""
        opened = self._use()
        await opened.lanes.flush()
        try:
            found, last = await _read_sessions(opened, self.layout)
        except BaseException:  # also a cancelled start: the image lacks what was not read, and later looks do not tell it
            opened.image.close()
            raise
        opened.seen = min(opened.seen, last)  # a replica may be behind: what it has not shown is for the next look
        return list(found.values())

    async def events(self, session_id: str, after: int = 0, limit: int | None = None) -> list[UniversalEvent]:
        """The journal from `after` on, at most `limit` events."""
        return [event_of(row) for row in await self.rows(session_id, after, limit)]

    async def brief(self, session_id: str, after: int, limit: int) -> list[EventRow]:
        """The journal without raw payloads."""
        return await self.rows(session_id, after, limit, with_raw=False)

    async def rows(self, session_id: str, after: int = 0, limit: int | None = None, *, with_raw: bool = True) -> list[EventRow]:
        """The journal as stored texts. Raises SessionNotFound for a session that was deleted meanwhile."""
        opened = self._use()
        after = max(after, 0)
        if limit is not None and limit <= 0:
            return []
        await opened.lanes.flush(session_id)
        journal = opened.journals.get(session_id)
        for _ in range(READ_TRIES):
            found = await self._read_rows(journal, after, limit, with_raw=with_raw)
            first = found[0].sequence if found else after + 1
            wanted = min(journal.stored, journal.last) if limit is None else min(journal.stored, journal.last, after + limit)
            if first == after + 1 and after + len(found) >= wanted:
                if found and found[-1].sequence != after + len(found):
                    break
                return found
            journal.starts.clear()  # it was deleted and created anew meanwhile, or a replica is behind
            await asyncio.sleep(READ_AGAIN_S)
        await opened.journals.need_entry(session_id)
        raise StoreError(
            f"Events of session {session_id} after {after} are not in the stream {self.layout.journal.name} of NATS at "
            f"{self.options.address}. Nothing was changed. Look at the stream, and restore it from a backup."
        )

    async def _read_rows(self, journal: Journal, after: int, limit: int | None, *, with_raw: bool) -> list[EventRow]:
        opened, subject = self._use(), self.layout.journal_subject(journal.session_id)
        connection, peers = opened.connection, opened.peers
        reader, found = Reader(journal.session_id, with_raw=with_raw), list[EventRow]()
        _, start = journal.starts.find(after)
        has_more = True
        while has_more:
            page = await connection.read(self.layout.journal, subject, start)
            for message in page.messages:
                envelope = envelope_of(message.data)
                if envelope.part == 0 and envelope.last >= envelope.first:
                    journal.starts.add(envelope.first - 1, message.sequence)
                rows = reader.rows(message.data, after)
                found += rows
                start = message.sequence + 1
                if rows:
                    journal.starts.note_end(rows[-1].sequence, start)
                peers.note_read(journal.session_id, envelope, message.sequence)
                if limit is not None and len(found) >= limit:
                    return found[:limit]
            has_more = page.has_more and bool(page.messages)
        return found

    def last_sequence(self, session_id: str) -> int:
        """Number of events in its journal, including queued ones. Of another server's session: as last read."""
        return self._use().journals.last_of(session_id)

    def size_of(self, session_id: str) -> int | None:
        """As `Ownership.size_of`."""
        return self._use().journals.sizes.get(session_id)

    async def values(self, namespace: str) -> dict[str, Any]:
        """All values of a namespace."""
        opened = self._use()
        await opened.lanes.flush(VALUES_LANE)
        return await opened.values.read(namespace)

    async def namespaces(self) -> list[str]:
        """The namespaces that have values."""
        opened = self._use()
        await opened.lanes.flush(VALUES_LANE)
        return await opened.values.namespaces()

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        """The newest checkpoint, with the numbers of its pages. None, too, if a part of it is gone."""
        opened = self._use()
        await opened.lanes.flush(session_id)
        journal = opened.journals.get(session_id)
        async with journal.copying:
            manifest = await opened.journals.load_manifest(journal)
            if manifest is None or (head := await opened.journals.read_blob(manifest.head)) is None:
                return None
            await opened.journals.copy_pages(session_id, manifest)
        return Checkpoint(manifest.sequence, head, frozenset(manifest.pages))

    def checkpoint_page(self, session_id: str, number: int) -> bytes | None:
        """A page of the checkpoint, of its copy on this machine."""
        return self._use().pages.find(session_id, number)

    # --- ownership ---------------------------------------------------------------------------------------------------

    def announce(self, url: str) -> None:
        """Tell the other servers and the user's programs where this server listens."""
        opened = self._use()
        opened.leases.announce(url)
        if opened.local is not None:
            opened.local.presence.announce(url)

    def is_shared(self) -> bool:
        """Whether other servers lived at the last look."""
        return self._use().leases.is_shared()

    async def claim(self, session_id: str) -> ClaimedSession | ServerRef:
        """Claim a session for this server, or return the living server that owns it. Raises SessionNotFound."""
        opened = self._use()
        with suppress(ShimError):  # of an earlier ownership: they end before the next one begins
            await opened.lanes.flush(session_id)
        journal, owner = opened.journals.find(session_id), opened.owners.get(session_id)
        epoch = journal.record.epoch if journal is not None and journal.is_ours and journal.record is not None else 0
        try:
            claimed = await opened.journals.claim(session_id)
        except (StoreError, SessionNotFound):  # perhaps in the middle of it, or deleted
            opened.owners.pop(session_id, None)
            raise
        if isinstance(claimed, ServerRef):
            if opened.owners.get(session_id) == owner:  # else a look has seen a later one
                opened.owners[session_id] = claimed.id
            return claimed
        opened.owners[session_id] = self.server_id
        is_news = claimed.record is not None and claimed.record.epoch != epoch
        return ClaimedSession(claimed.record.row if claimed.record is not None and is_news else None)

    async def release(self, session_id: str) -> None:
        """Give a session of this server to whoever claims it next, after all its writes. Raises StoreError, SessionElsewhere."""
        lanes = self._use().lanes
        lanes.put(session_id, [Write(Release(), 1, 64)], at_once=True)
        await lanes.flush(session_id)

    def confirm_loss(self, session_id: str) -> None:
        """Note that nothing here works on a lost session any more."""
        self._use().journals.confirm_loss(session_id)

    async def owners(self) -> dict[str, ServerRef]:
        """Session -> the other living server that owns it."""
        opened = self._use()
        if not opened.owners:
            await self.sessions()
        ended = await opened.leases.look()
        opened.ended += ended
        living = opened.leases.live_servers
        return {
            session_id: living[owner]
            for session_id, owner in opened.owners.items()
            if owner in living and owner != self.server_id
        }

    async def refresh(self, session_id: str) -> None:
        """Update `last_sequence` for another server's journal."""
        opened = self._use()
        message = await opened.connection.last(self.layout.journal, self.layout.journal_subject(session_id))
        opened.journals.note_last(session_id, 0 if message is None else envelope_of(message.data).stored_last)

    async def look(self) -> Look:
        """The changes by other servers since the last look, and the sessions that they have taken."""
        opened = self._use()
        before = opened.leases.live_servers.keys()
        ended = await opened.leases.look()
        opened.ended += ended
        opened.back |= opened.leases.live_servers.keys() - before - {self.server_id}
        messages = await self._use().connection.read_all(self.layout.sessions, self.layout.sessions.subjects, opened.seen + 1)
        values = tuple(await opened.values.changes())
        if (now := asyncio.get_running_loop().time()) >= opened.measured_s + MEASURE_S:
            opened.measured_s = now
            with suppress(StoreError):  # perhaps the account may not ask
                opened.room = await opened.connection.room()
                opened.state = await opened.connection.state(self.layout.sessions)
        changes = [change for message in messages if (change := _change_of(opened, self.server_id, message)) is not None]
        if opened.image.is_due:
            await opened.image.save(opened.state)
        lost = tuple(journal for journal in opened.lost if journal.lost_to is not None)
        all_ended = tuple(opened.ended)
        opened.lost.clear()
        opened.ended.clear()
        back = _sessions_of(opened)
        return Look(
            tuple(changes), all_ended, tuple([await _lost_session(opened.journals, journal) for journal in lost]), values, back
        )

    def dead(self) -> tuple[str, ...]:
        """Ids of servers on this data directory that were dead at this server's start."""
        local = self._use().local
        return () if local is None else local.dead

    def forget(self, server_id: str) -> None:
        """Forget a dead server, of which nothing is left on this machine. Blocking."""
        if self._directory is not None:
            forget(self._directory, server_id)


async def _read_sessions(opened: _OpenStore, layout: Layout) -> tuple[dict[str, SessionRow], int]:
    """All rows by session, and the number of the last entry that was read."""
    found: dict[str, SessionRow] = {}
    last, listed = await opened.image.load(opened.state)
    while listed:
        owner, end, size, row = listed.pop()
        found[row.id] = row
        if opened.journals.find(row.id) is None:
            opened.owners[row.id] = owner
            opened.journals.note_last(row.id, end, size)
    async for message in opened.connection.messages(layout.sessions, layout.sessions.subjects, last + 1):
        record, last = decode_record(message.data), message.sequence
        if (row := record.row) is not None:  # not all are in memory decoded
            record = replace(record, row=row._replace(data=JsonText(text_of_data(row), row.id)))
        opened.note(record, last)
        opened.image.note(message, record)
        if opened.image.is_due:
            await opened.image.save(opened.state)
        if record.row is not None and not record.is_deleted:
            found[record.session_id] = record.row
        else:
            found.pop(record.session_id, None)
    return found, last


def _change_of(opened: _OpenStore, server_id: str, message: Message) -> SessionChange | None:
    """What an entry says, if another server has written it and there is something to show, or if it is a deletion."""
    opened.seen = max(opened.seen, message.sequence)
    record = decode_record(message.data)
    opened.image.note(message, record)
    journal = opened.journals.find(record.session_id)
    is_own = record.owner == server_id  # a deletion may have waited while another server had the session: it is listed again
    if (is_own and not record.is_deleted) or (journal is not None and journal.revision > message.sequence):
        return None
    owner = opened.leases.live_servers.get(record.owner, ServerRef(record.owner))
    if not is_own and journal is not None and journal.is_ours:
        opened.journals.lose(journal, owner)
    elif not is_own and record.is_deleted:
        opened.journals.forget(record.session_id)
    opened.note(record, message.sequence)
    has_news = record.is_deleted or record.row is not None
    return SessionChange(record.session_id, owner, record.row, record.last) if has_news else None


def _overview(opened: _OpenStore, server_id: str) -> Overview:
    """The cluster as the server of this store sees it."""
    connection, leases, journals, peers = opened.connection, opened.leases, opened.journals, opened.peers
    counts = Counter(opened.owners.values())
    others = (
        NodeStatus(node, is_here=False, sessions=counts[node.ref.id], lease_age_s=leases.age_s(node.ref.id))
        for node in sorted(peers.nodes(), key=lambda node: (node.ref.label, node.ref.id))
    )
    here = NodeStatus(leases.here, is_here=True, sessions=journals.owned_count, lease_age_s=leases.age_s(server_id))
    return Overview(
        address=connection.options.address,
        prefix=connection.options.prefix,
        is_connected=connection.is_connected,
        is_full=opened.reserve.is_spent,
        used_bytes=opened.room.used,
        limit_bytes=min(filter(None, (opened.room.limit, connection.options.max_bytes)), default=0),
        largest_bytes=max(journals.sizes.values(), default=0),
        reconnects=connection.reconnects,
        waiting=opened.lanes.pending,
        spooled_bytes=opened.lanes.spooled_bytes,
        nodes=(here, *others),
        renewals=dict(leases.renewals),
        append_s=journals.append_s,
        refused_appends=journals.refused_appends,
        asked=dict(peers.commands.asked),
        answer_s=peers.commands.answer_s,
    )


def _sessions_of(opened: _OpenStore) -> tuple[tuple[str, ServerRef], ...]:
    """The sessions of the servers that are back, for one look."""
    servers = {id_: server for id_, server in opened.leases.live_servers.items() if id_ in opened.back}
    opened.back.clear()
    return tuple((id_, servers[owner]) for id_, owner in opened.owners.items() if owner in servers) if servers else ()


async def _lost_session(journals: Journals, journal: Journal) -> LostSession:
    """What a look says of a lost session."""
    owner, stored = journal.lost_to or ServerRef(""), journal.lost_at
    with suppress(StoreError):  # then clients here may get the last events again
        stored = await journals.last_of_ours(journal)
    return LostSession(journal.session_id, owner, stored)


def _need_message(connection: Connection, size: int, what: str) -> None:
    """Raise StoreError for what is larger than a message."""
    limit = connection.message_bytes
    if size > limit:
        raise StoreError(f"Cannot store {what}: it has {size} bytes, and a message in NATS at most {limit}. Raise max_payload.")


async def _until_written(store: JetStreamStore) -> None:
    with suppress(StoreError):  # reported by every flush that needs it
        await store.flush()


async def _when_led(open_store: Callable[[], Awaitable[_OpenStore]]) -> _OpenStore:
    """Open a store as soon as JetStream has a leader, within START_S."""
    loop = asyncio.get_running_loop()
    until = loop.time() + START_S
    while True:
        try:
            return await open_store()
        except StoreUnavailable as error:
            if loop.time() >= until:
                raise
            log.warning("cluster.start_waits", seconds_left=round(until - loop.time()), reason=str(error))
        await asyncio.sleep(START_AGAIN_S)
