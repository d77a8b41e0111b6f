"""Copies of a database: consistent while a store writes, and checked before they are used."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shim.lib.errors import StoreError
from shim.store.backup import check_database, copy_database
from shim.store.sqlite import SqliteStore, migrations
from tests.unit.store.store_contract import event, row

NEWEST = len(migrations())


async def test_a_copy_of_a_store_in_use_has_all_that_was_flushed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data" / "journal.db")
    await store.open()
    try:
        store.save_session(row())
        store.append([event(number) for number in range(1, 101)])
        await store.flush()
        copy_database(store.path, tmp_path / "copy.db")
        store.append([event(101)])
        await store.flush()
    finally:
        await store.close()
    assert check_database(tmp_path / "copy.db") == NEWEST
    with closing(sqlite3.connect(tmp_path / "copy.db")) as connection:
        assert connection.execute("SELECT count(*), max(sequence) FROM event").fetchone() == (100, 100)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert not list(tmp_path.glob("copy.db-*"))


async def test_a_copy_has_nothing_of_deleted_sessions(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data" / "journal.db")
    await store.open()
    try:
        for session_id in ("ses_kept", "ses_gone"):
            store.save_session(row(session_id))
            store.append([event(number, session_id) for number in range(1, 2_001)])
        await store.flush()
        store.delete_session("ses_gone")
        await store.flush()
        copy_database(store.path, tmp_path / "copy.db")
    finally:
        await store.close()
    copy = (tmp_path / "copy.db").read_bytes()
    assert b"evt_ses_gone" not in copy
    assert len(copy) < 0.7 * store.path.stat().st_size


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (NEWEST + 1, rf"newer opencode-shim \(schema {NEWEST + 1}; this one reads up to {NEWEST}\)"),
        (0, "is not a database of opencode-shim"),
    ],
)
def test_a_database_that_this_version_cannot_open_is_refused(tmp_path: Path, version: int, why: str) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"CREATE TABLE x (y); PRAGMA user_version = {version};")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=why):
        check_database(path)
    assert path.read_bytes() == before


def test_a_damaged_or_absent_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database at all, and longer than a header" * 100)
    with pytest.raises(StoreError, match="not a database"):
        check_database(tmp_path / "x.db")
    with pytest.raises(StoreError, match="--data-dir"):
        copy_database(tmp_path / "absent.db", tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
