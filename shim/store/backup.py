"""Copies the journal's database while a server writes, and checks a copy before it replaces the database.

Only `SqliteStore` writes to a database in use. All functions block.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from shim.lib.errors import StoreError
from shim.store.sqlite import BUSY_MS, explain, migrations


def copy_database(source: Path, target: Path) -> None:
    """Write one consistent state of `source` to the new file `target`. A server may write meanwhile, and does not wait.

    The copy has no room of deleted sessions, so neither their texts nor their size.

    Raises: StoreError if the source cannot be read or the target cannot be written.
    """
    if not source.exists():
        raise StoreError(f"There is no database {source}. Name the data directory of your server with --data-dir.")
    try:
        with closing(_connect(source)) as reading:
            reading.execute("VACUUM INTO ?", (str(target),))  # one file, without -wal and -shm beside it
    except sqlite3.Error as error:
        raise explain(error, source, "copy") from error


def check_database(path: Path) -> int:
    """The schema version of an intact database that this version can open. Raises StoreError for any other. Changes nothing."""
    try:
        with closing(_connect(path)) as connection:
            schema: int = connection.execute("PRAGMA user_version").fetchone()[0]
            state = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        raise explain(error, path, "read") from error
    if state != "ok":
        raise StoreError(f"{path} is damaged: {state}. Nothing was changed. Use another backup.")
    newest = len(migrations())
    if schema > newest:
        raise StoreError(
            f"{path} was written by a newer opencode-shim (schema {schema}; this one reads up to {newest}). Nothing was changed. "
            "Install the version that wrote it, or a newer one."
        )
    if schema == 0:
        raise StoreError(f"{path} is not a database of opencode-shim. Nothing was changed.")
    return schema


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=BUSY_MS / 1000)
