"""Copies between stores: everything arrives, a repeated copy writes nothing, and nothing that is there is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shim.cli.commands import cli
from shim.cluster.transfer import copy
from shim.lib.errors import StoreError
from shim.main.choose_store import DATABASE
from shim.store.base import Checkpoint, Store
from shim.store.memory import MemoryStore
from shim.store.sqlite import SqliteStore
from tests.unit.store.store_contract import RAW, event, journal, row
from universal.events import UniversalEvent

LARGE = "x" * 100


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Two sessions, one of which has a checkpoint, and values."""
    store = SqliteStore(tmp_path / "source" / "journal.db")
    await store.open()
    store.save_session(row("ses_a"))
    store.append([event(number, raw=raw) for number, raw in enumerate(RAW, 1)])
    store.append(journal(len(RAW) + 1, 2_500))
    store.save_checkpoint("ses_a", Checkpoint(2_400, b"head"), {1: b"one", 2: b"two"})
    store.save_session(row("ses_b", parent_id="ses_a", directory="/\udcff"))
    store.append(journal(1, 3, "ses_b"))
    store.set_value("models", "claude", [1])
    store.set_value("universal", "my name", {"session": "ses_a"})
    await store.flush()
    yield store
    await store.close()


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "target" / "journal.db")
    await store.open()
    yield store
    await store.close()


async def assert_same(source: Store, target: Store) -> None:
    assert sorted(await source.sessions(), key=lambda one: one.id) == sorted(await target.sessions(), key=lambda one: one.id)
    for session_id in ("ses_a", "ses_b"):
        assert await source.rows(session_id) == await target.rows(session_id)
        assert await source.checkpoint(session_id) == await target.checkpoint(session_id)
    assert [target.checkpoint_page("ses_a", number) for number in (1, 2)] == [b"one", b"two"]
    assert await target.values("models") == {"claude": [1]}
    assert await target.values("universal") == {"my name": {"session": "ses_a"}}


async def test_all_is_copied_once(source: SqliteStore, target: SqliteStore) -> None:
    reports: list[str] = []
    done = await copy(source, target, reports.append)
    assert (done.sessions, done.events, done.values, done.same, done.skipped) == (2, 2_503, 2, 0, {})
    assert len(reports) == 2
    await assert_same(source, target)
    again = await copy(source, target)
    assert (again.sessions, again.events, again.values, again.same, again.skipped) == (0, 0, 0, 2, {})


async def test_an_interrupted_copy_goes_on(source: SqliteStore, target: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    append, pages = SqliteStore.append, [1, 2]

    def fail(self: SqliteStore, events: list[object]) -> None:
        if self is target and not pages:
            raise StoreError("cut off")
        pages.pop()
        append(self, events)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(SqliteStore, "append", fail)
    with pytest.raises(StoreError, match="cut off"):
        await copy(source, target)
    monkeypatch.setattr(SqliteStore, "append", append)
    done = await copy(source, target)
    assert done.events == 503
    await assert_same(source, target)


async def test_a_session_that_went_on_is_added_to(source: SqliteStore, target: SqliteStore) -> None:
    await copy(source, target)
    source.append(journal(2_501, 2_510))
    source.save_session(row("ses_a", updated_ms=7))
    done = await copy(source, target)
    assert (done.sessions, done.events, done.same) == (1, 10, 1)
    await assert_same(source, target)


async def test_a_session_that_is_ahead_in_the_target_stays(source: SqliteStore, target: SqliteStore) -> None:
    await copy(source, target)
    target.append(journal(2_501, 2_510))
    done = await copy(source, target)
    assert (done.sessions, done.same, done.skipped) == (0, 2, {})
    assert target.last_sequence("ses_a") == 2_510


async def test_a_session_that_went_on_in_both_is_left_and_named(source: SqliteStore, target: SqliteStore) -> None:
    await copy(source, target)
    target.append([event(2_501, raw="there")])
    source.append([event(2_501, raw="here"), event(2_502)])
    done = await copy(source, target)
    assert (done.sessions, done.skipped) == (0, {"ses_a": "it went on differently in both places"})
    assert [found.raw for found in await target.events("ses_a", 2_500)] == ["there"]


async def test_existing_values_stay(source: SqliteStore, target: SqliteStore) -> None:
    target.set_value("models", "claude", [2])
    assert (await copy(source, target)).values == 1
    assert await target.values("models") == {"claude": [2]}


async def test_a_session_at_work_is_left_and_named(source: SqliteStore, target: SqliteStore) -> None:
    """Another server on the same data has it."""
    busy = SqliteStore(source.path)
    await busy.open()
    busy.save_session(row("ses_c"))
    await busy.flush()
    done = await copy(source, target)
    assert (done.sessions, list(done.skipped)) == (2, ["ses_c"])
    assert "at work in another opencode-shim (pid" in done.skipped["ses_c"]
    await busy.close()


async def test_a_session_at_work_is_copied_without_claims(
    source: SqliteStore, target: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on meanwhile: its new checkpoint is ahead of what was copied, and is left out."""
    busy = SqliteStore(source.path)
    await busy.open()
    busy.save_session(row("ses_c"))
    busy.append(journal(1, 4, "ses_c"))
    await busy.flush()
    events = source.events

    async def go_on(session_id: str, after: int = 0, limit: int | None = None) -> list[UniversalEvent]:
        page = await events(session_id, after, limit)
        if session_id == "ses_c" and not page:
            busy.append(journal(5, 9, "ses_c"))
            busy.save_checkpoint("ses_c", Checkpoint(9, b"head"), {})
            await busy.flush()
        return page

    monkeypatch.setattr(source, "events", go_on)
    done = await copy(source, target, claims=False)
    assert (done.sessions, done.skipped) == (3, {})
    assert len(await target.rows("ses_c")) == 4
    assert await target.checkpoint("ses_c") is None
    monkeypatch.undo()
    assert (await copy(source, target, claims=False)).events == 5
    assert await target.rows("ses_c") == await busy.rows("ses_c")
    assert await target.checkpoint("ses_c") == Checkpoint(9, b"head")
    await busy.close()


async def test_any_two_stores_can_be_copied(source: SqliteStore) -> None:
    memory = MemoryStore()
    await memory.open()
    await copy(source, memory)
    await assert_same(source, memory)


# --- opencode-shim cluster import, export ---------------------------------------------------------------------------------


async def fill(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    store.save_session(row())
    store.append(journal(1, 3))
    await store.close()


async def count(path: Path) -> int:
    store = SqliteStore(path)
    await store.open()
    events = await store.events("ses_a")
    await store.close()
    return len(events)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["cluster", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_sessions_go_into_the_cluster_and_back(tmp_path: Path) -> None:
    database = tmp_path / DATABASE
    asyncio.run(fill(database))
    arguments = ("--cluster", "embedded", "--data-dir", str(tmp_path))
    done = run("import", *arguments)
    assert "1 sessions with 3 new events" in done
    assert f"from {database} to the cluster embedded (shim)" in done.replace("\n", "")
    assert "0 sessions with 0 new events" in run("import", *arguments)
    database.unlink()
    done = run("export", *arguments)
    assert "1 sessions with 3 new events" in done
    assert "Nothing was deleted" in done
    assert asyncio.run(count(database)) == 3


def test_a_missing_cluster_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Name its NATS servers: --cluster nats://HOST"):
        CliRunner().invoke(cli, ["cluster", "import", "--data-dir", str(tmp_path)], catch_exceptions=False)
