"""`opencode-shim backup` and `restore`, with a server on the directory and without one."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shim.cli.backup import DATABASE, BackupError, backup, restore
from shim.lib.errors import StoreError
from shim.store.sqlite import SqliteStore, migrations
from tests.unit.store.store_contract import event, row

NEWEST = len(migrations())


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An open store with a journal, and what lies beside it."""
    data = tmp_path / "data"
    store = SqliteStore(data / DATABASE)
    await store.open()
    store.save_session(row())
    store.append([event(number) for number in range(1, 11)])
    await store.flush()
    (data / "auth.json").write_text('{"anthropic": "sk-test"}')
    (data / "trust.json").write_text("{}")
    (data / "snapshots" / "p").mkdir(parents=True)
    (data / "snapshots" / "p" / "object").write_bytes(b"\0snapshot")
    (data / "snapshots" / "p" / "index.lock").write_bytes(b"")
    (data / "snapshots" / "p" / "link").symlink_to("/etc/passwd")
    (data / "agents").mkdir()
    (data / "agents" / "large").write_bytes(b"not backed up")
    yield store
    await store.close()


def names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


async def test_a_backup_of_a_store_in_use_is_restored_as_it_was(store: SqliteStore, tmp_path: Path) -> None:
    file, fresh = tmp_path / "b.tar.gz", tmp_path / "fresh"
    done = backup(tmp_path / "data", file)
    assert (done.files, done.schema) == (4, NEWEST)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert names(file) == ["manifest.json", DATABASE, "trust.json", "auth.json", "snapshots/p/object"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "data"], "nothing else is left"

    assert restore(fresh, file).files == 4
    assert json.loads((fresh / "auth.json").read_text()) == {"anthropic": "sk-test"}
    assert stat.S_IMODE((fresh / "auth.json").stat().st_mode) == 0o600
    assert (fresh / "snapshots" / "p" / "object").read_bytes() == b"\0snapshot"
    restored = SqliteStore(fresh / DATABASE)
    await restored.open()
    try:
        assert [one.sequence for one in await restored.events("ses_a")] == list(range(1, 11))
    finally:
        await restored.close()


def test_keys_can_be_left_out(store: SqliteStore, tmp_path: Path) -> None:
    backup(tmp_path / "data", tmp_path / "b.tar.gz", keys=False)
    assert "auth.json" not in names(tmp_path / "b.tar.gz")


def test_a_backup_overwrites_nothing(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "b.tar.gz").write_text("mine")
    with pytest.raises(BackupError, match="exists already"):
        backup(tmp_path / "data", tmp_path / "b.tar.gz")
    assert (tmp_path / "b.tar.gz").read_text() == "mine"


def test_nothing_is_restored_below_a_running_server(store: SqliteStore, tmp_path: Path) -> None:
    backup(tmp_path / "data", tmp_path / "b.tar.gz")
    with pytest.raises(StoreError, match=rf"pid {os.getpid()}"):
        restore(tmp_path / "data", tmp_path / "b.tar.gz", replace=True)
    with pytest.raises(BackupError, match="There is no file"):  # the nearer cause
        restore(tmp_path / "data", tmp_path / "nosuch.tar.gz")


async def test_existing_data_is_moved_aside_only_on_request(store: SqliteStore, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "b.tar.gz"
    backup(data, file)
    await store.close()
    with pytest.raises(BackupError, match="--replace"):
        restore(data, file)
    (data / "trust.json").write_text('{"changed": true}')
    aside = restore(data, file, replace=True).aside
    assert aside == data / "before-restore-1"
    assert (data / "trust.json").read_text() == "{}"
    assert (aside / "trust.json").read_text() == '{"changed": true}'
    assert (data / "agents" / "large").exists(), "what is not in a backup stays"


def archive(path: Path, members: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w:gz") as out:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(content), kind, "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            out.addfile(member, io.BytesIO(content))
    return path


MANIFEST = json.dumps({"format": 1}).encode()


@pytest.mark.parametrize(
    ("members", "kind", "why"),
    [
        ({"../x": b""}, tarfile.REGTYPE, "it holds '../x'"),
        ({"snapshots/../../x": b""}, tarfile.REGTYPE, "no backup"),
        ({"config.toml": b""}, tarfile.REGTYPE, "it holds 'config.toml'"),
        ({"trust.json": b""}, tarfile.SYMTYPE, "it holds 'trust.json'"),
        ({"manifest.json": MANIFEST}, tarfile.REGTYPE, "no manifest.json or no opencode-shim.db"),
        ({"manifest.json": b'{"format": 2, "version": "9.0.0"}'}, tarfile.REGTYPE, "written by opencode-shim 9.0.0"),
        ({"manifest.json": MANIFEST, DATABASE: b"no database" * 100}, tarfile.REGTYPE, "not a database"),
    ],
)
def test_a_file_that_is_no_backup_is_refused_and_nothing_changes(
    tmp_path: Path, members: dict[str, bytes], kind: bytes, why: str
) -> None:
    data = tmp_path / "data"
    with pytest.raises((BackupError, StoreError), match=why):
        restore(data, archive(tmp_path / "b.tar.gz", members, kind))
    assert [path.name for path in data.iterdir()] == ["server.lock"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "data"]


async def test_a_backup_that_is_cut_off_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    backup(tmp_path / "data", file)
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(BackupError, match="cut off"):
        restore(tmp_path / "fresh", file)
