"""Small values are the same at all servers of a cluster, without a restart."""

from __future__ import annotations

from shim.cluster.nats.store import JetStreamStore
from shim.store.ownership import ValueChange


async def changes(store: JetStreamStore) -> tuple[ValueChange, ...]:
    return (await store.look()).values


async def test_a_value_of_another_server_is_seen_once(store: JetStreamStore, other_store: JetStreamStore) -> None:
    other_store.set_value("names", "a/b", {"session": "ses_1"})
    other_store.set_value("names", "gone", 1)
    other_store.set_value("names", "gone", None)
    await other_store.flush()
    assert await changes(store) == (ValueChange("names", "a/b", {"session": "ses_1"}), ValueChange("names", "gone", None))
    assert await changes(store) == ()
    assert await store.values("names") == {"a/b": {"session": "ses_1"}}


async def test_a_value_of_this_server_is_no_change(store: JetStreamStore) -> None:
    store.set_value("names", "mine", 1)
    await store.flush()
    assert await changes(store) == ()


async def test_a_value_of_before_is_no_change(store: JetStreamStore) -> None:
    store.set_value("names", "old", 1)
    await store.flush()
    other = JetStreamStore(store.options)
    await other.open()
    try:
        assert await changes(other) == ()
        assert await other.values("names") == {"old": 1}
    finally:
        await other.close()


async def test_a_removed_value_leaves_no_namespace(store: JetStreamStore) -> None:
    store.set_value("names", "gone", 1)
    store.set_value("names", "gone", None)
    await store.flush()
    assert await store.namespaces() == []
    assert await store.values("names") == {}
