"""Databases of every earlier version: they open whole, migrate whole or not at all, and a newer one is refused."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from shim.store.sqlite import SqliteStore, migrations
from tests.support.old_data import NAMES, make_database, schema_of, sessions

NEWEST = len(migrations())
CHILD_S = 30
KILL_STEP = 40
"""Instructions of SQLite between one place at which the migration is killed and the next."""
MAX_KILLS = 50
"""A migration that is still killed after so many places is longer than this test can walk."""


def test_there_is_a_fixture_of_each_schema() -> None:
    assert {schema_of(name) for name in NAMES} == set(range(1, NEWEST + 1))


@pytest.mark.parametrize("name", NAMES)
async def test_a_database_of_an_earlier_version_opens_with_all_that_it_holds(tmp_path: Path, name: str) -> None:
    path = tmp_path / "data" / "journal.db"
    make_database(name, path)
    before = contents(path)
    store = SqliteStore(path)
    await store.open()
    try:
        assert {row.id for row in await store.sessions()} >= set(sessions(name))
        for session_id in sessions(name):
            events = await store.events(session_id)
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert len(events) > 10
    finally:
        await store.close()
    assert contents(path) == before
    assert user_version(path) == NEWEST


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_migration_that_is_killed_is_done_wholly_or_not_at_all(tmp_path: Path) -> None:
    """SIGKILL at one place after the other of the migration from the first schema; each time the next start ends it."""
    states: list[int] = []
    for kill_at in range(0, MAX_KILLS * KILL_STEP, KILL_STEP):
        path = tmp_path / f"at-{kill_at}" / "journal.db"
        make_database("schema-1-d2135e4", path)
        before = contents(path)
        argv = [sys.executable, "-m", "tests.unit.store.migrating_child", str(path), str(kill_at)]
        child = subprocess.run(argv, capture_output=True, text=True, timeout=CHILD_S, cwd=Path(__file__).parents[3])
        assert child.returncode in (-signal.SIGKILL, 0), child.stderr
        states.append(user_version(path))
        assert states[-1] == (NEWEST if child.returncode == 0 else 1)
        assert contents(path) == before
        if child.returncode == 0:
            break
        asyncio.run(open_store(path))
        assert user_version(path) == NEWEST
        assert contents(path) == before
    assert len(states) > 2, "it was killed at two places at least"
    assert states[-1] == NEWEST, "the last place is behind the migration's end"


async def open_store(path: Path) -> None:
    """The next start: it migrates what is left to migrate."""
    store = SqliteStore(path)
    await store.open()
    await store.close()


def contents(path: Path) -> list[object]:
    """All that schema 1 has: a later schema may add columns."""
    tables = {
        "session": "id, directory, project_id, parent_id, created_ms, updated_ms, data",
        "event": "session_id, sequence, event_id, time, type, source, body, raw",
        "value": "namespace, key, value",
    }
    with closing(sqlite3.connect(path)) as connection:
        return [connection.execute(f"SELECT {cells} FROM {table} ORDER BY 1, 2").fetchall() for table, cells in tables.items()]


def user_version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
