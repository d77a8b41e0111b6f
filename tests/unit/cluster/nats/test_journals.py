"""A deletion in JetStream is final: what comes behind it, late or from another server, brings nothing back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shim.cluster.nats import store as stores
from shim.cluster.nats.connection import Connection
from shim.cluster.nats.layout import Stream
from shim.cluster.nats.store import JetStreamStore
from shim.lib.errors import SessionElsewhere, SessionNotFound, StoreError, StoreUnavailable
from shim.store.base import Checkpoint
from tests.unit.cluster.nats.conftest import LIMITS
from tests.unit.store.store_contract import event, journal, row


async def sequences(store: JetStreamStore) -> list[int]:
    return [stored.sequence for stored in await store.events("ses_a")]


async def test_a_deleted_session_leaves_an_entry_that_expires_and_nothing_else(
    store: JetStreamStore, other_store: JetStreamStore
) -> None:
    store.append(journal(1, 5))
    store.save_session(row())
    store.save_checkpoint("ses_a", Checkpoint(1, b"head"), {1: b"page"})
    await store.flush()
    await other_store.look()
    store.delete_session("ses_a")
    await store.flush()
    assert [(change.session_id, change.row) for change in (await other_store.look()).changes] == [("ses_a", None)]
    connection = store._use().connection  # pyright: ignore[reportPrivateUsage]
    for stream in (store.layout.journal, store.layout.blobs, store.layout.checkpoints):
        assert (await connection.read(stream, stream.subjects)).messages == []
    assert await other_store.sessions() == []
    other_store.append(journal(1, 2))
    assert await sequences(other_store) == [1, 2], "its id may be used again"
    assert (await other_store.look()).lost == ()


async def test_a_look_tells_of_this_servers_own_deletion(store: JetStreamStore) -> None:
    """It may have waited while another server had the session, which is listed again then."""
    store.append(journal(1, 5))
    store.save_session(row())
    await store.flush()
    assert (await store.look()).changes == ()
    store.delete_session("ses_a")
    await store.flush()
    assert [(change.session_id, change.row) for change in (await store.look()).changes] == [("ses_a", None)]
    store.append(journal(1, 2))
    await store.flush()
    look = await store.look()
    assert (look.changes, look.lost) == ((), ())


LATE_WRITES: dict[str, Callable[[JetStreamStore], object]] = {
    "a row": lambda store: store.save_session(row()),
    "a checkpoint": lambda store: store.save_checkpoint("ses_a", Checkpoint(1, b"head"), {}),
    "another deletion": lambda store: store.delete_session("ses_a"),
}
"""What may be written behind a deletion, by who has not heard of it."""


@pytest.mark.parametrize("late", LATE_WRITES)
async def test_a_deletion_is_final(store: JetStreamStore, other_store: JetStreamStore, late: str) -> None:
    """Only the first events of a new session pass it: no claim, nor what is written late, at both servers."""
    store.append(journal(1, 3))
    store.save_session(row())
    await store.flush()
    await other_store.sessions()
    store.delete_session("ses_a")
    LATE_WRITES[late](store)
    await store.flush()
    for one in (store, other_store):
        with pytest.raises(SessionNotFound):
            await one.claim("ses_a")
    LATE_WRITES[late](store)
    await store.flush()
    await other_store.release("ses_a")  # of a server that was about to take the session over
    assert await store.sessions() == await other_store.sessions() == []
    assert [change.row for change in (await other_store.look()).changes] == [None]


async def test_events_of_a_session_that_was_deleted_meanwhile_are_those_of_no_session(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no damage of the store: a client that reads it gets a 404, and a list of many sessions goes on."""
    store.append(journal(1, 3))
    store.save_session(row())
    await store.flush()
    assert len(await other_store.events("ses_a")) == 3
    await other_store.refresh("ses_a")
    store.delete_session("ses_a")
    await store.flush()
    monkeypatch.setattr(stores, "READ_TRIES", 2)
    with pytest.raises(SessionNotFound):
        await other_store.events("ses_a")


async def test_a_claim_of_a_session_whose_deletion_is_forgotten_finds_nothing(store: JetStreamStore) -> None:
    """Its entry has expired. A server that was paused for longer still knows the session."""
    with pytest.raises(SessionNotFound):
        await store.claim("ses_long_gone")
    assert await store.sessions() == []


async def test_a_deletion_that_failed_after_its_entry_is_done_by_its_repetition(
    store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(journal(1, 3))
    await store.flush()
    purge, failures = Connection.purge, [StoreError("no room")]

    async def fail_once(self: Connection, stream: Stream, subject: str) -> None:
        if failures:
            raise failures.pop()
        await purge(self, stream, subject)

    monkeypatch.setattr(Connection, "purge", fail_once)
    store.delete_session("ses_a")
    with pytest.raises(StoreError, match="no room"):
        await store.flush("ses_a")
    await store.flush("ses_a")
    assert (await store.look()).lost == ()
    connection = store._use().connection  # pyright: ignore[reportPrivateUsage]
    assert (await connection.read(store.layout.journal, store.layout.journal.subjects)).messages == []


async def test_a_new_session_is_not_mixed_with_the_rest_of_a_deleted_one(
    store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server died between the entry and the journal."""
    store.append(journal(1, 5))
    await store.flush()
    purge = Connection.purge

    async def die(*_: Any) -> None:
        raise StoreError("dead")

    monkeypatch.setattr(Connection, "purge", die)
    store.delete_session("ses_a")
    with pytest.raises(StoreError, match="dead"):
        await store.flush()
    again = JetStreamStore(store.options, limits=LIMITS)
    await again.open()
    monkeypatch.setattr(Connection, "purge", purge)
    again.append([event(1, raw="new")])
    assert [one.raw for one in await again.events("ses_a")] == ["new"]
    await again.close()


@pytest.mark.parametrize("heard", ["by a refused append", "by a look"])
async def test_a_session_that_was_lost_and_then_deleted_does_not_come_back(
    store: JetStreamStore, other_store: JetStreamStore, heard: str
) -> None:
    """The agent here works on until the loss is dealt with, and what it stores must not pass for a new session."""
    store.save_session(row())
    store.append(journal(1, 3))
    await store.flush()
    await other_store._use().leases.end(store.server_id)  # pyright: ignore[reportPrivateUsage] - as if it had been cut off
    await other_store.look()
    await other_store.claim("ses_a")
    if heard == "by a refused append":
        store.append([event(4)])
        await store.flush()
    other_store.delete_session("ses_a")
    await other_store.flush()
    assert [lost.session_id for lost in (await store.look()).lost] == ["ses_a"]
    store.append(journal(4, 5))
    store.save_session(row(updated_ms=1))
    await store.flush()
    assert await other_store.sessions() == []
    store.confirm_loss("ses_a")
    with pytest.raises(SessionNotFound):
        await store.claim("ses_a")
    assert await store.sessions() == []


async def test_an_answer_that_comes_after_the_loss_of_a_session_changes_nothing(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append was stored. Meanwhile another server has taken the session, and has written more than this one."""
    store.append(journal(1, 3))
    store.save_session(row())
    await store.flush()
    journals, connection = store._use().journals, store._use().connection  # pyright: ignore[reportPrivateUsage]
    append = connection.append

    async def append_slowly(subject: str, payload: bytes, **more: Any) -> int:
        position = await append(subject, payload, **more)
        monkeypatch.setattr(connection, "append", append)
        await other_store._use().leases.end(store.server_id)  # pyright: ignore[reportPrivateUsage] - as if it had been cut off
        await other_store.look()
        await other_store.claim("ses_a")
        other_store.append(journal(5, 9))
        other_store.save_session(row(updated_ms=1))
        await other_store.flush()
        assert [lost.session_id for lost in (await store.look()).lost] == ["ses_a"]
        store.confirm_loss("ses_a")
        return position

    monkeypatch.setattr(connection, "append", append_slowly)
    store.append([event(4)])
    with pytest.raises(SessionElsewhere):
        await store.flush("ses_a")
    assert journals.get("ses_a").stored == 3, "event 4 is the other server's to tell of"
    await store.refresh("ses_a")
    assert store.last_sequence("ses_a") == 9


async def test_a_session_whose_creation_was_repeated_is_not_lost_to_its_own_server(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two answers were lost: of the entry that creates it, and of the one that the repetition has written."""
    connection, lost = store._use().connection, 2  # pyright: ignore[reportPrivateUsage]
    append = connection.append

    async def lose_answers(subject: str, payload: bytes, **more: Any) -> int:
        nonlocal lost
        position = await append(subject, payload, **more)
        if subject == store.layout.session_key("ses_a") and lost:
            lost -= 1
            raise StoreUnavailable("the answer was lost")
        return position

    monkeypatch.setattr(connection, "append", lose_answers)
    store.append(journal(1, 3))
    store.save_session(row())
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.flush("ses_a")
    await store.flush("ses_a")
    assert lost == 0
    assert (await store.look()).lost == ()
    assert [one.id for one in await other_store.sessions()] == ["ses_a"]
    assert await sequences(other_store) == [1, 2, 3]
