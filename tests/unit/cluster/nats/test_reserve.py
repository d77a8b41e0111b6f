"""A full JetStream is no dead end: servers live and start, prompts are refused with the reason, and a deletion makes room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shim.cluster.nats import connection as connections
from shim.cluster.nats.layout import ClusterOptions
from shim.cluster.nats.store import JetStreamStore
from shim.lib.errors import ServiceUnavailable, StoreFull
from tests.support.cluster.simulated_nats import SimulatedNats
from tests.support.nats_server import NatsServer
from tests.unit.cluster.nats.conftest import LIMITS
from tests.unit.store.store_contract import event, row

ROOM_BYTES = 3 * 2**20
EVENT_BYTES = 100_000
EVENTS = 2 * ROOM_BYTES // EVENT_BYTES
"""More than there is room for."""

NewStore = Callable[[], JetStreamStore]


@pytest.fixture(params=["nats", "simulated"])
def new_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NewStore:
    """Makes stores of one cluster, whose NATS has room for ROOM_BYTES."""
    options = ClusterOptions(("nats://simulated",), "test")
    if request.param == "simulated":
        nats = SimulatedNats()
        nats.room_bytes = ROOM_BYTES
        monkeypatch.setattr(connections, "Client", nats.client)
    else:
        options = ClusterOptions((request.getfixturevalue("small_nats").url,), "test")
    return lambda: JetStreamStore(options, limits=LIMITS)


@pytest.fixture
def small_nats(tmp_path: Path) -> Iterator[NatsServer]:
    settings = tmp_path / "nats.conf"
    settings.write_text(f"jetstream {{ max_file_store: {ROOM_BYTES} }}\n")
    server = NatsServer(tmp_path / "nats", "-c", str(settings))
    server.start()
    yield server
    server.stop()


async def fill(store: JetStreamStore, session_id: str) -> None:
    """Append events until there is no room."""
    with pytest.raises(StoreFull, match=r"JetStream has no room|The stream is full"):
        for number in range(1, EVENTS + 1):
            store.append([event(number, session_id, raw="x" * EVENT_BYTES)])
            await store.flush(session_id)


async def test_a_full_jetstream_lets_servers_live_and_makes_room_by_deletions(new_store: NewStore) -> None:
    store = new_store()
    await store.open()
    for session_id in ("ses_a", "ses_b"):
        store.save_session(row(session_id))
        store.append([event(1, session_id)])
    await store.flush()
    assert not store.peers.overview().is_full
    await fill(store, "ses_c")
    assert store.peers.overview().is_full
    with pytest.raises(ServiceUnavailable, match="No prompt is taken"):
        await store.require_writable("ses_b")
    opened = store._use()  # pyright: ignore[reportPrivateUsage]
    await opened.leases.end(store.server_id)
    await opened.leases._renew()  # pyright: ignore[reportPrivateUsage] - now, and not in some seconds
    other = new_store()
    await other.open()
    assert await other.claim("ses_b") == opened.leases.here.ref, "it lives"
    await store.look()
    assert store.is_shared(), "the other one could start"
    store.delete_session("ses_c")
    await store.flush("ses_c")
    await store.require_writable("ses_b")
    assert not store.peers.overview().is_full
    store.append([event(2, "ses_b")])
    await store.flush("ses_b")
    await other.close()
    await store.close()
