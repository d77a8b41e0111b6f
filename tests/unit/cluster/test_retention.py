"""`cluster prune` removes whole families that were idle for long, after a copy, and lets their servers do it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shim.cluster.nats.store import JetStreamStore
from shim.cluster.peers import Answer, Command
from shim.cluster.retention import prune_store
from shim.store.rows import SessionRow
from shim.store.sqlite import SqliteStore
from tests.unit.cluster.nats.conftest import options, other_store, shared_nats, store
from tests.unit.store.store_contract import event, row

__all__ = ["options", "other_store", "shared_nats", "store"]

NOW_MS = 1_000


def session(session_id: str, updated_ms: int, parent: str | None = None, *, busy: bool = False) -> SessionRow:
    return row(session_id)._replace(parent_id=parent, updated_ms=updated_ms, data={"busy": busy})


async def make(store: JetStreamStore, *rows: SessionRow) -> None:
    for one in rows:
        store.save_session(one)
        store.append([event(1, one.id), event(2, one.id)])
    await store.flush()


async def serve_deletions(store: JetStreamStore, status: int = 200) -> list[str]:
    """Let a server delete its sessions for others. Out: what it was asked."""
    asked: list[str] = []

    @asynccontextmanager
    async def handle(command: Command) -> AsyncGenerator[Answer]:
        asked.append(f"{command.method} {command.path}")
        if status == 200:
            store.delete_session(command.path.rpartition("/")[2])
            await store.flush()

        async def chunks() -> AsyncGenerator[bytes]:
            yield json.dumps(status == 200).encode()

        yield Answer(status, (), chunks())

    await store.peers.serve(handle)
    return asked


async def test_idle_sessions_move_to_a_file_that_opens_again(
    store: JetStreamStore, other_store: JetStreamStore, tmp_path: Path
) -> None:
    await make(other_store, session("ses_theirs", 1), session("ses_child", 2, "ses_theirs"), session("ses_new", NOW_MS))
    await make(store, session("ses_mine", 1))
    asked = await serve_deletions(other_store)
    archive = SqliteStore(tmp_path / "archive.db")
    await archive.open()
    lines: list[str] = []
    say = lambda text, style: lines.append(text)  # noqa: E731
    assert await prune_store(store, archive, say, before_ms=NOW_MS, is_rehearsal=True) == {}
    assert len(await store.sessions()) == 4, "nothing is removed yet"
    assert lines[-1] == "Would remove 3 sessions with 6 events."
    assert await prune_store(store, archive, say, before_ms=NOW_MS, is_rehearsal=False) == {}
    assert lines[-1] == "Removed 3 sessions with 6 events."
    assert asked == ["DELETE /session/ses_child", "DELETE /session/ses_theirs"]
    assert [one.id for one in await store.sessions()] == ["ses_new"]
    await archive.close()
    again = SqliteStore(tmp_path / "archive.db")
    await again.open()
    assert {one.id: one.parent_id for one in await again.sessions()} == {
        "ses_mine": None,
        "ses_theirs": None,
        "ses_child": "ses_theirs",
    }
    assert [one.sequence for one in await again.events("ses_theirs")] == [1, 2]
    await again.close()


async def test_a_session_that_its_server_does_not_delete_stays(store: JetStreamStore, other_store: JetStreamStore) -> None:
    await make(other_store, session("ses_theirs", 1))
    await serve_deletions(other_store, 409)
    skipped = await prune_store(store, None, lambda text, style: None, before_ms=NOW_MS, is_rehearsal=False)
    assert list(skipped) == ["ses_theirs"]
    assert "409" in skipped["ses_theirs"]
    assert [one.id for one in await store.sessions()] == ["ses_theirs"]


async def test_a_session_that_is_used_meanwhile_stays(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(other_store, session("ses_theirs", 1))
    owners = store.owners

    async def use_meanwhile() -> object:
        found = await owners()
        other_store.save_session(session("ses_theirs", NOW_MS))
        await other_store.flush()
        return found

    monkeypatch.setattr(store, "owners", use_meanwhile)
    skipped = await prune_store(store, None, lambda text, style: None, before_ms=NOW_MS, is_rehearsal=False)
    assert skipped == {"ses_theirs": "it was used meanwhile"}
    assert [one.id for one in await store.sessions()] == ["ses_theirs"]
