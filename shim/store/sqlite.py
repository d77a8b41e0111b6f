"""The store on disk: one SQLite file, one writing connection in a thread of its own, one reading connection.

    <data dir>/            0700, made if absent
      server.lock          whether others may use it (`lock.py`)
      servers/             which servers use it (`servers.py`)
      journal.db  0600     + -wal, -shm

It uses WAL with `synchronous=NORMAL`: flushed rows survive `kill -9`; a loss of power can take the last commits, but never
damages the file. `writer.py` has the group commit, the bounded queue and the handling of failed writes. This module owns the
schema and the texts of SQLite's errors. Only this module and `backup.py` import sqlite3.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from itertools import chain, count, groupby
from pathlib import Path
from threading import Lock
from types import CoroutineType
from typing import Any, NamedTuple, NoReturn, TypeVar

import structlog

from shim.lib.errors import StoreError
from shim.store.base import Checkpoint
from shim.store.lock import DirectoryLock, make_directory, unusable
from shim.store.ownership import ClaimedSession, Look, Ownership, SessionChange
from shim.store.rows import (
    EventRow,
    RowPlace,
    SessionRow,
    bind,
    dump,
    event_of,
    event_rows,
    follow,
    load,
    need_whole,
    session_row,
    text_of,
)
from shim.store.runs import LONGEST, SHORTEST, brief_rows_of, journal_rows, rows_of
from shim.store.servers import Presence, Present, ServerRef, forget, new_server_id, present
from shim.store.writer import DEFAULT_LIMITS, ROWS_OF, GroupWriter, Limits, Statement
from universal.events import UniversalEvent

T = TypeVar("T")

log = structlog.get_logger(__name__)

BUSY_MS = 5_000
"""Milliseconds to wait for another program's lock, such as a person's `sqlite3`."""

ADD_EVENT = (
    "INSERT INTO event (session_id, sequence, event_id, time, type, source, body, raw, first) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
AT_ONCE = (64, 8, 1)
"""Numbers of rows that one statement inserts, the largest that fits. Each statement releases the GIL, and a busy event loop
returns it after 5 ms; with one statement for each event, a fast agent filled the queue."""
ADD_EVENTS = {size: ADD_EVENT + ", (?, ?, ?, ?, ?, ?, ?, ?, ?)" * (size - 1) for size in AT_ONCE}
NEXT_VERSION = "1 + max(coalesce((SELECT max(version) FROM session), 0), coalesce((SELECT max(version) FROM deleted_session), 0))"
"""The version of the next change. Other servers notice a change by it."""
SAVE_SESSION = (
    "INSERT INTO session (id, directory, project_id, parent_id, created_ms, updated_ms, data, server, version) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, :next) ON CONFLICT (id) DO UPDATE SET directory = excluded.directory, "
    "project_id = excluded.project_id, parent_id = excluded.parent_id, created_ms = excluded.created_ms, "
    "updated_ms = excluded.updated_ms, data = excluded.data, server = excluded.server, version = excluded.version"
).replace(":next", NEXT_VERSION)
SAVE_CHECKPOINT = "INSERT OR REPLACE INTO checkpoint (session_id, sequence, head) VALUES (?, ?, ?)"
SAVE_PAGE = "INSERT OR REPLACE INTO checkpoint_page (session_id, number, body) VALUES (?, ?, ?)"
DELETE_PAGE = "DELETE FROM checkpoint_page WHERE session_id = ? AND number = ?"
DELETE_CHECKPOINT = "DELETE FROM checkpoint WHERE session_id = ?"
DELETE_PAGES = "DELETE FROM checkpoint_page WHERE session_id = ?"
DELETE_EVENTS = "DELETE FROM event WHERE session_id = ?"
DELETE_SESSION = "DELETE FROM session WHERE id = ?"
DELETE_ALL = (DELETE_EVENTS, DELETE_CHECKPOINT, DELETE_PAGES, DELETE_SESSION)
NOTE_DELETED = "INSERT INTO deleted_session (session_id, server, version) VALUES (?, ?, :next)".replace(":next", NEXT_VERSION)
FORGET_DELETED = "DELETE FROM deleted_session"
CLAIM_SESSION = "UPDATE session SET server = ?, version = :next WHERE id = ?".replace(":next", NEXT_VERSION)
SET_VALUE = "INSERT OR REPLACE INTO value (namespace, key, value) VALUES (?, ?, ?)"
DELETE_VALUE = "DELETE FROM value WHERE namespace = ? AND key = ?"

SESSIONS = "SELECT id, directory, project_id, parent_id, created_ms, updated_ms, data FROM session"
EVENTS = (
    "SELECT session_id, sequence, event_id, time, type, source, body, raw, first FROM event "
    "WHERE session_id = ? AND sequence > ? ORDER BY sequence LIMIT ?"
)
EVENTS_WITHOUT_RAW = EVENTS.replace(" raw,", " NULL,")
CHECKPOINT = "SELECT sequence, head FROM checkpoint WHERE session_id = ?"
PAGES = "SELECT number FROM checkpoint_page WHERE session_id = ?"
PAGE = "SELECT body FROM checkpoint_page WHERE session_id = ? AND number = ?"
VALUES = "SELECT key, value FROM value WHERE namespace = ?"
NAMESPACES = "SELECT DISTINCT namespace FROM value"
NEWEST = "SELECT session_id, coalesce(first, sequence), sequence, event_id FROM event ORDER BY rowid DESC"
OWNER = "SELECT server FROM session WHERE id = ?"
OWNERS = "SELECT id, server FROM session WHERE server != ?"
LAST_VERSION = f"SELECT {NEXT_VERSION} - 1"
LAST_SEQUENCE = "SELECT coalesce(max(sequence), 0) FROM event WHERE session_id = ?"
CHANGES = """
SELECT version, server, id, id, directory, project_id, parent_id, created_ms, updated_ms, data
FROM session WHERE version > :version AND server != :server
UNION ALL
SELECT version, server, session_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM deleted_session WHERE version > :version AND server != :server
ORDER BY version LIMIT 1000
"""
LAST_SEQUENCES = """
WITH RECURSIVE journal(id) AS (
    SELECT min(session_id) FROM event
    UNION ALL
    SELECT (SELECT min(session_id) FROM event WHERE session_id > journal.id) FROM journal WHERE journal.id IS NOT NULL
)
SELECT id, (SELECT max(sequence) FROM event WHERE session_id = journal.id) FROM journal WHERE id IS NOT NULL
"""
"""Skips through the index from journal to journal. A GROUP BY would read all of it."""

ADVICE: dict[int, str] = {
    sqlite3.SQLITE_FULL: "The disk is full. Free some space; what waits to be written is kept and tried again.",
    sqlite3.SQLITE_IOERR: "The disk refused. Look at its space, quota and health; what waits is kept and tried again.",
    sqlite3.SQLITE_READONLY: "The file or its directory is read-only. Make both writable for this user.",
    sqlite3.SQLITE_CANTOPEN: "The file cannot be opened. Look at the permissions of it and of its directory.",
    sqlite3.SQLITE_PERM: "The file cannot be opened. Look at the permissions of it and of its directory.",
    sqlite3.SQLITE_BUSY: "Another program holds it locked. Close whatever else has this file open.",
    sqlite3.SQLITE_CORRUPT: "The file is damaged. Nothing was changed. Restore it from a backup, or stop the server and "
    "move it aside with --move-aside-damaged and start with an empty one; `sqlite3 FILE .recover` may save what is left.",
    sqlite3.SQLITE_NOTADB: "This is not a database. Nothing was changed. Start with --move-aside-damaged to move it aside and "
    "begin with an empty one, or choose another data directory.",
}
"""SQLite's primary result code -> what it means and what to do."""


class Migration(NamedTuple):
    """One step of the schema; `version` is the `user_version` after it."""

    version: int
    sql: str


@dataclass(slots=True)
class _OpenDatabase:
    """The connections and threads of an open database."""

    read: sqlite3.Connection
    write: sqlite3.Connection
    claims: sqlite3.Connection
    pages: sqlite3.Connection
    lock: DirectoryLock
    presence: Presence
    writer: GroupWriter
    last: dict[str, int]
    present: Present
    version: int
    pages_lock: Lock = field(default_factory=Lock)


def explain(error: sqlite3.Error, path: Path, doing: str) -> StoreError:
    """A sentence about an error of SQLite, with what to do."""
    code = getattr(error, "sqlite_errorcode", None)
    advice = ADVICE.get(code & 0xFF, "") if isinstance(code, int) else ""
    return StoreError(f"Cannot {doing} {path}: {error}. {advice}".rstrip())


def migrations() -> tuple[Migration, ...]:
    """The steps of `sql/NNNN_*.sql`, in order, numbered from 1 without holes."""
    steps = [
        Migration(int(match[1]), file.read_text(encoding="utf-8"))
        for file in resources.files("shim.store").joinpath("sql").iterdir()
        if (match := re.fullmatch(r"(\d{4})_\w+\.sql", file.name))
    ]
    steps.sort()
    assert [step.version for step in steps] == list(range(1, len(steps) + 1)), "migrations have holes"
    return tuple(steps)


class SqliteStore(Ownership):
    """A `Store` in one SQLite file. `path` is the file; its directory is the data directory, which servers share.
    `move_aside`: whether a damaged file may be renamed at `open`, and an empty one take its place.

    Call it from the event loop that opened it. Writes never wait; reads see all earlier writes. Raises StoreError with what
    happened and what to do: writes for a wrong sequence, a payload that is no JSON, or a full queue, and then nothing of the call
    is stored; `flush`, `close` and reads for errors of the disk.
    """

    groups: GroupWriter
    """The writer of an open store. It can hold rows together."""

    def __init__(
        self,
        path: Path,
        *,
        limits: Limits = DEFAULT_LIMITS,
        steps: Sequence[Migration] | None = None,
        move_aside: bool = False,
    ) -> None:
        self.path = path
        self._move_aside = move_aside
        self._limits = limits
        self._steps = tuple(steps) if steps is not None else migrations()
        self._opened: _OpenDatabase | None = None
        self._reader: ThreadPoolExecutor | None = None
        self.server_id = new_server_id()

    @property
    def ownership(self) -> Ownership:
        """The ownership of sessions. Among servers with the file open, each session has one owner."""
        return self

    @property
    def failure(self) -> str | None:
        """Why writes fail at present, or None. For health reports."""
        failure = self._opened.writer.failure if self._opened else None
        return str(failure) if failure else None

    @property
    def pending(self) -> int:
        """Number of queued rows that are not on disk."""
        return self._opened.writer.pending if self._opened else 0

    async def open(self) -> None:
        """Lock the data directory, create or open the file, and migrate it."""
        if self._reader is not None:
            raise StoreError(f"{self.path} is open already.")
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-read")
        try:
            self._opened = await self._in_thread(self._open)
        except BaseException:  # a cancelled start leaves nothing behind
            self._reader.shutdown(wait=False)
            self._reader = None
            raise
        self.groups = self._opened.writer
        self.groups.start()

    async def close(self) -> None:
        """Write the queued rows, then release everything. May be called again. Raises StoreError if rows were not written."""
        opened, reader = self._opened, self._reader
        self._opened = self._reader = None
        if opened is None or reader is None:
            return
        try:
            await opened.writer.close()
        finally:
            if opened.writer.has_ended:  # otherwise the thread still writes: leave its connection and the lock
                await asyncio.get_running_loop().run_in_executor(reader, _close, opened)
            reader.shutdown(wait=False)

    # Writes are checked at once, then queued.

    def append(self, events: Sequence[UniversalEvent]) -> None:
        """Queue events, all or none. A full queue refuses before it encodes them, because a busy session retries often."""
        opened = self._opened or _not_open(self.path)
        opened.writer.need_room(len(events))
        new = follow(opened.last, events)
        rows = event_rows(events) if len(events) < SHORTEST else journal_rows(events)  # whose two texts are valid UTF-8
        size = 0
        for row in rows:
            size += 256 + len(row.body) + len(row.raw or "")
        opened.writer.put([Statement(ADD_EVENT, rows if all(map(str.isascii, new)) else list(map(bind, rows)), size)])
        opened.last |= new

    def save_session(self, row: SessionRow) -> None:
        """Queue an insert or update. It is written at once, because it is the end of a turn or a client's answer."""
        data = dump(dict(row.data), f"session {row.id}")
        cells = (row.id, row.directory, row.project_id, row.parent_id, row.created_ms, row.updated_ms, data, self.server_id)
        (self._opened or _not_open(self.path)).writer.put([_statement(SAVE_SESSION, cells)], at_once=True)

    def delete_session(self, session_id: str) -> None:
        """Queue the removal of a session, its journal and its checkpoint. An unknown id is ignored."""
        opened = self._opened or _not_open(self.path)
        deleted = _statement(NOTE_DELETED, (session_id, self.server_id))  # first: the row may hold the highest version
        opened.writer.put([deleted, *(_statement(sql, (session_id,)) for sql in DELETE_ALL)])
        opened.last.pop(session_id, None)

    def save_checkpoint(
        self, session_id: str, checkpoint: Checkpoint, pages: Mapping[int, bytes], dropped: Collection[int] = ()
    ) -> None:
        """Queue a checkpoint, in one transaction and after all earlier writes."""
        removals = [_statement(DELETE_PAGE, (session_id, number)) for number in dropped]
        added = [_bytes_statement(SAVE_PAGE, session_id, number, body) for number, body in pages.items()]
        head = _bytes_statement(SAVE_CHECKPOINT, session_id, checkpoint.sequence, checkpoint.head)
        (self._opened or _not_open(self.path)).writer.put([*removals, *added, head])

    def set_value(self, namespace: str, key: str, value: Any) -> None:
        """Queue a small value; None removes it."""
        self.set_values([(namespace, key, value)])

    def set_values(self, values: Iterable[tuple[str, str, Any]]) -> None:
        """Queue several values, all or none. In: namespace, key and value of each."""
        statements: list[Statement] = []
        for namespace, key, value in values:
            if value is None:
                statements.append(_statement(DELETE_VALUE, (namespace, key)))
            else:
                statements.append(_statement(SET_VALUE, (namespace, key, dump(value, f"value {namespace}/{key}"))))
        (self._opened or _not_open(self.path)).writer.put(statements)

    def flush(self, session_id: str | None = None) -> CoroutineType[Any, Any, None]:
        """Wait until all queued rows are committed, whatever their session."""
        return (self._opened or _not_open(self.path)).writer.flush()

    async def require_writable(self, session_id: str) -> None:
        """Try a failed commit again, and raise StoreError if it fails again. Waits for nothing else."""
        writer = (self._opened or _not_open(self.path)).writer
        if writer.failure is not None:
            await writer.flush()

    def room(self) -> Awaitable[None] | None:
        """None, or an awaitable while the queue is half full."""
        return _until_written(self) if self._opened is not None and self._opened.writer.is_crowded else None

    def last_sequence(self, session_id: str) -> int:
        """Number of events in its journal, including queued ones."""
        return (self._opened or _not_open(self.path)).last.get(session_id, 0)

    # Reads flush first, then run in the reading thread.

    async def sessions(self) -> list[SessionRow]:
        return await self._read(SESSIONS, (), session_row)

    async def events(self, session_id: str, after: int = 0, limit: int | None = None) -> list[UniversalEvent]:
        """The journal from `after` on, at most `limit` events."""
        rows = await self.rows(session_id, after, limit)
        return await self._in_thread(lambda: list(map(event_of, rows)))

    async def rows(self, session_id: str, after: int = 0, limit: int | None = None, *, with_raw: bool = True) -> list[EventRow]:
        last = self.last_sequence(session_id)
        sql = EVENTS if with_raw else EVENTS_WITHOUT_RAW
        rows = await self._run_read(lambda connection: _rows(connection, sql, session_id, max(after, 0), limit))
        need_whole([row.sequence for row in rows], session_id, after, limit, min(last, self.last_sequence(session_id)))
        return rows

    async def values(self, namespace: str) -> dict[str, Any]:
        rows = await self._read(VALUES, (namespace,))
        return {text_of(key): load(text_of(text), f"value {namespace}/{text_of(key)}") for key, text in rows}

    async def namespaces(self) -> list[str]:
        return await self._read(NAMESPACES, (), lambda row: text_of(row[0]))

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        """The newest checkpoint, with the numbers of its existing pages."""
        bound = bind((session_id,))

        def read(connection: sqlite3.Connection) -> Checkpoint | None:
            connection.execute("BEGIN")  # another server may write one meanwhile
            try:
                head = connection.execute(CHECKPOINT, bound).fetchone()
                numbers = connection.execute(PAGES, bound)
                return None if head is None else Checkpoint(head[0], head[1], frozenset(number for (number,) in numbers))
            finally:
                connection.execute("COMMIT")

        return await self._run_read(read)

    def checkpoint_page(self, session_id: str, number: int) -> bytes | None:
        """A page of the checkpoint, read in the caller's thread."""
        opened = self._opened or _not_open(self.path)
        try:
            with opened.pages_lock:
                row = opened.pages.execute(PAGE, [*bind((session_id,)), number]).fetchone()
        except sqlite3.Error as error:
            raise explain(error, self.path, "read") from error
        return None if row is None else row[0]

    async def brief(self, session_id: str, after: int, limit: int) -> list[EventRow]:
        """The journal without raw payloads, and with joined runs. A run is read whole."""
        bound, after = bind((session_id, max(after, 0), limit)), max(after, 0)

        def read(connection: sqlite3.Connection) -> list[EventRow]:
            rows = map(_event_row, connection.execute(EVENTS_WITHOUT_RAW, bound))
            return [row for stored in rows for row in brief_rows_of(stored, after)]

        return await self._run_read(read)

    async def newest(self, is_enough: Callable[[str], bool], limit: int) -> list[RowPlace]:
        """As `OrderedStore.newest`."""

        def read(connection: sqlite3.Connection) -> list[RowPlace]:
            places, events = list[RowPlace](), 0
            for place in map(RowPlace._make, connection.execute(NEWEST)):
                places.append(place)
                if (events := events + place.last - place.first + 1) >= limit or is_enough(place.event_id):
                    break
            return places

        return await self._run_read(read)

    # Ownership.

    def announce(self, url: str) -> None:
        """Tell other servers and the user's programs where this server listens."""
        (self._opened or _not_open(self.path)).presence.announce(url)

    def is_shared(self) -> bool:
        """Whether other servers were alive at the last look."""
        return (self._opened or _not_open(self.path)).present.living.keys() - {self.server_id} != set()

    async def claim(self, session_id: str) -> ClaimedSession | ServerRef:
        """Claim a session for this server, or return the living server that owns it."""
        opened = self._opened or _not_open(self.path)
        await opened.writer.flush()
        before = opened.last.get(session_id)
        claimed, last = await self._in_thread(lambda: self._claim(opened.claims, session_id))
        if last is not None:
            _note_last(opened, session_id, before, last)
        return claimed

    async def owners(self) -> dict[str, ServerRef]:
        """Session -> the other living server that owns it."""
        rows = await self._read(OWNERS, (self.server_id,))
        living = await self._in_thread(lambda: present(self.path.parent).living)
        return {text_of(id_): living[server] for id_, server in rows if server in living}

    async def refresh(self, session_id: str) -> None:
        """Update `last_sequence` for another server's journal."""
        opened = self._opened or _not_open(self.path)
        before = opened.last.get(session_id)
        [(last,)] = await self._read(LAST_SEQUENCE, (session_id,))
        _note_last(opened, session_id, before, last)

    async def look(self) -> Look:
        """The changes by other servers since the last look."""
        opened = self._opened or _not_open(self.path)
        cells = {"version": opened.version, "server": self.server_id}
        rows = await self._run_read(lambda connection: connection.execute(CHANGES, cells).fetchall())
        now = await self._in_thread(lambda: present(self.path.parent))
        ended = tuple(server_id for server_id in opened.present.living if server_id not in now.living)
        if rows:
            opened.version = rows[-1][0]
        opened.present = now
        changes = [
            SessionChange(
                text_of(row[2]), now.living.get(row[1], ServerRef(row[1])), None if row[3] is None else session_row(row[3:])
            )
            for row in rows
        ]
        return Look(tuple(changes), ended)

    def dead(self) -> tuple[str, ...]:
        """Ids of servers that were dead at this server's start."""
        return (self._opened or _not_open(self.path)).present.dead

    def forget(self, server_id: str) -> None:
        """Forget a dead server, of which nothing is left. Blocking."""
        forget(self.path.parent, server_id)

    async def _read(self, sql: str, cells: tuple[str | int, ...] = (), make: Callable[[Any], T] = lambda row: row) -> list[T]:
        bound = bind(cells)
        return await self._run_read(lambda connection: [make(row) for row in connection.execute(sql, bound)])

    async def _run_read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        opened = self._opened or _not_open(self.path)
        await opened.writer.flush()

        def run() -> T:
            try:
                return work(opened.read)
            except sqlite3.Error as error:
                raise explain(error, self.path, "read") from error

        return await self._in_thread(run)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._reader is None:
            raise StoreError(f"{self.path} was closed.")
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    # In the threads.

    def _open(self) -> _OpenDatabase:
        directory = self.path.parent
        make_directory(directory)
        lock, presence = DirectoryLock(directory), Presence(directory, self.server_id)
        alone = lock.join()
        connections: list[sqlite3.Connection] = []
        try:
            if alone:
                _prepare(self.path, move_damaged=self._move_aside)
            write = self._connect(connections)
            _migrate(write, self.path, self._steps, alone=alone)
            read, claims, pages = (self._connect(connections) for _ in range(3))
            for connection in (read, pages):
                connection.execute("PRAGMA query_only = ON")
            if alone:
                write.execute(FORGET_DELETED)
            last = {text_of(id_): sequence for id_, sequence in read.execute(LAST_SEQUENCES)}
            version: int = read.execute(LAST_VERSION).fetchone()[0]
            servers = present(directory)
            presence.enter()
            if alone:
                lock.share()
        except BaseException as error:  # whatever happens, no lock stays
            for connection in connections:
                connection.close()
            presence.leave()
            lock.release()
            if isinstance(error, sqlite3.Error):
                raise explain(error, self.path, "open") from error
            raise
        writer = GroupWriter(lambda batch: _commit(self.path, write, batch), self._limits)
        return _OpenDatabase(read, write, claims, pages, lock, presence, writer, last, servers, version)

    def _claim(self, connection: sqlite3.Connection, session_id: str) -> tuple[ClaimedSession | ServerRef, int | None]:
        """The result of a claim, and the session's last sequence if it was not ours before."""
        bound = bind((session_id,))
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                owner = connection.execute(OWNER, bound).fetchone()
                if owner is not None and owner[0] == self.server_id:
                    return ClaimedSession(None), None
                living = present(self.path.parent).living
                if owner is not None and owner[0] in living:
                    return living[owner[0]], None
                connection.execute(CLAIM_SESSION, bind((self.server_id, session_id)))
                row = next((session_row(cells) for cells in connection.execute(f"{SESSIONS} WHERE id = ?", bound)), None)
                last: int = connection.execute(LAST_SEQUENCE, bound).fetchone()[0]
                return ClaimedSession(row), last
            finally:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise explain(error, self.path, "claim a session in") from error

    def _connect(self, into: list[sqlite3.Connection]) -> sqlite3.Connection:
        """A connection without Python's own transactions; each is used by one thread at a time."""
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)
        into.append(connection)
        return connection


def _not_open(path: Path) -> NoReturn:
    raise StoreError(f"{path} is not open. This is a bug of the server.")


def _note_last(opened: _OpenDatabase, session_id: str, before: int | None, last: int) -> None:
    """Note the last event that the database has, unless events were queued while it was read."""
    if opened.last.get(session_id) == before:
        opened.last[session_id] = last


def _commit(path: Path, connection: sqlite3.Connection, batch: Sequence[Statement]) -> None:
    """Write all statements in one transaction. `path`: the file, for the errors."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        for sql, run in groupby(batch, key=lambda statement: statement.sql):
            rows = list(chain.from_iterable(map(ROWS_OF, run)))
            if sql == ADD_EVENT:
                _add_events(connection, rows)
            else:
                connection.executemany(sql, rows)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        with suppress(sqlite3.Error):  # SQLite has rolled back already after some errors
            connection.execute("ROLLBACK")
        raise explain(error, path, "write to") from error


def _add_events(connection: sqlite3.Connection, rows: Sequence[Sequence[str | bytes | int | None]]) -> None:
    stored = 0
    for size in AT_ONCE:
        while len(rows) - stored >= size:
            connection.execute(ADD_EVENTS[size], list(chain.from_iterable(rows[stored : stored + size])))
            stored += size


def _close(opened: _OpenDatabase) -> None:
    """Close the connections, the writing one last, because it merges the -wal file into the database."""
    opened.read.close()
    opened.claims.close()
    with opened.pages_lock:
        opened.pages.close()
    with suppress(sqlite3.Error):  # the next open repeats a merge that failed
        opened.write.close()
    opened.presence.leave()
    opened.lock.release()


async def _until_written(store: SqliteStore) -> None:
    with suppress(StoreError):  # reported by every flush that needs it
        await store.flush()


def damage(path: Path) -> str:
    """The damage of a database file, or "" if it is intact or missing. Reads all of it."""
    if not path.exists():
        return ""
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_MS / 1000)
    try:
        report = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise  # locked or unreadable, which is no reason to move it
        return str(error)
    finally:
        connection.close()
    return "" if report == "ok" else report


def move_aside(path: Path) -> Path:
    """Rename a database with its -wal and -shm files to a free name, and return the new path. Nothing is overwritten."""
    number = next(n for n in count(1) if not path.with_name(f"{path.name}.damaged-{n}").exists())
    aside = path.with_name(f"{path.name}.damaged-{number}")
    for suffix in ("-wal", "-shm", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def _prepare(path: Path, *, move_damaged: bool) -> None:
    """Create the file, or move a damaged one aside, before it is opened and while no other server has it."""
    if move_damaged and (why := damage(path)):
        log.warning("store.moved_aside", why=why, to=str(move_aside(path)))
    if path.exists() and not path.stat().st_size:
        log.warning("store.empty", path=str(path), why="The file was there and had nothing in it: no session is known.")
    _make_private(path)


def _make_private(path: Path) -> None:
    """Create the file with mode 0600. SQLite gives its -wal and -shm files the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise unusable(path.parent, error) from error


def _migrate(connection: sqlite3.Connection, path: Path, steps: Sequence[Migration], *, alone: bool = True) -> None:
    """Bring the schema to the last step, all missing steps in one transaction. Refuses before it changes anything.

    In: `alone`, whether no other server has the file; else it must be at the last step already.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(steps):
        raise StoreError(
            f"{path} was written by a newer opencode-shim (schema {version}; this one knows {len(steps)}). Upgrade this one, "
            f"or choose another data directory. Nothing was changed."
        )
    if version == 0 and connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise StoreError(f"{path} is the database of another program. Choose another data directory. Nothing was changed.")
    if version < len(steps) and not alone:
        raise StoreError(
            f"{path} is of an older schema ({version}; this one needs {len(steps)}), and another opencode-shim uses it. Stop "
            f"that one, and start this one again: it migrates the file. Nothing was changed."
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if missing := steps[version:]:
        script = "\n".join(step.sql for step in missing)
        try:
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {len(steps)};\nCOMMIT;")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise


def _statement(sql: str, cells: tuple[str | int | None, ...]) -> Statement:
    size, bound = 64, list[str | bytes | int | None]()
    for cell in cells:  # as `bind`
        if isinstance(cell, str):
            size += len(cell)
            bound += [cell] if cell.isascii() else bind((cell,))
        else:
            bound.append(cell)
    return Statement(sql, [bound], size)


def _bytes_statement(sql: str, session_id: str, number: int, body: bytes) -> Statement:
    return Statement(sql, [[*bind((session_id,)), number, body]], 64 + len(body))


def _rows(connection: sqlite3.Connection, sql: str, session_id: str, after: int, limit: int | None) -> list[EventRow]:
    """The events behind `after`, at most `limit`. A run may begin before the first and end behind the last of them."""
    most = -1 if limit is None else max(limit, 0)
    rows: list[EventRow] = []
    for cells in connection.execute(sql, bind((session_id, after, most))):
        rows += rows_of(_event_row(cells))
        if len(rows) - LONGEST >= most >= 0:
            break
    start = next((at for at, row in enumerate(rows) if row.sequence > after), len(rows))
    return rows[start:] if most < 0 else rows[start : start + most]


def _event_row(cells: tuple[Any, ...]) -> EventRow:
    return EventRow._make(map(text_of, cells) if bytes in map(type, cells) else cells)
