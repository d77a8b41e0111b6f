"""A NATS server for all tests of this folder, and clusters of their own on it.

What needs no process runs on the simulated NATS of the laws too: so both mean the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from shim.cluster.nats import connection as connections
from shim.cluster.nats.lanes import Limits
from shim.cluster.nats.layout import ClusterOptions
from shim.cluster.nats.store import JetStreamStore
from tests.support.cluster.simulated_nats import SimulatedNats
from tests.support.nats_server import NatsServer

NUMBERS = count(1)
LIMITS = Limits(retry_s=0.05, close_s=2)


@pytest.fixture(scope="session")
def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS server that no test may stop."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def private_nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A NATS server that the test may stop."""
    server = NatsServer(tmp_path / "nats")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def private_store(private_nats: NatsServer) -> AsyncIterator[JetStreamStore]:
    """The store of a NATS server that the test may stop."""
    store = JetStreamStore(ClusterOptions((private_nats.url,)), limits=LIMITS)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(params=["nats", "simulated"])
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ClusterOptions:
    """A new cluster, on a real server and on a simulated one."""
    if request.param == "simulated":
        monkeypatch.setattr(connections, "Client", SimulatedNats().client)
        return ClusterOptions(("nats://simulated",), "test")
    return ClusterOptions((request.getfixturevalue("shared_nats").url,), f"test{next(NUMBERS)}")


@pytest.fixture
async def store(options: ClusterOptions) -> AsyncIterator[JetStreamStore]:
    """An open store of a new cluster."""
    store = JetStreamStore(options, limits=LIMITS)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other_store(store: JetStreamStore) -> AsyncIterator[JetStreamStore]:
    """The store of another server of the same cluster."""
    other = JetStreamStore(store.options, limits=LIMITS)
    await other.open()
    yield other
    await other.close()
