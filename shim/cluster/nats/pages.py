"""Copies of checkpoints' pages on this machine: a page that is asked for on the event loop never waits for the network.

The copies of a session are made when its checkpoint is read or written. They are in a private database of SQLite, a file without
a name: the operating system removes it with the process, also after `kill -9`.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shim.lib.errors import StoreError

CACHE_KIB = 4096
"""Maximum KiB of the database in memory; the rest is in its file."""
TABLE = """
    CREATE TABLE page (session_id BLOB, number INTEGER, place INTEGER, body BLOB, PRIMARY KEY (session_id, number)) WITHOUT ROWID
"""
PUT = "INSERT OR REPLACE INTO page VALUES (?, ?, ?, ?)"
FIND = "SELECT body FROM page WHERE session_id = ? AND number = ?"
PLACES = "SELECT number, place FROM page WHERE session_id = ?"
REMOVE = "DELETE FROM page WHERE session_id = ? AND number = ?"
REMOVE_ALL = "DELETE FROM page WHERE session_id = ?"

Parts = Sequence[int]
"""The numbers of the messages in which a page is stored."""


class PageCopies:
    """The copies. May be used in any thread; each call blocks for a look-up on the local disk. Raises StoreError."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._database.execute(TABLE)

    def find(self, session_id: str, number: int) -> bytes | None:
        """A page, or None if there is no copy."""
        rows = self._run(FIND, session_id, number)
        return rows[0][0] if rows else None

    def put(self, session_id: str, number: int, parts: Parts, body: bytes) -> None:
        """Keep a copy in place of the one before."""
        self._run(PUT, session_id, number, parts[0], body)

    def keep_only(self, session_id: str, pages: Mapping[int, Parts]) -> list[int]:
        """Remove the copies that are not of these pages. Returns the numbers of those without a copy."""
        places = dict(self._run(PLACES, session_id))
        self.remove(session_id, [number for number, place in places.items() if number not in pages or pages[number][0] != place])
        return [number for number, parts in pages.items() if places.get(number) != parts[0]]

    def remove(self, session_id: str, numbers: Collection[int] | None = None) -> None:
        """Remove copies of a session. In: `numbers`, None for all."""
        if numbers is None:
            self._run(REMOVE_ALL, session_id)
            return
        for number in numbers:
            self._run(REMOVE, session_id, number)

    def close(self) -> None:
        """Remove all copies. May be called again."""
        with self._lock:
            self._database.close()

    def _run(self, statement: str, session_id: str, *values: int | bytes) -> list[Any]:
        try:
            with self._lock:
                return self._database.execute(statement, (session_id.encode("utf-8", "surrogatepass"), *values)).fetchall()
        except sqlite3.Error as error:
            raise StoreError(
                f"A page of session {session_id} cannot be kept on this machine: {error}. Look for room in its directory for"
                " temporary files (SQLITE_TMPDIR, TMPDIR or /var/tmp)."
            ) from error
