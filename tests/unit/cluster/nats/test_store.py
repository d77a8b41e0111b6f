"""JetStreamStore keeps the contract on a real NATS server, also when NATS and other servers fail."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from shim.cluster.nats import connection as connections
from shim.cluster.nats.batches import envelope_of
from shim.cluster.nats.connection import Connection, Page
from shim.cluster.nats.layout import ClusterOptions, Stream
from shim.cluster.nats.store import MEASURE_S, JetStreamStore
from shim.cluster.transfer import copy
from shim.lib.errors import LimitReached, SessionElsewhere, StoreError
from shim.store.base import Checkpoint
from shim.store.ownership import ClaimedSession
from shim.store.servers import ServerRef, present
from shim.store.sqlite import SqliteStore
from tests.support.cluster.simulated_nats import SimulatedNats
from tests.support.cluster.virtual_time import ClusterLoop, elapse
from tests.support.nats_server import NatsServer
from tests.unit.cluster.nats.conftest import LIMITS, NUMBERS
from tests.unit.store.store_contract import CASES, event, journal, row

SEEN_S = 20


@pytest.mark.parametrize("name", CASES)
async def test_contract(store: JetStreamStore, name: str) -> None:
    await CASES[name](store)


async def end_lease(store: JetStreamStore, by: JetStreamStore) -> None:
    """Let a server look dead, as if it had been paused for longer than its lease."""
    opened = by._use()  # pyright: ignore[reportPrivateUsage]
    await opened.leases.end(store.server_id)
    assert store.server_id in (await by.look()).ended


async def sequences(store: JetStreamStore, session_id: str = "ses_a") -> list[int]:
    return [stored.sequence for stored in await store.events(session_id)]


# --- fencing ---------------------------------------------------------------------------------------------------------


async def test_append_of_a_server_that_lost_the_session_is_refused(store: JetStreamStore, other_store: JetStreamStore) -> None:
    store.save_session(row())
    store.append(journal(1, 3))
    await store.flush()
    await end_lease(store, by=other_store)
    claimed = await other_store.claim("ses_a")
    assert claimed == ClaimedSession(row())
    other_store.append([event(4, raw="other")])
    await other_store.flush()
    store.append(journal(4, 6))
    with pytest.raises(SessionElsewhere, match="at work in another opencode-shim"):
        await store.flush("ses_a")
    store.append(journal(7, 8))
    store.save_session(row(updated_ms=1))
    await store.flush()
    with pytest.raises(SessionElsewhere):
        await store.flush("ses_a")
    lost = (await store.look()).lost
    assert [(one.session_id, one.owner.id, one.stored) for one in lost] == [("ses_a", other_store.server_id, 3)]
    assert (await store.look()).lost == ()
    with pytest.raises(SessionElsewhere):  # what was shown and is not stored must not pass for stored
        await store.flush("ses_a")
    store.confirm_loss("ses_a")
    await store.flush("ses_a")
    found = await other_store.events("ses_a")
    assert [one.raw for one in found] == [None, None, None, "other"]
    assert await other_store.sessions() == [row()]


async def test_a_claim_alone_refuses_the_owner_before(store: JetStreamStore, other_store: JetStreamStore) -> None:
    """Without a marker in the journal the old owner's append would be taken, as long as the new one has not appended."""
    store.append(journal(1, 3))
    await store.flush()
    await end_lease(store, by=other_store)
    await other_store.claim("ses_a")
    store.append(journal(4, 5))
    await store.flush()
    other_store.append([event(4)])
    await other_store.flush()
    assert await sequences(other_store) == [1, 2, 3, 4]


async def test_row_and_checkpoint_of_a_server_that_lost_the_session_are_refused(
    store: JetStreamStore, other_store: JetStreamStore
) -> None:
    store.save_session(row())
    store.append(journal(1, 2))
    store.save_checkpoint("ses_a", Checkpoint(1, b"old"), {1: b"page"})
    await store.flush()
    await end_lease(store, by=other_store)
    await other_store.claim("ses_a")
    assert await other_store.checkpoint("ses_a") == Checkpoint(1, b"old", frozenset({1}))
    other_store.save_checkpoint("ses_a", Checkpoint(2, b"new"), {2: b"second"})
    await other_store.flush()
    store.save_checkpoint("ses_a", Checkpoint(2, b"stale"), {}, [1])
    await store.flush()
    store.save_session(row(updated_ms=1))
    await store.flush()
    assert await other_store.sessions() == [row()]
    assert await other_store.checkpoint("ses_a") == Checkpoint(2, b"new", frozenset({1, 2}))
    assert other_store.checkpoint_page("ses_a", 1) == b"page"


async def test_a_claim_that_is_missing_in_the_journal_owns_nothing_and_can_be_repeated(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the owner before writes in the meantime is still another server's."""
    store.append(journal(1, 3))
    await store.flush()
    await end_lease(store, by=other_store)
    append = Connection.append

    async def refuse(self: Connection, subject: str, payload: bytes, **more: Any) -> int:
        if ".journal." in subject:
            raise StoreError("NATS is full.")
        return await append(self, subject, payload, **more)

    monkeypatch.setattr(Connection, "append", refuse)
    with pytest.raises(StoreError):
        await other_store.claim("ses_a")
    assert other_store.peers.epoch_of("ses_a") == 1
    assert await other_store.owners() == {}
    monkeypatch.setattr(Connection, "append", append)
    store.append([event(4)])
    await store.flush("ses_a")
    await other_store.claim("ses_a")
    assert other_store.peers.epoch_of("ses_a") == 3
    assert await sequences(other_store) == [1, 2, 3, 4]


async def test_a_server_that_was_paused_within_its_claim_claims_nothing_after_a_later_owner(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim would stand after that of the later owner, whose next events would be refused."""
    store.append(journal(1, 3))
    await store.flush()
    await end_lease(store, by=other_store)
    append = Connection.append
    later = JetStreamStore(store.options, limits=LIMITS)
    await later.open()

    async def pause(self: Connection, subject: str, payload: bytes, **more: Any) -> int:
        if ".journal." in subject and envelope_of(payload).by == other_store.server_id:
            monkeypatch.setattr(Connection, "append", append)
            await end_lease(other_store, by=later)
            assert await later.claim("ses_a") == ClaimedSession(None)
            later.append([event(4)])
            await later.flush("ses_a")
        return await append(self, subject, payload, **more)

    monkeypatch.setattr(Connection, "append", pause)
    try:
        owner = await other_store.claim("ses_a")
        assert isinstance(owner, ServerRef) and owner.id == later.server_id
        later.append([event(5)])
        await later.flush("ses_a")
        assert await sequences(other_store) == [1, 2, 3, 4, 5]
    finally:
        await later.close()


async def test_a_loss_is_seen_before_the_next_append(store: JetStreamStore, other_store: JetStreamStore) -> None:
    store.save_session(row())
    await store.flush()
    await end_lease(store, by=other_store)
    await other_store.claim("ses_a")
    look = await store.look()
    assert [lost.session_id for lost in look.lost] == ["ses_a"]
    assert [change.owner.id for change in look.changes] == [other_store.server_id]


async def test_a_loss_says_what_was_stored_before_it_also_if_the_answer_was_lost(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients have seen those events: they are not told again."""
    store.save_session(row())
    store.append(journal(1, 2))
    await store.flush()
    append = Connection.append

    async def lose_answer(self: Connection, subject: str, payload: bytes, **more: Any) -> int:
        await append(self, subject, payload, **more)
        raise StoreError("The answer was lost.")

    monkeypatch.setattr(Connection, "append", lose_answer)
    store.append([event(3)])
    with pytest.raises(StoreError):
        await store.flush("ses_a")
    monkeypatch.setattr(Connection, "append", append)
    await end_lease(store, by=other_store)
    await other_store.claim("ses_a")
    other_store.append([event(4)])
    await other_store.flush()
    assert [lost.stored for lost in (await store.look()).lost] == [3]


async def test_a_lost_session_can_be_claimed_again_when_its_new_owner_is_gone(
    store: JetStreamStore, other_store: JetStreamStore
) -> None:
    """A prompt asks first whether the session can be written. The server that once lost it must not name a dead one for ever."""
    store.save_session(row())
    await store.flush()
    await end_lease(store, by=other_store)
    await other_store.claim("ses_a")
    with pytest.raises(SessionElsewhere):
        store.append([event(1)])
        await store.require_writable("ses_a")
    assert len((await store.look()).lost) == 1
    store.confirm_loss("ses_a")
    await end_lease(other_store, by=store)
    await store.require_writable("ses_a")
    assert await store.claim("ses_a") == ClaimedSession(row())
    store.append([event(1)])
    await store.flush("ses_a")
    assert (await store.look()).lost == ()


async def test_sessions_of_a_server_that_is_back_belong_to_it_again(store: JetStreamStore, other_store: JetStreamStore) -> None:
    """It was cut off for longer than its lease, and nobody has taken its sessions."""
    store.save_session(row())
    await store.flush()
    assert [change.session_id for change in (await other_store.look()).changes] == ["ses_a"]
    await end_lease(store, by=other_store)
    assert (await other_store.look()).back == ()
    leases = store._use().leases  # pyright: ignore[reportPrivateUsage]
    await leases._renew()  # pyright: ignore[reportPrivateUsage] - what it does three times in a lease
    async with asyncio.timeout(10):
        while not (back := (await other_store.look()).back):
            await asyncio.sleep(0.01)  # its word is on the way
    assert [(id_, owner.id) for id_, owner in back] == [("ses_a", store.server_id)]
    assert (await other_store.look()).back == ()


async def test_a_loss_that_a_look_and_an_append_find_is_reported_once(store: JetStreamStore, other_store: JetStreamStore) -> None:
    store.save_session(row())
    await store.flush()
    journals = store._use().journals  # pyright: ignore[reportPrivateUsage] - what an append finds while a look goes on
    for _ in range(2):
        journals.lose(journals.get("ses_a"), ServerRef(other_store.server_id))
    assert [lost.session_id for lost in (await store.look()).lost] == ["ses_a"]


async def test_the_next_claim_gets_a_released_session(store: JetStreamStore, other_store: JetStreamStore) -> None:
    """Its owner lives. Everything that was queued before is written."""
    store.save_session(row())
    store.append(journal(1, 3))
    await store.release("ses_a")
    assert await store.sessions() == [row()]
    assert (await store.look()).lost == ()
    (change,) = (await other_store.look()).changes
    assert (change.owner, change.row) == (ServerRef(""), row())
    assert await other_store.claim("ses_a") == ClaimedSession(row())
    other_store.append([event(4)])
    await other_store.flush()
    assert await sequences(store) == [1, 2, 3, 4]
    owner = await store.claim("ses_a")
    assert isinstance(owner, ServerRef)
    assert owner.id == other_store.server_id
    await store.release("ses_a")  # it is not ours: nothing happens
    other_store.append([event(5)])
    await other_store.flush("ses_a")


async def test_a_release_whose_answer_was_lost_is_done_once(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save_session(row())
    await store.flush()
    append, lost = Connection.append, list[str]()

    async def lose_answer(self: Connection, subject: str, payload: bytes, **more: Any) -> int:
        sequence = await append(self, subject, payload, **more)
        if not lost:
            lost.append(subject)
            raise StoreError("The answer was lost.")
        return sequence

    monkeypatch.setattr(Connection, "append", lose_answer)
    with pytest.raises(StoreError):
        await store.release("ses_a")
    await store.flush()
    assert await other_store.claim("ses_a") == ClaimedSession(row())
    assert (await store.look()).lost == ()


async def test_a_released_session_can_be_claimed_again(store: JetStreamStore) -> None:
    store.save_session(row())
    store.append(journal(1, 2))
    await store.release("ses_a")
    assert await store.claim("ses_a") == ClaimedSession(row())
    store.append([event(3)])
    await store.flush("ses_a")
    assert (await store.look()).lost == ()
    assert await sequences(store) == [1, 2, 3]


async def test_a_session_can_be_claimed_back(store: JetStreamStore, other_store: JetStreamStore) -> None:
    store.save_session(row())
    store.append(journal(1, 3))
    await store.flush()
    await end_lease(store, by=other_store)
    await other_store.claim("ses_a")
    other_store.append(journal(4, 5))
    await other_store.close()
    await store.look()
    assert await store.claim("ses_a") == ClaimedSession(row())
    assert store.last_sequence("ses_a") == 5
    store.append([event(6)])
    assert await sequences(store) == [1, 2, 3, 4, 5, 6]


async def test_an_id_that_two_servers_choose_at_once_has_one_journal(store: JetStreamStore, other_store: JetStreamStore) -> None:
    for one in (store, other_store):
        one.append([event(1, raw=one.server_id)])
        one.save_session(row())
    await asyncio.gather(store.flush(), other_store.flush())
    looks = [await store.look(), await other_store.look()]
    assert sorted(len(look.lost) for look in looks) == [0, 1]
    assert len(await store.events("ses_a")) == 1


# --- lost answers, lost servers --------------------------------------------------------------------------------------


async def test_an_append_whose_answer_was_lost_is_done_once(store: JetStreamStore, monkeypatch: pytest.MonkeyPatch) -> None:
    send, failing = Connection.append, ["journal", "KV"]

    async def lose_answer(self: Connection, subject: str, payload: bytes, **options: Any) -> int:
        number = await send(self, subject, payload, **options)
        if failing and failing[0] in subject and number > 1:
            failing.pop(0)
            raise StoreError("the answer is lost")
        return number

    monkeypatch.setattr(Connection, "append", lose_answer)
    store.append(journal(1, 3))
    await until_written(store)
    store.append(journal(4, 5))
    store.save_session(row())
    await until_written(store)
    store.append(journal(6, 7))
    await until_written(store)
    assert failing == []
    assert await sequences(store) == [1, 2, 3, 4, 5, 6, 7]
    assert await store.sessions() == [row()]
    assert (await store.look()).lost == ()


async def until_written(store: JetStreamStore) -> None:
    async with asyncio.timeout(SEEN_S):
        while True:
            try:
                await store.flush()
            except StoreError:
                await asyncio.sleep(0.01)
            else:
                return


async def test_flushed_writes_survive_a_crash_of_nats(private_nats: NatsServer, private_store: JetStreamStore) -> None:
    private_store.append(journal(1, 300))
    private_store.save_session(row())
    private_store.save_checkpoint("ses_a", Checkpoint(3, b"head"), {1: b"page"})
    private_store.set_value("models", "claude", [1])
    await private_store.flush()
    private_nats.stop(signal.SIGKILL)
    private_store.append(journal(301, 310))
    assert private_store.pending == 10
    private_nats.start()
    await until_written(private_store)
    private_store.append(journal(311, 320))
    assert await sequences(private_store) == list(range(1, 321))
    assert await private_store.sessions() == [row()]
    assert await private_store.checkpoint("ses_a") == Checkpoint(3, b"head", frozenset({1}))
    assert private_store.checkpoint_page("ses_a", 1) == b"page"
    assert await private_store.values("models") == {"claude": [1]}


async def test_flush_fails_within_its_bound_while_nats_hangs(
    private_nats: NatsServer, private_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    private_store.append(journal(1, 2))
    await private_store.flush()
    private_nats.pause()
    private_store.append(journal(3, 4))
    with pytest.raises(StoreError, match="does not answer"):
        async with asyncio.timeout(SEEN_S):
            await private_store.flush()
    assert private_store.failure is not None
    private_nats.resume()
    monkeypatch.setattr(connections, "REQUEST_S", 5.0)
    await until_written(private_store)
    assert private_store.failure is None
    assert await sequences(private_store) == [1, 2, 3, 4]


async def test_close_says_what_was_not_written(private_nats: NatsServer) -> None:
    store = JetStreamStore(ClusterOptions((private_nats.url,)), limits=LIMITS._replace(close_s=0.2))
    await store.open()
    store.append(journal(1, 2))
    private_nats.stop(signal.SIGKILL)
    with pytest.raises(StoreError, match="2 rows were not written"):
        await store.close()
    await store.close()


async def test_the_queue_is_bounded(private_nats: NatsServer) -> None:
    limits = LIMITS._replace(queue_rows=10, crowded_rows=5)
    store = JetStreamStore(ClusterOptions((private_nats.url,)), limits=limits)
    await store.open()
    private_nats.pause()
    store.append(journal(1, 10))
    room = store.room()
    assert room is not None
    with pytest.raises(StoreError, match=r"10 rows wait to be written .* Start NATS"):
        store.append([event(11)])
    assert store.last_sequence("ses_a") == 10
    private_nats.resume()
    await room
    store.append([event(11)])
    assert await sequences(store) == list(range(1, 12))
    await store.close()


# --- sizes -----------------------------------------------------------------------------------------------------------


async def test_a_reader_that_follows_a_journal_reads_each_message_once(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of another server would wait longer for each piece of an answer."""
    read, count = Connection.read, 0

    async def count_messages(connection: Connection, stream: Stream, subject: str, start: int = 0) -> Page:
        nonlocal count
        page = await read(connection, stream, subject, start)
        count += len(page.messages)
        return page

    monkeypatch.setattr(Connection, "read", count_messages)
    for number in range(1, 41):
        store.append([event(number)])
        await store.flush()
        await other_store.refresh("ses_a")
        before = count
        assert [row.sequence for row in await other_store.brief("ses_a", number - 1, 100)] == [number]
        assert count == before + 1
    assert await sequences(other_store) == list(range(1, 41))


async def test_events_larger_than_a_message_are_stored(store: JetStreamStore) -> None:
    large = "x" * (3 * 2**20)
    events = [event(1), event(2, data=replace_delta(large)), *journal(3, 400), event(401, raw="y" * 900_000), event(402)]
    store.append(events)
    assert await store.events("ses_a") == events
    assert [one.sequence for one in await store.events("ses_a", 1, 2)] == [2, 3]
    assert [one.sequence for one in await store.events("ses_a", 399)] == [400, 401, 402]


def replace_delta(text: str) -> Any:
    return event(1).data.model_copy(update={"delta": text})


async def test_a_checkpoint_larger_than_a_message_is_stored(store: JetStreamStore) -> None:
    head, page = b"h" * (2**21 + 5), b"p" * (2**20 + 7)
    store.save_checkpoint("ses_a", Checkpoint(1, head), {1: page})
    assert await store.checkpoint("ses_a") == Checkpoint(1, head, frozenset({1}))
    assert store.checkpoint_page("ses_a", 1) == page


async def test_a_value_larger_than_a_message_is_refused(store: JetStreamStore) -> None:
    with pytest.raises(StoreError, match=r"value models/claude: it has \d+ bytes"):
        store.set_value("models", "claude", "x" * 2**20)
    with pytest.raises(StoreError, match="session ses_a: it has"):
        store.save_session(row(data={"title": "x" * 2**20}))
    await store.flush()


async def test_replaced_pages_are_removed_from_nats(store: JetStreamStore) -> None:
    for number in range(1, 6):
        store.save_checkpoint("ses_a", Checkpoint(number, b"head"), {number: b"page"}, [number - 1])
        await store.flush()
    opened = store._use()  # pyright: ignore[reportPrivateUsage]
    page = await opened.connection.read(store.layout.blobs, store.layout.blobs.subjects)
    assert len(page.messages) == 2, "the newest head, and its page"


# --- several servers and clusters ------------------------------------------------------------------------------------


async def test_clusters_with_other_prefixes_share_a_nats(store: JetStreamStore) -> None:
    store.save_session(row())
    store.append(journal(1, 2))
    store.set_value("models", "claude", 1)
    await store.flush()
    other = JetStreamStore(replace(store.options, prefix=f"test{next(NUMBERS)}"), limits=LIMITS)
    await other.open()
    assert (await other.sessions(), await other.events("ses_a"), await other.values("models")) == ([], [], {})
    assert not other.is_shared()
    await other.close()


async def test_a_cluster_of_another_format_is_refused(options: ClusterOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shim.cluster.nats.layout.FORMAT", "0")
    first = JetStreamStore(options)
    with pytest.raises(StoreError, match=r"is of format 0 \(this version: 1\)"):
        await first.open()
    await first.close()


async def test_an_unreachable_nats_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_S", 0.5)
    store = JetStreamStore(ClusterOptions(("nats://user:secret@127.0.0.1:1",)))
    with pytest.raises(StoreError, match=r"Cannot connect to NATS at 127.0.0.1:1: ") as caught:
        await store.open()
    assert "secret" not in str(caught.value)


async def test_a_nats_without_jetstream_is_named(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text("accounts { A { users = [{user: u, password: p}] } }")
    server = NatsServer(tmp_path, "-c", str(conf))
    server.start()
    try:
        store = JetStreamStore(ClusterOptions((server.url.replace("nats://", "nats://u:p@"),)))
        with pytest.raises(StoreError, match="JetStream"):
            await store.open()
    finally:
        server.stop()


async def test_a_server_is_announced_in_its_data_directory(options: ClusterOptions, tmp_path: Path) -> None:
    store = JetStreamStore(options, directory=tmp_path)
    await store.open()
    store.announce("http://127.0.0.1:4096")
    [server] = present(tmp_path).living.values()
    assert (server.id, server.url) == (store.server_id, "http://127.0.0.1:4096")
    await store.close()
    assert present(tmp_path).living == {}


async def test_the_lease_of_a_killed_server_of_this_machine_is_not_waited_for(
    options: ClusterOptions, store: JetStreamStore, tmp_path: Path
) -> None:
    """Its file in the data directory has no lock any more: the kernel says that it is dead."""
    store.save_session(row())
    await store.flush()
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / f"{store.server_id}.json").write_text("{}")
    after = JetStreamStore(options, directory=tmp_path, limits=LIMITS)
    await after.open()
    assert after.dead() == (store.server_id,)
    assert await after.claim("ses_a") == ClaimedSession(row())
    after.forget(store.server_id)
    await after.close()


async def test_a_living_owner_is_named_with_its_machine(store: JetStreamStore, other_store: JetStreamStore) -> None:
    store.save_session(row())
    await store.flush()
    store.announce("http://127.0.0.1:4096")
    async with asyncio.timeout(SEEN_S):
        while not (owner := await other_store.claim("ses_a")).url:  # pyright: ignore[reportAttributeAccessIssue]
            await asyncio.sleep(0.01)
    assert isinstance(owner, ServerRef)
    assert str(owner).startswith(f"pid {owner.pid} on {owner.host}, http://")
    assert await other_store.owners() == {"ses_a": owner}


async def test_an_overview_shows_who_has_how_many_sessions(store: JetStreamStore, other_store: JetStreamStore) -> None:
    store.save_session(row())
    store.append(journal(1, 3))
    await store.flush()
    await other_store.look()
    for one, counts in ((store, [1, 0]), (other_store, [0, 1])):
        await one.look()
        overview = one.peers.overview()
        assert [status.sessions for status in overview.nodes] == counts
        assert [status.is_here for status in overview.nodes] == [True, False]
        assert overview.here.node.ref.id == one.server_id
        assert (overview.is_connected, overview.waiting, overview.spooled_bytes, overview.reconnects) == (True, 0, 0, 0)
    assert (store.peers.overview().append_s.count, other_store.peers.overview().append_s.count) == (1, 0)


async def test_an_overview_counts_refused_appends(store: JetStreamStore, other_store: JetStreamStore) -> None:
    store.save_session(row())
    await store.flush()
    await end_lease(store, by=other_store)
    await other_store.claim("ses_a")
    store.append(journal(1, 1))
    with pytest.raises(SessionElsewhere):
        await store.flush("ses_a")
    assert store.peers.overview().refused_appends == 1
    assert store.peers.overview().here.sessions == 0


# --- import and export -----------------------------------------------------------------------------------------------


async def test_sessions_go_into_a_cluster_and_back(store: JetStreamStore, tmp_path: Path) -> None:
    first, second = (SqliteStore(tmp_path / name / "journal.db") for name in ("first", "second"))
    for one in (first, second):
        await one.open()
    first.save_session(row(directory="/\udcff"))
    events = [event(1, raw={"x": "\ud83d"}), *journal(2, 1_500), event(1_501, data=replace_delta("x" * 2**21))]
    first.append(events)
    first.save_checkpoint("ses_a", Checkpoint(1_400, b"head"), {1: b"one"})
    first.set_value("models", "claude", [1])
    for source, target in ((first, store), (store, second)):
        done = await copy(source, target)
        assert (done.sessions, done.events, done.values, done.skipped) == (1, 1_501, 1, {})
        again = await copy(source, target)
        assert (again.sessions, again.events, again.values, again.same) == (0, 0, 0, 1)
    assert await second.rows("ses_a") == await first.rows("ses_a")
    assert await second.sessions() == await first.sessions()
    assert await second.checkpoint("ses_a") == Checkpoint(1_400, b"head", frozenset({1}))
    assert second.checkpoint_page("ses_a", 1) == b"one"
    assert await second.values("models") == {"claude": [1]}
    for one in (first, second):
        await one.close()


def test_a_start_waits_until_the_servers_of_nats_have_a_leader() -> None:
    """They have been started at the same moment."""
    nats = SimulatedNats()
    nats.has_leader = False

    async def main() -> None:
        store = JetStreamStore(ClusterOptions(("nats://simulated",)))
        opening = asyncio.create_task(store.open())
        await elapse(12.0)
        assert not opening.done()
        nats.has_leader = True
        await opening
        store.append([event(1)])
        await store.flush()
        await store.close()

    with patch.object(connections, "Client", nats.client):
        ClusterLoop().run(main())


async def test_servers_know_how_much_a_session_takes(store: JetStreamStore, other_store: JetStreamStore) -> None:
    store.append(journal(1, 3))
    store.save_session(row())
    await store.flush()
    size = store.size_of("ses_a")
    assert size is not None
    assert size > 3 * 100
    await other_store.look()
    assert other_store.size_of("ses_a") == size
    await end_lease(store, by=other_store)
    await other_store.claim("ses_a")
    other_store.append([event(4)])
    await other_store.flush()
    assert (other_store.size_of("ses_a") or 0) > size, "it goes on counting"
    other_store.delete_session("ses_a")
    await other_store.flush()
    assert other_store.size_of("ses_a") is None


@pytest.mark.parametrize(
    ("bound", "limit"), [("max_bytes", "cluster_max_bytes"), ("max_session_bytes", "cluster_max_session_bytes")]
)
async def test_no_prompt_is_taken_beyond_a_bound(store: JetStreamStore, bound: str, limit: str) -> None:
    store.append(journal(1, 3))
    store.save_session(row())
    await store.flush()
    store.options = replace(store.options, **{bound: 200})
    store._use().measured_s = -MEASURE_S  # pyright: ignore[reportPrivateUsage]
    await store.look()
    with pytest.raises(LimitReached, match=rf"{limit} = 200"):
        await store.require_writable("ses_a")
    store.append([event(4)])  # of a turn that runs
    await store.flush("ses_a")
    store.options = replace(store.options, **{bound: 2**30})
    await store.require_writable("ses_a")
