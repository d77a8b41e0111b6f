"""SqliteStore keeps the contract, and what only a disk can do: stay, be private, be held by one."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from shim.lib.errors import StoreError
from shim.store.base import Store
from shim.store.lock import DirectoryLock
from shim.store.memory import MemoryStore
from shim.store.ownership import ClaimedSession
from shim.store.sqlite import Migration, SqliteStore, explain, migrations
from shim.store.writer import Limits
from tests.unit.store.store_contract import CASES, event, journal, row

KNOWN = len(migrations())
TABLES = ["checkpoint", "checkpoint_page", "deleted_session", "event", "session", "value"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "journal.db"


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert [thread for thread in threading.enumerate() if thread.name == "store-write" and thread not in before] == []


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path)
    await made.open()
    yield made
    await made.close()


async def open_store(path: Path) -> SqliteStore:
    made = SqliteStore(path)
    await made.open()
    return made


@pytest.mark.parametrize("name", CASES)
async def test_contract(name: str, store: SqliteStore) -> None:
    await CASES[name](store)


async def test_sessions_and_settings_survive_a_restart(path: Path) -> None:
    first = await open_store(path)
    first.append(journal(1, 200))
    first.append(journal(1, 3, "ses_b"))
    first.save_session(row())
    first.set_value("models", "claude", {"a": 1})
    await first.close()

    second = await open_store(path)
    assert await second.events("ses_a") == journal(1, 200)
    assert await second.sessions() == [row()]
    assert await second.values("models") == {"claude": {"a": 1}}
    with pytest.raises(StoreError, match="goes on with event 201, not 200"):
        second.append([event(200)])
    with pytest.raises(StoreError, match="goes on with event 4, not 1"):
        second.append([event(1, "ses_b")])
    second.append([event(201), event(4, "ses_b"), event(1, "ses_c")])
    assert (await second.events("ses_a"))[-1] == event(201)
    await second.close()


async def test_files_are_private(path: Path, store: SqliteStore) -> None:
    store.append([event(1)])
    await store.flush()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.rglob("*")}
    files = ("journal.db", "journal.db-wal", "journal.db-shm", "server.lock", f"{store.server_id}.json")
    assert modes == {name: 0o600 for name in files} | {"servers": 0o700}


async def test_a_file_that_others_can_read_is_made_private(path: Path) -> None:
    await (await open_store(path)).close()
    path.chmod(0o644)
    await (await open_store(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_wal_and_schema(path: Path, store: SqliteStore) -> None:
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert other.execute("PRAGMA user_version").fetchone() == (len(migrations()),)
        columns = [name for (_, name, *_) in other.execute("PRAGMA table_info(event)")]
    other.close()
    assert columns == ["session_id", "sequence", "event_id", "time", "type", "source", "body", "raw", "first"]


async def test_body_is_without_raw_and_both_are_json(path: Path, store: SqliteStore) -> None:
    store.append([event(1, raw={"native": 1}), event(2)])
    await store.flush()
    with sqlite3.connect(path) as other:
        rows = other.execute(
            "SELECT type, json_extract(body, '$.data.delta'), json_extract(body, '$.raw'), json_extract(raw, '$.native'), "
            "raw IS NULL FROM event ORDER BY sequence"
        ).fetchall()
    other.close()
    assert rows == [("item.delta", "piece 1", None, 1, 0), ("item.delta", "piece 2", None, None, 1)]


# Who may use the directory.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a directory that another program has for itself."""
    monkeypatch.setattr("shim.store.lock.SHARE_S", 0.1)


@pytest.mark.usefixtures("quick")
async def test_a_directory_that_a_program_has_for_itself_is_refused_with_its_pid(path: Path) -> None:
    """As a server of an earlier version, or a backup that is restored."""
    path.parent.mkdir()
    lock = DirectoryLock(path.parent)
    lock.acquire()
    with pytest.raises(StoreError, match=rf"Another opencode-shim \(pid {os.getpid()}\) is using {path.parent}\. Stop it"):
        await open_store(path)
    lock.release()
    await (await open_store(path)).close()


async def test_no_program_gets_a_directory_for_itself_while_a_server_uses_it(path: Path, store: SqliteStore) -> None:
    lock = DirectoryLock(path.parent)
    with pytest.raises(StoreError, match=rf"Another opencode-shim \(pid {os.getpid()}\) is using {path.parent}\. Stop it"):
        lock.acquire()
    await store.close()
    lock.acquire()
    lock.release()


async def test_a_schema_is_not_migrated_while_another_server_uses_it(path: Path, store: SqliteStore) -> None:
    newer = SqliteStore(path, steps=[*migrations(), Migration(KNOWN + 1, "CREATE TABLE two (x);")])
    with pytest.raises(StoreError, match=r"another opencode-shim uses it\. Stop that one"):
        await newer.open()
    assert schema(path) == (KNOWN, TABLES)
    await store.close()
    await newer.open()
    await newer.close()


async def test_a_lock_file_that_was_left_behind_means_nothing(path: Path) -> None:
    path.parent.mkdir()
    (path.parent / "server.lock").write_text("12345\n")
    await (await open_store(path)).close()


# Files that cannot be used.


async def test_a_newer_database_is_refused_and_left_alone(path: Path) -> None:
    await (await open_store(path)).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"newer opencode-shim \(schema 99; this one knows {KNOWN}\)\. Upgrade"):
        await open_store(path)
    assert path.read_bytes() == before


async def test_another_programs_database_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE session (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="database of another program"):
        await open_store(path)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, but long enough to be looked at" * 50)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"Cannot open .*journal\.db: file is not a database\. .*Nothing was changed"):
        await open_store(path)
    assert path.read_bytes() == before
    assert (path.parent / "server.lock").read_text() == ""


async def test_a_damaged_page_is_reported_when_it_is_read(path: Path) -> None:
    first = await open_store(path)
    for n in range(1, 400):
        first.append([event(n, raw={"x": "y" * 500})])
    await first.close()
    content = bytearray(path.read_bytes())
    for page in range(4096 * 20, 4096 * 60, 4096):
        content[page : page + 4096] = b"\xff" * 4096
    path.write_bytes(content)

    second = await open_store(path)
    with pytest.raises(StoreError, match=r"Cannot read .*malformed.*file is damaged.*backup"):
        await second.events("ses_a")
    await second.close()


@pytest.mark.parametrize("gone", ["sequence = 3", "sequence > 4"])
async def test_a_hole_in_a_journal_is_reported(path: Path, gone: str) -> None:
    """By an index that is damaged SQLite finds less than there is, and does not notice."""
    first = await open_store(path)
    first.append(journal(1, 6))
    await first.flush()
    with sqlite3.connect(path) as other:
        other.execute(f"DELETE FROM event WHERE {gone}")
    other.close()
    missing = 3 if "=" in gone else 5
    reads: tuple[Callable[..., Awaitable[list[Any]]], ...] = (first.events, first.rows)
    for read in reads:
        with pytest.raises(StoreError, match=rf"Event {missing} of session ses_a is not found.*file of the journal is damaged"):
            await read("ses_a")
        assert len(await read("ses_a", 0, missing - 1)) == missing - 1
    await first.close()


async def test_an_emptied_file_is_reported(path: Path) -> None:
    first = await open_store(path)
    first.append(journal(1, 1))
    await first.close()
    path.write_bytes(b"")
    with capture_logs() as logs:
        second = await open_store(path)
    assert [entry["event"] for entry in logs] == ["store.empty"]
    await second.close()
    with capture_logs() as logs:
        await (await open_store(path)).close()
    assert logs == []


async def test_a_damaged_row_is_named(path: Path) -> None:
    first = await open_store(path)
    first.append(journal(1, 2))
    first.save_session(row())
    await first.close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE event SET body = '{\"data\": ' WHERE sequence = 2")
        other.execute("UPDATE session SET data = 'nonsense'")
    other.close()
    second = await open_store(path)
    with pytest.raises(StoreError, match="event 2 of session ses_a is damaged"):
        await second.events("ses_a")
    assert await second.events("ses_a", 0, 1) == [event(1)]
    (damaged,) = await second.sessions()
    with pytest.raises(StoreError, match="session ses_a is damaged"):
        damaged.data.get("agent")
    await second.close()


async def test_a_row_of_an_unknown_schema_is_named(path: Path) -> None:
    first = await open_store(path)
    first.append(journal(1, 1))
    await first.close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE event SET type = 'item.exploded'")
    other.close()
    second = await open_store(path)
    with pytest.raises(StoreError, match=r"event 1 of session ses_a cannot be read.*item\.exploded"):
        await second.events("ses_a")
    await second.close()


async def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"Cannot use the data directory .*file/data: .*choose another"):
        await open_store(tmp_path / "file" / "data" / "journal.db")


@pytest.fixture
def ordinary_user() -> Iterator[Path]:
    """A folder of a user whom permissions bind, and be that user: root may write anywhere."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        (folder / "mine").mkdir()
        if os.geteuid() != 0:
            yield folder / "mine"
            (folder / "mine").chmod(0o700)
            return
        os.chown(folder / "mine", 65534, 65534)
        os.seteuid(65534)
        try:
            yield folder / "mine"
        finally:
            os.seteuid(0)


async def test_a_read_only_directory(ordinary_user: Path) -> None:
    ordinary_user.chmod(0o555)
    with pytest.raises(StoreError, match=r"Cannot use the data directory .*Permission denied\. Make it writable for you \(uid"):
        await open_store(ordinary_user / "journal.db")


async def test_a_directory_that_became_read_only(ordinary_user: Path) -> None:
    first = await open_store(ordinary_user / "journal.db")
    first.append([event(1)])
    await first.close()
    ordinary_user.chmod(0o555)
    with pytest.raises(StoreError, match=r"Cannot (use|open) "):
        await open_store(ordinary_user / "journal.db")
    ordinary_user.chmod(0o755)
    second = await open_store(ordinary_user / "journal.db")
    assert await second.events("ses_a") == [event(1)]
    await second.close()


async def test_a_write_that_sqlite_refuses_is_undone_and_made_up_for(path: Path) -> None:
    store = SqliteStore(path, limits=Limits(retry_s=1000.0))
    await store.open()
    with sqlite3.connect(path) as other:
        other.execute("INSERT INTO event VALUES ('ses_b', 1, 'evt', 'now', 'error', 'agent', '{}', NULL, NULL)")
    store.append([event(1, "ses_a"), event(1, "ses_b"), event(1, "ses_c")])
    for _ in range(2):
        with pytest.raises(StoreError, match=r"Cannot write to .*UNIQUE constraint failed"):
            await store.flush()
        assert other.execute("SELECT session_id FROM event").fetchall() == [("ses_b",)]
    with other:
        other.execute("DELETE FROM event")
    other.close()
    assert [await store.events(f"ses_{name}") for name in "abc"] == [[event(1, f"ses_{name}")] for name in "abc"]
    await store.close()


# Migrations.


async def migrate(path: Path, steps: list[Migration]) -> None:
    made = SqliteStore(path, steps=steps)
    await made.open()
    await made.close()


def schema(path: Path) -> tuple[int, list[str]]:
    with sqlite3.connect(path) as other:
        version = other.execute("PRAGMA user_version").fetchone()[0]
        tables = [name for (name,) in other.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    other.close()
    return version, tables


async def test_a_store_that_writes_is_writable_at_once(path: Path) -> None:
    """A prompt does not wait for the rows of other sessions before it is accepted, only for its own."""
    store = SqliteStore(path, limits=Limits(group_s=1000.0))
    await store.open()
    store.append(journal(1, 3))
    waiting = store.require_writable("ses_a")
    with pytest.raises(StopIteration):  # it ends without waiting
        waiting.send(None)
    assert store.pending == 3
    await store.close()


async def test_a_store_whose_write_failed_is_writable_when_it_succeeds(path: Path) -> None:
    store = SqliteStore(path, limits=Limits(retry_s=1000.0))
    await store.open()
    other = sqlite3.connect(path)
    other.execute("CREATE TRIGGER full BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'no room'); END")
    store.append(journal(1, 3))
    with pytest.raises(StoreError, match="no room"):
        await store.flush()
    with pytest.raises(StoreError, match="no room"):
        await store.require_writable("ses_a")
    other.execute("DROP TRIGGER full")
    other.close()
    await store.require_writable("ses_a")
    assert await store.events("ses_a") == journal(1, 3)
    await store.close()


async def test_many_events_are_few_statements(path: Path) -> None:
    store = SqliteStore(path, limits=Limits(group_rows=10_000, group_s=1000.0))
    await store.open()
    assert store._opened is not None
    said: list[str] = []
    store._opened.write.set_trace_callback(said.append)
    store.append(journal(1, 64 * 3 + 8 * 2 + 5))
    await store.flush()
    assert len([text for text in said if text.startswith("INSERT")]) == 3 + 2 + 5
    assert [event.sequence for event in await store.events("ses_a")] == list(range(1, 64 * 3 + 8 * 2 + 6))
    await store.close()


async def test_a_crowded_queue_tells_writers_to_wait(path: Path) -> None:
    store = SqliteStore(path, limits=Limits(group_rows=10_000, group_s=1000.0, queue_rows=100))
    assert store.room() is None  # and a store that is not open says nothing either
    await store.open()
    store.append(journal(1, 49))
    assert store.room() is None
    store.append(journal(50, 50))
    waiting = store.room()
    assert waiting is not None and store.pending == 50
    await waiting
    assert store.pending == 0 and store.room() is None
    await store.close()


async def test_a_full_queue_refuses_before_it_looks_at_the_events(path: Path) -> None:
    store = SqliteStore(path, limits=Limits(group_rows=10_000, group_s=1000.0, queue_rows=100))
    await store.open()
    store.append(journal(1, 90))
    with pytest.raises(StoreError, match=r"90 rows .* wait to be written"):
        store.append([event(91, raw={"no", "JSON"})] * 20)
    await store.close()


async def test_missing_steps_are_taken_and_rows_stay(path: Path) -> None:
    first = await open_store(path)
    first.append(journal(1, 3))
    await first.close()
    steps = [
        *migrations(),
        Migration(KNOWN + 1, "CREATE TABLE two (x);"),
        Migration(KNOWN + 2, "CREATE TABLE three (x); DROP TABLE two;"),
    ]
    made = SqliteStore(path, steps=steps)
    await made.open()
    assert await made.events("ses_a") == journal(1, 3)
    await made.close()
    assert schema(path) == (KNOWN + 2, sorted([*TABLES, "three"]))


async def test_owners_of_an_older_schema_stay(path: Path) -> None:
    store = await open_store(path)
    await store.close()
    with sqlite3.connect(path) as older:
        older.executescript("".join(f"DROP TABLE {table};" for table in TABLES))
        older.executescript("".join(step.sql for step in migrations()[:4]) + "PRAGMA user_version = 4;")
        sessions = [("ses_owner",), ("ses_without_owner",)]
        older.executemany("INSERT INTO session VALUES (?, '/project', 'prj', NULL, 1, 2, '{}')", sessions)
        older.execute("INSERT INTO session_owner VALUES ('ses_owner', 'a server', 7), ('ses_deleted', 'a server', 9)")
    older.close()
    await store.open()
    with sqlite3.connect(path) as newer:
        rows = newer.execute("SELECT id, server, version FROM session ORDER BY id").fetchall()
        assert rows == [("ses_owner", "a server", 7), ("ses_without_owner", "", 0)]
    newer.close()
    assert isinstance(await store.claim("ses_without_owner"), ClaimedSession)
    await store.close()


async def test_a_failing_step_changes_nothing(path: Path) -> None:
    first = await open_store(path)
    first.append(journal(1, 3))
    await first.close()
    with pytest.raises(StoreError, match=r"Cannot open .*no such table: nowhere"):
        await migrate(path, [*migrations(), Migration(KNOWN + 1, "CREATE TABLE two (x); INSERT INTO nowhere VALUES (1);")])
    assert schema(path) == (KNOWN, TABLES)
    second = await open_store(path)
    assert await second.events("ses_a") == journal(1, 3)
    await second.close()


def test_sql_files_are_numbered_without_holes() -> None:
    assert [step.version for step in migrations()] == list(range(1, len(migrations()) + 1))


# What SQLite says.


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (sqlite3.SQLITE_FULL, "disk is full. Free some space"),
        (sqlite3.SQLITE_IOERR_WRITE, "disk refused"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "read-only"),
        (sqlite3.SQLITE_CORRUPT, "damaged"),
        (sqlite3.SQLITE_CORRUPT_INDEX, "damaged"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "Another program"),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, "cannot be opened"),
    ],
)
def test_explain(code: int, says: str) -> None:
    error = sqlite3.OperationalError("reason")
    error.sqlite_errorcode = code
    text = str(explain(error, Path("/x/journal.db"), "write to"))
    assert text.startswith("Cannot write to /x/journal.db: reason.")
    assert says in text


def test_explain_without_a_code() -> None:
    assert str(explain(sqlite3.ProgrammingError("odd"), Path("/x"), "read")) == "Cannot read /x: odd."


# Any sequence of calls does the same as with the reference.

SESSIONS = st.sampled_from(["ses_a", "ses_b"])
CALLS = st.one_of(
    st.tuples(st.just("append"), SESSIONS, st.integers(0, 3), st.integers(-1, 1)),
    st.tuples(st.just("delete"), SESSIONS),
    st.tuples(st.just("save"), SESSIONS, st.dictionaries(st.text(), st.integers() | st.text() | st.none(), max_size=2)),
    st.tuples(st.just("value"), st.sampled_from("ab"), st.sampled_from("xy"), st.none() | st.integers() | st.text()),
    st.tuples(st.just("look")),
)


async def look(store: Store) -> Any:
    rows = sorted(await store.sessions(), key=lambda r: r.id)
    return rows, [await store.events(s) for s in ("ses_a", "ses_b")], [await store.values(s) for s in "ab"]


def call(store: Store, step: tuple[Any, ...], last: dict[str, int]) -> str | None:
    """One write; the text of its refusal."""
    try:
        match step:
            case ("append", session, count, off):
                store.append([event(last.get(session, 0) + 1 + n + off, session, raw=n or None) for n in range(count)])
            case ("delete", session):
                store.delete_session(session)
            case ("save", session, data):
                store.save_session(row(session, data=data))
            case ("value", namespace, key, value):
                store.set_value(namespace, key, value)
            case _:
                pass
    except StoreError as error:
        return str(error)
    return None


@given(st.lists(CALLS, max_size=25))
def test_same_as_the_reference(steps: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            memory, disk = MemoryStore(), SqliteStore(Path(folder) / "journal.db", limits=Limits(group_rows=3))
            await memory.open()
            await disk.open()
            last: dict[str, int] = {}
            for step in steps:
                refusal = call(memory, step, last)
                assert call(disk, step, last) == refusal
                if step[0] == "append" and refusal is None and step[2]:
                    last[step[1]] = last.get(step[1], 0) + step[2]
                elif step[0] == "delete":
                    last.pop(step[1], None)
                elif step[0] == "look":
                    assert await look(disk) == await look(memory)
            assert await look(disk) == await look(memory)
            await disk.close()
            await disk.open()
            assert await look(disk) == await look(memory)
            await disk.close()

    asyncio.run(run())
