"""Two stores on one file: each session belongs to one of them, and the other sees what is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from shim.store.ownership import ClaimedSession, Ownership
from shim.store.servers import ServerRef
from shim.store.sqlite import SqliteStore
from tests.unit.store.store_contract import event, journal, row

URL = "http://127.0.0.1:4096"


@pytest.fixture
async def two_stores(tmp_path: Path) -> AsyncIterator[tuple[SqliteStore, SqliteStore]]:
    """Two servers' stores on the same file."""
    stores = SqliteStore(tmp_path / "journal.db"), SqliteStore(tmp_path / "journal.db")
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


async def test_a_session_belongs_to_the_server_that_made_it(two_stores: tuple[SqliteStore, SqliteStore]) -> None:
    first, second = two_stores
    first.announce(URL)
    first.save_session(row())
    first.append(journal(1, 3))
    await first.flush()
    owner = await second.claim("ses_a")
    assert isinstance(owner, ServerRef)
    assert (owner.id, owner.url, str(owner)) == (first.server_id, URL, f"pid {owner.pid}, {URL}")
    assert await second.owners() == {"ses_a": owner}
    assert await first.claim("ses_a") == ClaimedSession(None), "ours already: nothing new"
    await first.close()
    assert await second.owners() == {}
    assert await second.claim("ses_a") == ClaimedSession(row())
    second.append([event(4)])
    assert [one.sequence for one in await second.events("ses_a")] == [1, 2, 3, 4]


async def test_the_first_claim_of_an_older_session_wins(two_stores: tuple[SqliteStore, SqliteStore], tmp_path: Path) -> None:
    first, second = two_stores
    third = SqliteStore(tmp_path / "journal.db")
    await third.open()
    third.save_session(row())
    await third.close()
    assert isinstance(await second.claim("ses_a"), ClaimedSession)
    assert isinstance(await first.claim("ses_a"), ServerRef)


async def test_changes_of_another_server_are_seen_once(two_stores: tuple[SqliteStore, SqliteStore]) -> None:
    first, second = two_stores
    assert (await second.look()).changes == ()
    first.save_session(row())
    await first.flush()
    [change] = (await second.look()).changes
    assert (change.session_id, change.row, change.owner.id) == ("ses_a", row(), first.server_id)
    assert (await second.look()).changes == ()
    changed = row()._replace(updated_ms=99)
    first.save_session(changed)
    first.save_session(row("ses_b"))
    await first.flush()
    assert [one.row for one in (await second.look()).changes] == [changed, row("ses_b")]
    first.delete_session("ses_a")
    await first.flush()
    assert [(one.session_id, one.row) for one in (await second.look()).changes] == [("ses_a", None)]
    assert (await first.look()).changes == (), "what it has stored itself is no news"


async def test_how_far_the_others_journal_has_come_is_asked_for(two_stores: tuple[SqliteStore, SqliteStore]) -> None:
    first, second = two_stores
    first.append(journal(1, 5))
    await first.flush()
    assert second.last_sequence("ses_a") == 0
    await second.refresh("ses_a")
    assert second.last_sequence("ses_a") == 5


async def test_the_end_of_a_server_is_reported_once(two_stores: tuple[SqliteStore, SqliteStore]) -> None:
    first, second = two_stores
    await second.look()
    assert second.is_shared()
    await first.close()
    assert (await second.look()).ended == (first.server_id,)
    assert (await second.look()).ended == ()
    assert not second.is_shared()


async def test_deleted_sessions_are_forgotten_by_who_comes_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "journal.db")
    await store.open()
    store.save_session(row())
    store.delete_session("ses_a")
    await store.close()
    again = SqliteStore(tmp_path / "journal.db")
    await again.open()
    assert (await again.look()).changes == ()
    await again.close()


async def test_a_memory_store_is_not_shared() -> None:
    alone = Ownership()
    assert await alone.claim("ses_a") == ClaimedSession(None)
    assert (await alone.owners(), (await alone.look()).changes, alone.dead(), alone.is_shared()) == ({}, (), (), False)


@pytest.mark.parametrize("call", [SqliteStore.refresh, SqliteStore.claim])
async def test_events_that_are_queued_while_the_database_is_read_are_not_forgotten(
    two_stores: tuple[SqliteStore, SqliteStore], monkeypatch: pytest.MonkeyPatch, call: Callable[..., Awaitable[object]]
) -> None:
    store, _ = two_stores
    in_thread = store._in_thread  # pyright: ignore[reportPrivateUsage]

    async def read_and_append(work: Callable[[], object]) -> object:
        monkeypatch.undo()
        result = await in_thread(work)
        store.append(journal(1, 3))
        return result

    monkeypatch.setattr(store, "_in_thread", read_and_append)
    await call(store, "ses_a")
    assert store.last_sequence("ses_a") == 3
    store.append([event(4)])
    assert [one.sequence for one in await store.events("ses_a")] == [1, 2, 3, 4]
