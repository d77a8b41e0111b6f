"""Pages of checkpoints are read from this machine, never from the network."""

from __future__ import annotations

import pytest

from shim.cluster.nats.pages import PageCopies
from shim.cluster.nats.store import JetStreamStore
from shim.lib.errors import StoreError
from shim.store.base import Checkpoint
from tests.support.nats_server import NatsServer
from tests.unit.cluster.nats.conftest import LIMITS
from tests.unit.store.store_contract import journal, row


async def test_a_page_is_read_while_nats_does_not_answer(private_nats: NatsServer, private_store: JetStreamStore) -> None:
    other = JetStreamStore(private_store.options, limits=LIMITS)
    await other.open()
    private_store.save_session(row())
    private_store.append(journal(1, 3))
    private_store.save_checkpoint("ses_a", Checkpoint(3, b"head"), {number: b"page%d" % number for number in range(1, 41)})
    await private_store.flush()
    assert await other.checkpoint("ses_a") is not None
    private_nats.pause()
    for store in (private_store, other):
        assert [store.checkpoint_page("ses_a", number) for number in (1, 40, 41)] == [b"page1", b"page40", None]
    private_nats.resume()
    await other.close()


async def test_a_page_of_another_owner_is_copied_again(store: JetStreamStore, other_store: JetStreamStore) -> None:
    """A number may get another content: its owner took a page back, and gave its number away."""
    store.append(journal(1, 3))
    store.save_checkpoint("ses_a", Checkpoint(1, b"one"), {1: b"kept", 2: b"before", 3: b"dropped"})
    await store.flush()
    await other_store.checkpoint("ses_a")
    store.save_checkpoint("ses_a", Checkpoint(3, b"two"), {2: b"after"}, [3])
    await store.flush()
    assert await other_store.checkpoint("ses_a") == Checkpoint(3, b"two", frozenset({1, 2}))
    for one in (store, other_store):
        assert [one.checkpoint_page("ses_a", number) for number in (1, 2, 3)] == [b"kept", b"after", None]


def test_closed_copies_say_so() -> None:
    copies = PageCopies()
    copies.put("ses_a", 1, (7, 8), b"page")
    assert copies.keep_only("ses_a", {1: (7, 8), 2: (9,)}) == [2]
    copies.close()
    with pytest.raises(StoreError, match="cannot be kept on this machine"):
        copies.find("ses_a", 1)
