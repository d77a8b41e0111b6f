"""What a start lists is what NATS has, whatever this machine's disk has of it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shim.cluster.nats import connection, list_image
from shim.cluster.nats.connection import Connection
from shim.cluster.nats.layout import ClusterOptions
from shim.cluster.nats.list_image import FILE, ListImage
from shim.cluster.nats.store import JetStreamStore
from shim.lib.errors import StoreUnavailable
from shim.store.rows import SessionRow, text_of_data
from tests.unit.cluster.nats.conftest import LIMITS
from tests.unit.store.store_contract import row


def on_disk(options: ClusterOptions, folder: Path) -> JetStreamStore:
    """The store of a server whose data directory is a folder."""
    return JetStreamStore(options, directory=folder, limits=LIMITS)


async def rows_of(store: JetStreamStore) -> dict[str, tuple[SessionRow, str]]:
    """The sessions, with their data as text."""
    rows = await store.sessions()
    return {one.id: (one._replace(data={}), text_of_data(one)) for one in rows}


async def list_at_start(options: ClusterOptions, folder: Path) -> dict[str, tuple[SessionRow, str]]:
    """What a server lists that starts on a folder and ends."""
    store = on_disk(options, folder)
    await store.open()
    found = await rows_of(store)
    await store.close()
    return found


async def save(store: JetStreamStore, *rows: SessionRow) -> None:
    for one in rows:
        store.save_session(one)
    await store.flush()


@pytest.fixture
def entries_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The subjects of all entries of sessions that are read from now on."""
    found: list[str] = []
    read = Connection.read

    async def count(self: Connection, stream: connection.Stream, subject: str, start: int = 0) -> connection.Page:
        page = await read(self, stream, subject, start)
        found.extend(message.subject for message in page.messages if "_sessions." in message.subject)
        return page

    monkeypatch.setattr(Connection, "read", count)
    return found


async def test_a_start_reads_only_what_was_written_since_the_last_one(
    options: ClusterOptions, store: JetStreamStore, tmp_path: Path, entries_read: list[str]
) -> None:
    folder = tmp_path / "data"
    await save(store, *(row(f"ses_{number}", directory=f"/a/{number % 3}") for number in range(20)))
    assert len(await list_at_start(options, folder)) == 20
    await save(store, row("ses_3", data={"title": "new"}), row("ses_new", parent_id="ses_3", directory="/\udcff"))
    store.delete_session("ses_4")
    await store.flush()
    entries_read.clear()
    found = await list_at_start(options, folder)
    assert sorted(subject.rpartition(".")[2] for subject in entries_read) == ["ses_3", "ses_4", "ses_new"]
    assert found == await rows_of(store)
    assert len(found) == 20
    entries_read.clear()
    assert await list_at_start(options, folder) == found
    assert entries_read == []


async def test_a_killed_server_has_saved_what_its_looks_read(
    options: ClusterOptions, store: JetStreamStore, tmp_path: Path, entries_read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is killed has saved it."""
    monkeypatch.setattr(list_image, "SAVED_AT", 3)
    server = on_disk(options, tmp_path / "data")
    await server.open()
    await rows_of(server)
    await save(store, *(row(f"ses_{number}") for number in range(4)))
    await save(server, row("ses_own"))
    await server.look()
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    await server.close()
    entries_read.clear()
    assert await list_at_start(options, tmp_path / "killed") == await rows_of(store)
    assert len(entries_read) == 5  # of the store without a disk


def damage(file: Path) -> None:
    file.write_bytes(b"SQLite format 3\0" + bytes(5000))


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def change(statement: str) -> Callable[[Path], None]:
    def execute(file: Path) -> None:
        database = sqlite3.connect(file)
        database.execute(statement)
        database.commit()
        database.close()

    return execute


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        damage,
        truncate,
        change("PRAGMA user_version = 99"),
        change("DROP TABLE image"),
        change("DELETE FROM image"),
        change("UPDATE image SET identity = 'KV_shim_sessions 2026-01-01T00:00:00Z'"),
        change("UPDATE image SET seen = 1000000"),
        change("UPDATE image SET time = '2026-01-01T00:00:00.123456789Z'"),
        change("UPDATE image SET time = 'then'"),
    ],
)
async def test_all_is_read_again_where_the_file_is_of_no_use(
    options: ClusterOptions, store: JetStreamStore, tmp_path: Path, entries_read: list[str], spoil: Callable[[Path], None]
) -> None:
    folder = tmp_path / "data"
    await save(store, *(row(f"ses_{number}") for number in range(100)))
    await list_at_start(options, folder)
    spoil(folder / FILE)
    entries_read.clear()
    found = await list_at_start(options, folder)
    assert len(entries_read) == 100
    entries_read.clear()
    assert await list_at_start(options, folder) == found
    assert entries_read == []
    assert found == await rows_of(store)


async def test_two_servers_of_one_directory_keep_one_file(options: ClusterOptions, store: JetStreamStore, tmp_path: Path) -> None:
    first, second = on_disk(options, tmp_path), on_disk(options, tmp_path)
    await first.open()
    await rows_of(first)
    await second.open()
    await save(store, row("ses_a"))
    assert (await rows_of(second)).keys() == {"ses_a"}
    await first.look()
    await first.close()
    await second.close()
    assert (await list_at_start(options, tmp_path)).keys() == {"ses_a"}


async def test_a_start_that_fails_leaves_no_hole(
    options: ClusterOptions, store: JetStreamStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later looks do not tell what was not read."""
    monkeypatch.setattr(connection, "READ_MESSAGES", 2)
    await save(store, *(row(f"ses_{number}") for number in range(5)))
    server, read = on_disk(options, tmp_path), Connection.read
    await server.open()

    async def fail(self: Connection, stream: connection.Stream, subject: str, start: int = 0) -> connection.Page:
        if start > 2:
            raise StoreUnavailable("NATS is away")
        return await read(self, stream, subject, start)

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "read", fail)
        with pytest.raises(StoreUnavailable):
            await server.sessions()
    await save(store, row("ses_5"))
    await server.look()
    await server.close()
    assert len(await list_at_start(options, tmp_path)) == 6


async def test_a_full_disk_ends_the_image_and_nothing_else(
    options: ClusterOptions, store: JetStreamStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await save(store, row("ses_a"))
    await list_at_start(options, tmp_path)
    await save(store, row("ses_b"))
    with capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr(list_image, "SAVE", "UPDATE nothing SET identity = ?, seen = ?, time = ?")
        assert (await list_at_start(options, tmp_path)).keys() == {"ses_a", "ses_b"}
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["cluster.list_not_saved"]
    assert (await list_at_start(options, tmp_path)).keys() == {"ses_a", "ses_b"}


async def test_without_a_directory_nothing_is_kept(tmp_path: Path) -> None:
    image = ListImage(None)
    await image.save(connection.StreamState("", 0, ""))
    assert not image.is_due
    image.close()
