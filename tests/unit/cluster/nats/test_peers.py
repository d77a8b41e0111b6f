"""What a server learns of the journals of others: by words, and by reading, also from a copy that is behind."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from shim.cluster.nats import peers as peers_module
from shim.cluster.nats.batches import Envelope, claim
from shim.cluster.nats.connection import Message, Page
from shim.cluster.nats.layout import Layout
from shim.cluster.nats.peers import JetStreamPeers
from shim.cluster.nats.store import JetStreamStore
from shim.cluster.peers import Growth
from tests.unit.store.store_contract import event


class LaggingConnection:
    """A stream of which the copy that is asked gets one message more with each read. In: `count`, of the first read."""

    def __init__(self, count: int) -> None:
        self._messages = [Message(number, "shim.journal.ses_a", claim("other", number, 0).payload) for number in range(1, 9)]
        self._count = count
        self.reads = 0

    async def read(self, stream: object, subject: object, start: int) -> Page:
        self.reads += 1
        count, self._count = self._count, self._count + 1
        return Page([message for message in self._messages[:count] if message.sequence >= start], False)


def peers_on(connection: LaggingConnection) -> JetStreamPeers:
    unused: Any = None
    fake: Any = connection
    return JetStreamPeers(fake, Layout("shim", 1.0), unused, "here", unused, unused, unused, unused)


async def test_messages_that_a_copy_of_the_stream_does_not_have_yet_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "READ_AGAIN_S", 0.0)
    connection = LaggingConnection(2)
    growths = await peers_on(connection).growths(1, 5)
    assert [growth.position for growth in growths] == [2, 3, 4, 5]
    assert connection.reads == 4


async def test_messages_that_are_gone_are_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "READ_AGAIN_S", 0.0)
    connection = LaggingConnection(0)
    assert len(await peers_on(connection).growths(0, 99)) == 8
    assert connection.reads == 1 + peers_module.READ_TRIES


def test_a_message_that_was_read_is_as_good_as_a_word() -> None:
    peers, found = peers_on(LaggingConnection(0)), list[Growth]()
    envelope = Envelope("here", 3, 5, 6)
    peers.note_read("ses_a", envelope, 7)
    peers._on_read = found.append  # pyright: ignore[reportPrivateUsage] - `watch` needs a connection
    peers.note_read("ses_a", envelope, 7)
    assert found == [Growth("ses_a", 5, 6, 7, 3, is_ours=True)]


async def test_messages_of_a_journal_are_noted_before_their_reader_gets_them(store: JetStreamStore) -> None:
    found: list[Growth] = []
    await store.peers.watch(lambda growth: None, found.append)
    store.append([event(1), event(2)])
    await store.flush()
    assert not found
    await store.brief("ses_a", 0, 10)
    assert [(growth.session_id, growth.first, growth.last, growth.is_ours) for growth in found] == [("ses_a", 1, 2, True)]


async def test_a_server_without_readers_hears_of_some_messages_together(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is noted once, whether it was told at once or together with others, and also while that changes."""
    found, parcels = list[Growth](), list[int]()
    real = JetStreamPeers._hear_some

    async def hear_some(self: JetStreamPeers, parcel: Any) -> None:
        parcels.append(len(json.loads(parcel.data)))
        await real(self, parcel)

    monkeypatch.setattr(JetStreamPeers, "_hear_some", hear_some)
    await store.peers.watch(found.append, lambda growth: None)

    async def write(first: int, until: int) -> None:
        for number in range(first, until):
            other_store.append([event(number)])
            await other_store.flush()
        async with asyncio.timeout(10):
            while sum(parcels) < until - 1:
                await asyncio.sleep(0.01)

    assert not await store.peers.attend(is_wanted=True), "it is told at once from the begin"
    await write(1, 5)
    await store.peers.attend(is_wanted=False)
    parcels_before = len(parcels)
    await write(5, 25)
    assert len(parcels) - parcels_before < 20
    assert await store.peers.attend(is_wanted=True)
    await write(25, 30)
    assert [growth.first for growth in found] == list(range(1, 30))
