"""Leases on a real NATS server: they end without renewal, and a server whose own has lapsed does not judge others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest

from shim.cluster.nats import leases
from shim.cluster.nats.connection import Connection
from shim.cluster.nats.layout import ClusterOptions, Layout
from shim.cluster.nats.leases import Leases
from shim.cluster.peers import Node, Offer
from shim.lib.errors import StoreUnavailable
from tests.unit.cluster.nats.conftest import NUMBERS

LEASE_S = 1.0
"""NATS looks for messages that have expired about four times a second."""
BOUND_S = 20


@pytest.fixture
async def two(options: ClusterOptions) -> AsyncIterator[tuple[Leases, Leases]]:
    """The leases of two servers. None of them is renewed by itself."""
    options = replace(options, prefix=f"lease{next(NUMBERS)}")
    layout = Layout(options.prefix, LEASE_S)
    connections = Connection(options, "one"), Connection(options, "two")
    for connection in connections:
        await connection.open()
    await connections[0].prepare(layout)
    yield Leases(connections[0], layout, "one", LEASE_S), Leases(connections[1], layout, "two", LEASE_S)
    for connection in connections:
        await connection.close()


async def until_gone(watching: Leases, server_id: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while server_id in await watching._read():
            await asyncio.sleep(0.05)


async def test_a_server_without_renewal_has_ended_once(two: tuple[Leases, Leases]) -> None:
    one, other = two
    await one._renew()
    await other.start()
    assert other.is_shared()
    await until_gone(other, "one")
    assert await other.look() == ("one",)
    assert await other.look() == ()
    assert not other.is_shared()
    assert await other.find("two") is not None, "it renews its own"
    await other.stop()


async def test_the_age_of_a_lease_is_that_of_its_last_renewal(
    two: tuple[Leases, Leases], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    now = 100.0
    monkeypatch.setattr(leases, "monotonic", lambda: now)
    await one._renew()
    await other.look()
    assert (one.age_s("one"), other.age_s("one")) == (0, 0)
    now += 0.5
    await other.look()
    assert (one.age_s("one"), other.age_s("one")) == (0.5, 0.5)
    await one._renew()
    await other.look()
    assert (one.age_s("one"), other.age_s("one")) == (0, 0)
    assert one.renewals == {"done": 2}


async def test_an_offer_is_announced_with_versions(two: tuple[Leases, Leases]) -> None:
    one, other = two
    offer = Offer({"mock": "1.2.3", "claude": ""}, ("/srv",), 3, in_use=("/srv/a",))
    one.announce_offer(lambda: offer)
    await one._renew()
    await other.look()
    assert other.nodes["one"] == one.here
    assert one.here.offer == offer


async def test_a_stopped_server_is_gone_at_once(two: tuple[Leases, Leases]) -> None:
    one, other = two
    await one.start()
    one.announce("http://127.0.0.1:1")
    await other.start()
    async with asyncio.timeout(BOUND_S):
        while not (server := await other.find("one")) or not server.url:
            await asyncio.sleep(0.01)
    await one.stop()
    assert await other.find("one") is None
    await other.stop()


async def test_a_server_whose_own_lease_has_lapsed_does_not_judge_others(two: tuple[Leases, Leases]) -> None:
    """NATS was down for longer than a lease: all keys are gone, and each server is about to renew its own."""
    one, other = two
    await one._renew()
    await other._renew()
    await other.look()
    await until_gone(other, "one")
    await until_gone(other, "two")
    assert await other.look() == (), "before it has renewed its own"
    assert await other.find("one") is not None
    await other._renew()
    assert await other.look() == ()
    assert await other.find("one") is not None
    await one._renew()
    other._trust_after = 0
    assert await other.look() == (), "it has come back in time"


async def test_a_renewal_whose_answer_was_lost_is_repeated(two: tuple[Leases, Leases]) -> None:
    one, other = two
    await one._renew()
    one._revision = 0
    await one._renew()
    await one._renew()
    assert await other.find("one") is not None


async def test_leases_are_read_only_when_a_word_is_missing(two: tuple[Leases, Leases], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server reads all leases no more each second: N servers read N * N a second then."""
    one, other = two
    now, reads = 100.0, 0
    monkeypatch.setattr(leases, "monotonic", lambda: now)
    await other.start()
    real = other._read

    async def read() -> dict[str, Node]:
        nonlocal reads
        reads += 1
        return await real()

    monkeypatch.setattr(other, "_read", read)
    await one._renew()
    async with asyncio.timeout(BOUND_S):
        while "one" not in other._told:
            await asyncio.sleep(0.01)
    assert await other.look() == ()
    assert other.nodes["one"] == one.here
    now += LEASE_S / 2
    assert (await other.look(), reads) == ((), 0), "both have told of their renewal"
    now += LEASE_S / 2
    assert (await other.look(), reads) == ((), 1), "one is late, and lives"
    await other._renew()
    other._trust_after = 0
    await one.end("one")
    async with asyncio.timeout(BOUND_S):
        while await other.look() != ("one",):
            await asyncio.sleep(0.01)
    await other.stop()


async def test_the_word_of_an_end_is_kept_while_nats_is_away(two: tuple[Leases, Leases], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = two
    await one._renew()
    await other.start()
    await one.end("one")
    async with asyncio.timeout(BOUND_S):
        while not other._is_end_told:
            await asyncio.sleep(0.01)
    with monkeypatch.context() as away:
        away.setattr(other._connection, "read_all", AsyncMock(side_effect=StoreUnavailable("NATS is away")))
        with pytest.raises(StoreUnavailable):
            await other.look()
    assert await other.look() == ("one",)
    await other.stop()
