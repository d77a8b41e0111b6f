"""Writes sessions to JetStream: journals, rows and checkpoints, each refused if this server has lost the session.

    journal      an append names the last message that its writer knows. A new owner appends a claim first; later appends of the
                 owner before are refused.
    row          the entry of a session names its owner and epoch; it is replaced only in the revision that its owner wrote.
    checkpoint   the parts first, then the entry that names them, in the revision that its owner wrote.

A refused append whose message is there already was acknowledged to nobody: it counts as done.

A deletion is final: its entry stays for a while, and only the first events of a new session pass it. A claim does not, nor does a
row or a checkpoint that was written behind the deletion.

While NATS is asked, events are queued, and other requests ask about the same session. So what was read before an `await` is not
written back after it: `last` belongs to the queue as long as it has events, and a session changes its owner under a lock.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from time import monotonic

import structlog

from shim.cluster.nats.batches import Batch, Envelope, Events, batches, claim, envelope_of
from shim.cluster.nats.connection import Connection, WrongSequence
from shim.cluster.nats.lanes import LaneClosed, Write
from shim.cluster.nats.layout import (
    Layout,
    Manifest,
    SessionRecord,
    decode_manifest,
    decode_record,
    encode_manifest,
    encode_record,
)
from shim.cluster.nats.pages import PageCopies
from shim.cluster.nats.reserve import Reserve
from shim.lib.errors import SessionElsewhere, SessionNotFound, StoreError, StoreFull
from shim.store.base import Checkpoint, SessionRow
from shim.store.servers import ServerRef
from shim.telemetry.meters import Histogram

log = structlog.get_logger(__name__)

TRIES = 8
"""Tries to write where somebody else writes at the same moment."""
RETRY_S = 0.05
"""Seconds between two of them."""
DELETED_S = 86_400
"""Seconds that the entry of a deleted session stays, so that other servers see it."""
STARTS = 512
"""Maximum places of a journal that are kept, from which it can be read."""
PAGES_AT_ONCE = 16
"""Pages of a checkpoint that are read at the same time."""
GATHER_S = 0.25
"""Seconds in which words for servers without readers are gathered. Each costs them a tenth then of what a message does."""
START_EVENTS = 64
"""Minimum events between two of them."""
APPEND_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper bounds of the buckets for the seconds of an append."""


@dataclass(frozen=True, slots=True)
class Row:
    """The row to save."""

    row: SessionRow


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """A checkpoint to save in place of the one before."""

    checkpoint: Checkpoint
    pages: Mapping[int, bytes]
    dropped: Collection[int]


@dataclass(frozen=True, slots=True)
class Delete:
    """The removal of a session."""


@dataclass(frozen=True, slots=True)
class Release:
    """The end of this server's ownership. The session belongs to nobody until a server claims it."""


class Starts:
    """Places of a journal from which it can be read: a message, and the last event before it."""

    def __init__(self) -> None:
        self._befores: list[int] = []
        self._positions: list[int] = []
        self._end = (0, 0)

    def note_end(self, before: int, position: int) -> None:
        """Note where the last read ended. Who follows a journal as it grows goes on there."""
        self._end = (before, position)

    def add(self, before: int, position: int) -> None:
        """Note a message. Those that are close to another one are left out."""
        at = bisect_right(self._befores, before)
        if at and before - self._befores[at - 1] < START_EVENTS:
            return
        self._befores.insert(at, before)
        self._positions.insert(at, position)
        if len(self._befores) > STARTS:
            del self._befores[1::2], self._positions[1::2]

    def find(self, after: int) -> tuple[int, int]:
        """The best place to read the events after a sequence: the last event before it, and the message's number."""
        at = bisect_right(self._befores, after)
        best = (self._befores[at - 1], self._positions[at - 1]) if at else (0, 0)
        return self._end if best[0] < self._end[0] <= after else best

    def clear(self) -> None:
        """Forget all places."""
        self._end = (0, 0)
        self._befores.clear()
        self._positions.clear()


@dataclass(slots=True, eq=False)
class Journal:
    """What this server knows of a session.

    last      sequence of the last event, with queued ones
    stored    sequence of the last acknowledged event
    position  number of the journal's last message, of a session of ours
    revision  number of the last entry that this server has written or read as its own, also when the session is not ours any more
    is_new    its entry was made here, and nothing was appended
    is_deleted  it is deleted, and this server has no new session of this id
    lost_to   the server that has taken it from us
    lost_at   the last event that was acknowledged to us then
    owning    held while this server takes the session or gives it away
    copying   held while the checkpoint is replaced, or copied to this machine
    """

    session_id: str
    last: int = 0
    stored: int = 0
    position: int = 0
    record: SessionRecord | None = None
    revision: int = 0
    is_ours: bool = False
    is_new: bool = False
    is_deleted: bool = False
    lost_to: ServerRef | None = None
    lost_at: int = 0
    manifest: Manifest | None = None
    manifest_revision: int | None = None
    starts: Starts = field(default_factory=Starts)
    owning: asyncio.Lock = field(default_factory=asyncio.Lock)
    copying: asyncio.Lock = field(default_factory=asyncio.Lock)


class Journals:
    """The sessions that this server writes.

    pages        copies of pages on this machine
    find_server  the server with an id if it lives, or None
    on_lost      called once for a session that was taken from us
    is_queued    whether events of a session wait to be written
    reserve      room for entries of sessions where events have none
    """

    def __init__(
        self,
        connection: Connection,
        layout: Layout,
        server_id: str,
        pages: PageCopies,
        *,
        find_server: Callable[[str], Awaitable[ServerRef | None]],
        on_lost: Callable[[Journal], None],
        is_queued: Callable[[str], bool],
        reserve: Reserve,
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._server_id = server_id
        self._pages = pages
        self._find_server = find_server
        self._on_lost = on_lost
        self._is_queued = is_queued
        self._reserve = reserve
        self._journals: dict[str, Journal] = {}
        self._lasts: dict[str, int] = {}
        """Session of which nothing else is known -> the last event of its journal. Most sessions of a cluster are such."""
        self.sizes: dict[str, int] = {}
        """Session -> bytes of its journal, as its last entry says; of ours as they are."""
        self._words: list[Sequence[object]] = []
        """What servers without readers are not told yet."""
        self._gathering: asyncio.Task[None] | None = None
        self.append_s = Histogram(APPEND_BUCKETS_S)
        """Seconds until an append was acknowledged."""
        self.refused_appends = 0

    @property
    def owned_count(self) -> int:
        """Number of sessions that are ours."""
        return sum(journal.is_ours for journal in self._journals.values())

    def find(self, session_id: str) -> Journal | None:
        """What is known of a session, or None."""
        return self._journals.get(session_id)

    def get(self, session_id: str) -> Journal:
        """What is known of a session; new if nothing is."""
        journal = self._journals.get(session_id)
        if journal is None:
            last = self._lasts.pop(session_id, 0)
            journal = self._journals[session_id] = Journal(session_id, last, last)
        return journal

    def last_of(self, session_id: str) -> int:
        """The last event of a session, with queued ones; of another server's session as last read. 0 for an unknown one."""
        journal = self._journals.get(session_id)
        return self._lasts.get(session_id, 0) if journal is None else journal.last

    def epoch_of(self, session_id: str) -> int:
        """The number of this server's ownership of a session; 1 for a new session."""
        journal = self._journals.get(session_id)
        return 1 if journal is None or journal.record is None else journal.record.epoch

    def note_last(self, session_id: str, last: int, size: int = 0) -> None:
        """Note how far the journal of a session has come, unless it is ours or is about to be, and its bytes (0: not counted)."""
        if size:
            self.sizes[session_id] = size
        journal = self._journals.get(session_id)
        if journal is None:
            self._lasts[session_id] = max(last, self._lasts.get(session_id, 0))
        elif not (journal.is_ours or self._is_queued(session_id)):
            journal.last = journal.stored = max(journal.stored, last)

    def forget(self, session_id: str) -> None:
        """Forget a session that another server has deleted, unless it is created anew here at this moment.

        One that was lost is forgotten when its loss is confirmed: until then what is written to it must not make it anew.
        """
        journal = self.find(session_id)
        if journal is not None and journal.lost_to is not None:
            journal.is_deleted = True
            return
        if journal is not None and (journal.owning.locked() or self._is_queued(session_id)):
            return
        self._pages.remove(session_id)
        self._lasts.pop(session_id, None)
        self.sizes.pop(session_id, None)
        self._journals.pop(session_id, None)

    async def need_entry(self, session_id: str) -> None:
        """Raise SessionNotFound for a session that is deleted or was never there."""
        message = await self._connection.last(self._layout.sessions, self._layout.session_key(session_id))
        if message is None or decode_record(message.data).is_deleted:
            raise SessionNotFound(session_id)

    # --- owning --------------------------------------------------------------------------------------------------

    async def claim(self, session_id: str) -> Journal | ServerRef:
        """Make a session ours and return what is stored of it, or the living server that owns it. Raises SessionNotFound."""
        journal = self.get(session_id)
        async with journal.owning:
            if journal.is_ours:
                return journal
            try:
                claimed = await self._claim(journal)
            except SessionNotFound:
                if not self._is_queued(session_id):
                    journal.last = journal.stored = 0
                raise
            if claimed is journal and not self._is_queued(session_id):
                journal.last = journal.stored
            return claimed

    async def _claim(self, journal: Journal, *, is_creation: bool = False) -> Journal | ServerRef:
        """As `claim`. Raises SessionNotFound for a session that is deleted or was never there, unless it `is_creation`."""
        session_id = journal.session_id
        for _ in range(TRIES):
            message = await self._connection.last(self._layout.sessions, self._layout.session_key(session_id))
            record = None if message is None else decode_record(message.data)
            is_new = record is None or record.is_deleted
            if is_new and not is_creation:
                raise SessionNotFound(session_id)
            if record is not None and not is_new and record.owner != self._server_id:
                owner = await self._find_server(record.owner) if record.owner else None
                if owner is not None:
                    return owner
            epoch = 1 if record is None else record.epoch + 1
            row = None if record is None or is_new else record.row
            last, size = (0, 0) if is_new or record is None else (record.last, record.size)
            ours = SessionRecord(session_id, self._server_id, epoch, last, row, size=size)
            try:
                revision = await self._write_record(ours, 0 if message is None else message.sequence)
            except WrongSequence:
                await asyncio.sleep(RETRY_S)
                continue
            if await self._take(journal, ours, revision, is_new=is_new):
                return journal
            await asyncio.sleep(RETRY_S)
        raise StoreError(f"Session {session_id} could not be claimed: other servers write to it all the time. Try again.")

    async def _take(self, journal: Journal, record: SessionRecord, revision: int, *, is_new: bool) -> bool:
        """Fence the owner before, and note what is stored. False if a later owner has come meanwhile."""
        if is_new:
            journal.starts.clear()
            journal.position = journal.stored = 0
        elif not await self._fence(journal, record):
            return False
        self.sizes[journal.session_id] = record.size
        journal.record, journal.revision, journal.lost_to = record, revision, None
        journal.is_new, journal.manifest, journal.manifest_revision = is_new, None, None
        journal.is_ours, journal.is_deleted = True, False
        return True

    async def _fence(self, journal: Journal, record: SessionRecord) -> bool:
        """Append the claim. False if the journal has that of a later owner: this server was paused, and its lease has ended."""
        subject = self._layout.journal_subject(journal.session_id)
        for _ in range(TRIES):
            message = await self._connection.last(self._layout.journal, subject)
            envelope = None if message is None else envelope_of(message.data)
            if envelope is not None and envelope.epoch > record.epoch:
                return False
            last = 0 if envelope is None else envelope.stored_last
            marker = claim(self._server_id, record.epoch, last)
            try:
                sequence = 0 if message is None else message.sequence
                journal.position = await self._connection.append(subject, marker.payload, after=sequence)
            except WrongSequence:
                await asyncio.sleep(RETRY_S)  # NATS works on a message of the owner before
                continue
            journal.stored = last
            await self._announce_growth(journal, marker.envelope, journal.position)
            return True
        raise StoreError(f"Session {journal.session_id} could not be claimed: its owner still writes. Try again.")

    async def _create(self, journal: Journal, what: object) -> None:
        """Create the entry of a new session. Raises LaneClosed if another server has it, or it is deleted and `what` goes on."""
        record = SessionRecord(journal.session_id, self._server_id, 1)
        try:
            await self._take(journal, record, await self._write_record(record, 0), is_new=True)
        except WrongSequence:
            message = await self._connection.last(self._layout.sessions, self._layout.session_key(journal.session_id))
            stored = None if message is None else decode_record(message.data)
            is_begin = isinstance(what, Events) and what.first == 1
            if stored is not None and (not is_begin if stored.is_deleted else stored.owner != self._server_id):
                raise self._lose(journal, await self._find_server(stored.owner) or ServerRef(stored.owner)) from None
            await self._claim(journal, is_creation=True)

    async def _write_record(self, record: SessionRecord, revision: int, expires_s: int = 0) -> int:
        key, encoded = self._layout.session_key(record.session_id), encode_record(record)
        try:
            return await self._connection.append(key, encoded, after=revision, expires_s=expires_s)
        except StoreFull:
            await self._reserve.release()
            return await self._connection.append(key, encoded, after=revision, expires_s=expires_s)

    async def _check_owner(self, journal: Journal, wanted: SessionRecord | None = None) -> bool:
        """Read who owns a session of ours, and its entry's revision. Raises LaneClosed if it is another server.

        In: `wanted`, an entry that was refused. Out: whether an earlier try has written it, and its answer was lost. It may be
        stored at any moment, so one answer of NATS decides both.
        """
        message = await self._connection.last(self._layout.sessions, self._layout.session_key(journal.session_id))
        stored = None if message is None else decode_record(message.data)
        ours, is_there = journal.record, stored is not None and stored == wanted
        assert ours is not None
        is_ours = stored is not None and not stored.is_deleted and (stored.owner, stored.epoch) == (ours.owner, ours.epoch)
        if message is None or not (is_there or is_ours):
            owner = "" if stored is None else stored.owner
            raise self._lose(journal, await self._find_server(owner) or ServerRef(owner))
        journal.revision = message.sequence
        return is_there

    def lose(self, journal: Journal, owner: ServerRef) -> None:
        """Note that another server has taken a session of ours. A look and an append may find it at the same time."""
        if journal.lost_to is not None:
            return
        journal.is_ours, journal.lost_to, journal.last, journal.lost_at = False, owner, journal.stored, journal.stored
        log.error("cluster.session_lost", session_id=journal.session_id, owner=str(owner))
        self._on_lost(journal)

    def confirm_loss(self, session_id: str) -> None:
        """Treat a lost session like any other one that another server has, from now on."""
        if (journal := self.find(session_id)) is not None:
            journal.lost_to = None
            if journal.is_deleted:
                self.forget(session_id)

    async def last_of_ours(self, journal: Journal) -> int:
        """The last event of a lost session that this server has written, also if the answer was lost. Raises StoreError."""
        last, record = journal.lost_at, journal.record
        subject = self._layout.journal_subject(journal.session_id)
        page = await self._connection.read(self._layout.journal, subject, journal.position + 1)
        for message in page.messages:
            envelope = envelope_of(message.data)
            if record is None or (envelope.by, envelope.epoch) != (self._server_id, record.epoch):
                break
            last = max(last, envelope.stored_last)
        return last

    def _need_ours(self, journal: Journal, record: SessionRecord | None = None) -> None:
        """Raise LaneClosed if a look has found out meanwhile that another server has taken the session.

        In: `record`, the entry of the ownership for which NATS was asked. The loss may be confirmed, and the session ours again.
        """
        is_over = record is not None and (not journal.is_ours or journal.record is None or journal.record.epoch != record.epoch)
        if journal.lost_to is not None or is_over:
            raise LaneClosed(SessionElsewhere(journal.session_id, journal.lost_to or ServerRef("")))

    def _lose(self, journal: Journal, owner: ServerRef) -> LaneClosed:
        self.lose(journal, owner)
        return LaneClosed(SessionElsewhere(journal.session_id, owner))

    # --- writing -------------------------------------------------------------------------------------------------

    async def commit(self, session_id: str, writes: Sequence[Write]) -> int:
        """Write the first of these, with those after it of the same kind, and return their number.

        Raises StoreError, and LaneClosed if another server owns the session and events are lost. A row or a checkpoint that is
        refused is none of them: what a client waits for is stored, and must not be done again at the new owner.
        """
        try:
            return await self._write_first(session_id, writes)
        except LaneClosed:
            if all(isinstance(write.what, Row | SaveCheckpoint) for write in writes):
                return len(writes)
            raise

    async def _write_first(self, session_id: str, writes: Sequence[Write]) -> int:
        journal = self.get(session_id)
        self._need_ours(journal)
        if (deletion := next((at for at, write in enumerate(writes) if isinstance(write.what, Delete)), 0)) > 0:
            return deletion  # nobody reads what the deletion removes, and it may have no room
        what = writes[0].what
        if journal.is_deleted and isinstance(what, Row | SaveCheckpoint):
            return 1
        if not isinstance(what, Delete | Release):
            async with journal.owning:
                if not journal.is_ours:
                    await self._create(journal, what)
        kinds = list(takewhile(lambda write: type(write.what) is type(what), writes))
        if isinstance(what, Events):
            await self._append_all(journal, [write.what for write in kinds])
        elif isinstance(what, Row):
            await self._save_row(journal, kinds[-1].what.row)
        elif isinstance(what, SaveCheckpoint):
            await self._save_checkpoint(journal, what)
            return 1
        elif isinstance(what, Release):
            async with journal.owning:
                await self._release(journal)
            return 1
        else:
            async with journal.owning:
                await self._delete(journal)
            return 1
        return len(kinds)

    async def _append_all(self, journal: Journal, runs: Sequence[Events]) -> None:
        """Append events, except those that an earlier try has stored."""
        first = runs[0].first
        encoded = [event for run in runs for event in run.encoded]
        last = first + len(encoded) - 1
        record = journal.record
        assert record is not None
        if first > journal.stored + 1:
            raise StoreError(
                f"The journal of session {journal.session_id} in NATS ends at event {journal.stored}, but goes on with {first}."
            )
        tries = 0
        while journal.stored < last:
            begin = journal.stored + 1
            limit = self._connection.message_bytes
            for batch in batches(self._server_id, record.epoch, begin, encoded[begin - first :], limit):
                if not await self._append(journal, batch):
                    break
            else:
                return
            tries += 1
            if tries > TRIES:
                raise StoreError(f"Events of session {journal.session_id} could not be appended: NATS still works on others.")
            await asyncio.sleep(RETRY_S)

    async def _append(self, journal: Journal, batch: Batch) -> bool:
        """Append a message. False if it must be looked again what is stored. Raises LaneClosed."""
        subject, before = self._layout.journal_subject(journal.session_id), journal.stored
        record = journal.record
        await self._reserve.need()
        start = monotonic()
        try:
            position = await self._connection.append(subject, batch.payload, after=journal.position)
            self._need_ours(journal, record)
        except WrongSequence:
            self._need_ours(journal, record)
            self.refused_appends += 1
            await self._explain_refusal(journal, subject)
            return False
        except StoreFull:
            self._reserve.note_full()
            raise
        self.append_s.add(monotonic() - start)
        journal.position, journal.stored, journal.is_new = position, batch.envelope.stored_last, False
        self.sizes[journal.session_id] = self.sizes.get(journal.session_id, 0) + len(batch.payload)
        if batch.envelope.part == 0:
            journal.starts.add(before, position)
        await self._announce_growth(journal, batch.envelope, position)
        return True

    async def _announce_growth(self, journal: Journal, envelope: Envelope, position: int) -> None:
        """Tell all servers what was written: those at which a client reads at once, the others soon."""
        word = [self._server_id, journal.session_id, envelope.first, envelope.stored_last, position, envelope.epoch]
        self._words.append(word)
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather(), name="tell of journals")
        with suppress(StoreError):  # others look once a second
            await self._connection.publish(self._layout.growth, json.dumps(word).encode())

    async def _gather(self, wait_s: float = GATHER_S) -> None:
        await asyncio.sleep(wait_s)
        words, self._words = self._words, []
        if words:
            with suppress(StoreError):
                await self._connection.publish(self._layout.growths, json.dumps(words).encode())

    async def close(self) -> None:
        """Tell the others what they were not told yet."""
        if self._gathering is not None:
            self._gathering.cancel()
            await asyncio.wait([self._gathering])
        await self._gather(0)

    async def _explain_refusal(self, journal: Journal, subject: str) -> None:
        """Find out why an append was refused: it is stored already, NATS still works on it, or the session is lost."""
        record = journal.record
        assert record is not None
        message = await self._connection.last(self._layout.journal, subject)
        envelope = None if message is None else envelope_of(message.data)
        if message is not None and envelope is not None and (envelope.by, envelope.epoch) == (self._server_id, record.epoch):
            journal.position, journal.stored = message.sequence, max(journal.stored, envelope.stored_last)
            return
        await self._check_owner(journal)
        if journal.is_new and journal.position == 0:
            await self._connection.purge(self._layout.journal, subject)  # left by a session of this id that was deleted
        elif message is None or message.sequence != journal.position:
            log.error("cluster.journal_has_other_writer", session_id=journal.session_id, by=envelope.by if envelope else "")
            raise self._lose(journal, ServerRef(envelope.by if envelope is not None else ""))

    async def _save_row(self, journal: Journal, row: SessionRow) -> None:
        for _ in range(TRIES):
            assert journal.record is not None
            record = replace(journal.record, row=row, last=journal.stored, size=self.sizes.get(journal.session_id, 0))
            try:
                revision = await self._write_record(record, journal.revision)
            except WrongSequence:
                if not await self._check_owner(journal, record):
                    await asyncio.sleep(RETRY_S)
                    continue
                revision = journal.revision
            self._need_ours(journal, record)
            journal.record, journal.revision = record, revision
            return
        raise StoreError(f"The row of session {journal.session_id} could not be written: NATS still works on it.")

    async def _release(self, journal: Journal) -> None:
        """Replace the owner in the entry by nobody. Does nothing for a session that is not ours."""
        for _ in range(TRIES):
            if not journal.is_ours or journal.record is None:
                return
            record = replace(journal.record, owner="", last=journal.stored, size=self.sizes.get(journal.session_id, 0))
            try:
                journal.revision = await self._write_record(record, journal.revision)
            except WrongSequence:
                if not await self._check_owner(journal, record):
                    await asyncio.sleep(RETRY_S)
                    continue
            journal.is_ours, journal.record = False, None
            return
        raise StoreError(f"Session {journal.session_id} could not be given up: NATS still works on it.")

    async def _delete(self, journal: Journal) -> None:
        """Replace the entry by one that says so and expires; then remove the rest."""
        session_id = journal.session_id
        if not journal.is_ours:
            try:
                claimed = await self._claim(journal)
            except SessionNotFound:
                journal.record = None
            else:
                if isinstance(claimed, ServerRef):
                    raise self._lose(journal, claimed)
        for _ in range(TRIES):
            if journal.record is None:
                break  # it is deleted already
            gone = SessionRecord(session_id, self._server_id, journal.record.epoch, is_deleted=True)
            try:
                journal.revision = await self._write_record(gone, journal.revision, DELETED_S)
            except WrongSequence:
                if not await self._check_owner(journal, gone):
                    await asyncio.sleep(RETRY_S)
                    continue
            break
        layout = self._layout
        await self._connection.purge(layout.checkpoints, layout.checkpoint_key(session_id))
        await self._connection.purge(layout.blobs, layout.blob_subject(session_id))
        await self._connection.purge(layout.journal, layout.journal_subject(session_id))
        journal.starts.clear()
        self.sizes.pop(session_id, None)
        journal.is_ours, journal.record, journal.stored, journal.position = False, None, 0, 0
        journal.is_deleted = True
        journal.manifest, journal.manifest_revision = None, None
        await asyncio.to_thread(self._pages.remove, session_id)

    # --- checkpoints ---------------------------------------------------------------------------------------------

    async def load_manifest(self, journal: Journal) -> Manifest | None:
        """Read where the newest checkpoint of a session is."""
        message = await self._connection.last(self._layout.checkpoints, self._layout.checkpoint_key(journal.session_id))
        journal.manifest = None if message is None else decode_manifest(message.data)
        journal.manifest_revision = 0 if message is None else message.sequence
        if journal.manifest is not None:
            journal.starts.add(*journal.manifest.start)
        return journal.manifest

    async def read_blob(self, parts: Sequence[int]) -> bytes | None:
        """The bytes of these parts, or None if one is gone."""
        pieces = [await self._connection.by_sequence(self._layout.blobs, part) for part in parts]
        return b"".join(piece for piece in pieces if piece is not None) if None not in pieces else None

    async def copy_pages(self, session_id: str, manifest: Manifest) -> None:
        """Copy the pages of a checkpoint to this machine, as far as they are not here. One that is gone is left out."""
        missing = await asyncio.to_thread(self._pages.keep_only, session_id, manifest.pages)

        async def copy(number: int) -> None:
            parts = manifest.pages[number]
            if (body := await self.read_blob(parts)) is not None:
                await asyncio.to_thread(self._pages.put, session_id, number, parts, body)

        for at in range(0, len(missing), PAGES_AT_ONCE):
            await asyncio.gather(*map(copy, missing[at : at + PAGES_AT_ONCE]))

    async def _save_checkpoint(self, journal: Journal, what: SaveCheckpoint) -> None:
        pages = {number: await self._put_blob(journal, body) for number, body in what.pages.items()}
        head = await self._put_blob(journal, what.checkpoint.head)
        async with journal.copying:
            await self._replace_manifest(journal, what, head, pages)

    async def _replace_manifest(
        self, journal: Journal, what: SaveCheckpoint, head: tuple[int, ...], pages: Mapping[int, tuple[int, ...]]
    ) -> None:
        for _ in range(TRIES):
            if journal.manifest_revision is None:
                await self.load_manifest(journal)
            old = journal.manifest
            kept = {} if old is None else {number: parts for number, parts in old.pages.items() if number not in what.dropped}
            start = journal.starts.find(what.checkpoint.sequence)
            manifest = Manifest(what.checkpoint.sequence, start, head, {**kept, **pages})
            encoded = encode_manifest(manifest)
            if len(encoded) > self._connection.message_bytes:
                log.warning("cluster.checkpoint_too_large", session_id=journal.session_id, pages=len(manifest.pages))
                return
            key = self._layout.checkpoint_key(journal.session_id)
            try:
                revision = await self._connection.append(key, encoded, after=journal.manifest_revision)
            except WrongSequence:
                await self._check_owner(journal)
                journal.manifest_revision = None
                continue
            journal.manifest, journal.manifest_revision = manifest, revision
            for number, body in what.pages.items():
                await asyncio.to_thread(self._pages.put, journal.session_id, number, pages[number], body)
            await asyncio.to_thread(self._pages.remove, journal.session_id, what.dropped)
            await self._remove_blobs(old, manifest)
            return
        raise StoreError(f"The checkpoint of session {journal.session_id} could not be written: NATS still works on it.")

    async def _put_blob(self, journal: Journal, body: bytes) -> tuple[int, ...]:
        subject, limit = self._layout.blob_subject(journal.session_id), self._connection.message_bytes
        pieces = [body[at : at + limit] for at in range(0, len(body), limit)] or [b""]
        return tuple([await self._connection.append(subject, piece) for piece in pieces])

    async def _remove_blobs(self, old: Manifest | None, new: Manifest) -> None:
        """Remove the parts that no checkpoint needs. What cannot be removed stays until the session is deleted."""
        if old is None:
            return
        needed = _parts(new)
        with suppress(StoreError):
            for part in _parts(old) - needed:
                await self._connection.remove(self._layout.blobs, part)


def _parts(manifest: Manifest) -> set[int]:
    return {*manifest.head, *(part for parts in manifest.pages.values() for part in parts)}
