"""The list of sessions as this machine's disk has it, so that a server that starts reads only what was written since.

    cluster-list.db   the row of each session, and the last message of the bucket of sessions that was taken in

A file that is odd is begun anew, and the server reads all entries from NATS: one of another version, of another stream, a damaged
one, or one so old that deletions since may have expired. Nothing depends on it. So it is written once in a while, and a server
that is killed leaves an older one.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from sys import intern
from time import monotonic
from typing import Any, TypeAlias

import structlog

from shim.cluster.nats.connection import Message, StreamState
from shim.cluster.nats.layout import SessionRecord
from shim.store.rows import SessionRow, bind, session_row, text_of_data

log = structlog.get_logger(__name__)

FILE = "cluster-list.db"
VERSION = 1
"""The form of the file. Another one is begun anew."""
OLDEST_S = 22 * 3600.0
"""Seconds of NATS's clock after which an image is not used: what was deleted since may have expired (`journals.DELETED_S`)."""
SAVED_AT = 1_000
"""Entries that wait in memory, from which on they are written. A start after `kill -9` reads so many again."""
SAVED_EVERY_S = 3600.0
"""Seconds after which it is written though little has changed, so that it does not become too old."""
TABLES = """
    CREATE TABLE image (identity TEXT, seen INTEGER, time TEXT);
    CREATE TABLE entry (
        subject TEXT PRIMARY KEY, session TEXT, owner TEXT, last INTEGER, size INTEGER, directory TEXT, project_id TEXT,
        parent_id TEXT, created_ms INTEGER, updated_ms INTEGER, data TEXT
    ) WITHOUT ROWID;
    INSERT INTO image VALUES ('', 0, '');
"""
PUT = "INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
REMOVE = "DELETE FROM entry WHERE subject = ?"
SAVE = "UPDATE image SET identity = ?, seen = ?, time = ?"
ALL = "SELECT owner, last, size, session, directory, project_id, parent_id, created_ms, updated_ms, data FROM entry"


ListedSession: TypeAlias = tuple[str, int, int, SessionRow]
"""The owner, the last event and the bytes of a session's journal, as its entry has them, and its row."""


class ListImage:
    """The image. In: `file`; None: there is none, and nothing is kept.

    A failure of the disk raises nothing: then there is no image any more.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._waiting: dict[str, tuple[Any, ...] | None] = {}
        self._seen = 0
        self._saved_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether enough waits to be written, or what is written becomes old."""
        is_old = self._database is not None and monotonic() - self._saved_s > SAVED_EVERY_S
        return is_old or len(self._waiting) >= SAVED_AT

    def note(self, message: Message, record: SessionRecord) -> None:
        """Note an entry that was read. They come in the order of the stream."""
        if self._database is None:
            return
        self._seen, row = message.sequence, record.row
        if row is None or record.is_deleted:  # without a row there is nothing to list; its row comes with a later entry
            self._waiting[message.subject] = None
            return
        columns = row.directory, row.project_id, row.parent_id, row.created_ms, row.updated_ms
        self._waiting[message.subject] = (row.id, record.owner, record.last, record.size, *columns, text_of_data(row))

    async def load(self, state: StreamState) -> tuple[int, list[ListedSession]]:
        """Open the file. Returns its sessions, and the last message that they tell of; (0, []) if it is of no use, or later."""
        file, self._file = self._file, None
        return (0, []) if file is None else await asyncio.to_thread(self._load, file, state)

    def _load(self, file: Path, state: StreamState) -> tuple[int, list[ListedSession]]:
        with self._lock:
            for _ in range(2):  # the second time with a new file
                try:
                    return self._read(file, state)
                except (sqlite3.Error, OSError, TypeError, ValueError) as error:
                    self._close()
                    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                        log.info("cluster.list_shared", file=str(file))  # another server of this directory keeps it
                        return 0, []
                    log.info("cluster.list_begun_anew", file=str(file), reason=str(error))
                    with suppress(OSError):
                        for suffix in ("", "-wal", "-journal"):
                            file.with_name(file.name + suffix).unlink(missing_ok=True)
        return 0, []

    def _read(self, file: Path, state: StreamState) -> tuple[int, list[ListedSession]]:
        file.touch(0o600)
        database = self._database = sqlite3.connect(file, timeout=0, check_same_thread=False, isolation_level=None)
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("BEGIN IMMEDIATE")  # takes the lock, until the end
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if not version:
            for statement in TABLES.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("COMMIT")
        if version not in (0, VERSION):
            raise ValueError(f"it has the form {version}")
        identity, seen, time = database.execute("SELECT identity, seen, time FROM image").fetchone()
        if not seen:
            return 0, []
        if identity != state.identity or seen > state.last:
            raise ValueError("it is of another stream")
        if abs(_seconds(state.time) - _seconds(time)) > OLDEST_S:
            raise ValueError("it is too old")
        self._seen, self._saved_s = seen, monotonic()
        return seen, [(intern(row[0]), row[1], row[2], session_row(row[3:])) for row in database.execute(ALL)]

    async def save(self, state: StreamState) -> None:
        """Write what waits. In: `state`, the stream as NATS told it last."""
        waiting, self._waiting, self._saved_s = self._waiting, {}, monotonic()
        if self._database is not None and self._seen:
            await asyncio.to_thread(self._save, waiting, self._seen, state)

    def _save(self, waiting: Mapping[str, tuple[Any, ...] | None], seen: int, state: StreamState) -> None:
        with self._lock:
            if self._database is None:
                return
            try:
                self._database.execute("BEGIN")
                self._database.executemany(REMOVE, [(subject,) for subject, cells in waiting.items() if cells is None])
                self._database.executemany(PUT, [bind((subject, *cells)) for subject, cells in waiting.items() if cells])
                self._database.execute(SAVE, (state.identity, seen, state.time))
                self._database.execute("COMMIT")
            except sqlite3.Error as error:  # what is on the disk stays as it was before
                log.warning("cluster.list_not_saved", reason=str(error))
                self._close()

    def close(self) -> None:
        """Close the file. May be called again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with suppress(sqlite3.Error):
                database.close()


def _seconds(time: str) -> float:
    """Seconds of a time of NATS, which has nanoseconds."""
    return datetime.fromisoformat(time[:19]).timestamp()
