"""Leases: each server has a key that expires in NATS, and renews it. A server without a key counts as dead.

NATS alone measures the time of a lease; no clocks of two machines are compared. A wrong judgement loses nothing: a server whose
session was taken has its next append refused (`journals.py`).

A server whose own lease has lapsed (it was paused, or NATS was down) cannot judge others: they may be about to renew theirs. It
counts all servers that it knew as living for another LEASE_S.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from time import monotonic

import structlog

from shim.errors import StoreError
from shim.store.jetstream.connection import Connection, WrongSequence
from shim.store.jetstream.layout import Layout
from shim.store.peers import Node, Offer
from shim.store.servers import ServerRef

log = structlog.get_logger(__name__)

LEASE_S = 9.0
"""Seconds after which a lease that is not renewed ends."""
RENEWALS = 3
"""Renewals within the time of a lease."""


class Leases:
    """The lease of this server, and those of others."""

    def __init__(self, connection: Connection, layout: Layout, server_id: str, lease_s: float = LEASE_S, name: str = "") -> None:
        self._connection = connection
        self._layout = layout
        self._server_id = server_id
        self._lease_s = lease_s
        self._name = name
        self._url = ""
        self._offer: Callable[[], Offer] = Offer
        self._revision = 0
        self._living: dict[str, Node] = {}
        self._trust_after = 0.0
        self._renew_now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take the lease, and renew it from now on. Raises StoreError."""
        await self._renew()
        self._living = await self._read()
        self._task = asyncio.create_task(self._keep(), name="renew lease")

    async def stop(self) -> None:
        """Give the lease up, so that others need not wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
            if self._connection.is_connected:
                with suppress(StoreError):
                    await self.end(self._server_id)

    async def end(self, server_id: str) -> None:
        """End the lease of a server that is known to be dead, or of this one."""
        await self._connection.purge(self._layout.servers, self._layout.server_key(server_id))

    def announce(self, url: str) -> None:
        """Write where this server listens into its lease."""
        self._url = url
        self._renew_now.set()

    def announce_offer(self, offer: Callable[[], Offer]) -> None:
        """Write what this server can take into its lease, from now on."""
        self._offer = offer
        self._renew_now.set()

    def is_shared(self) -> bool:
        """Whether other servers lived at the last look."""
        return self._living.keys() - {self._server_id} != set()

    @property
    def live_servers(self) -> dict[str, ServerRef]:
        """The servers that lived at the last look, by id."""
        return {server_id: node.ref for server_id, node in self._living.items()}

    @property
    def nodes(self) -> dict[str, Node]:
        """The same servers with what they can take."""
        return self._living

    async def look(self) -> tuple[str, ...]:
        """Look which servers live, and return the ids of those that have ended since the last look."""
        now = await self._read()
        if monotonic() < self._trust_after:
            now = self._living | now
        ended = tuple(server_id for server_id in self._living if server_id not in now)
        self._living = now
        return ended

    async def find(self, server_id: str) -> ServerRef | None:
        """The server if it lives, or None. Asks the leader, so a renewal that was acknowledged is seen."""
        message = await self._connection.last(self._layout.servers, self._layout.server_key(server_id))
        if message is not None:
            return _node(server_id, message.data).ref
        return self.live_servers.get(server_id) if monotonic() < self._trust_after else None

    async def _read(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        start, has_more = 0, True
        while has_more:
            page = await self._connection.read(self._layout.servers, self._layout.server_key("*"), start)
            for message in page.messages:
                server_id = message.subject.rpartition(".")[2]
                found[server_id] = _node(server_id, message.data)
                start = message.sequence + 1
            has_more = page.has_more and bool(page.messages)
        return found

    async def _keep(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lease_s / RENEWALS):
                    await self._renew_now.wait()
            self._renew_now.clear()
            try:
                await self._renew()
            except StoreError as error:
                log.warning("cluster.lease_not_renewed", error=str(error))

    async def _renew(self) -> None:
        key = self._layout.server_key(self._server_id)
        value = {
            "pid": os.getpid(),
            "url": self._url,
            "host": socket.gethostname(),
            "name": self._name,
            "offer": asdict(self._offer()),
        }
        payload = json.dumps(value).encode()
        try:
            self._revision = await self._connection.append(key, payload, after=self._revision)
            return
        except WrongSequence:
            message = await self._connection.last(self._layout.servers, key)
        if message is None and self._revision:
            log.warning("cluster.lease_lapsed", server=self._server_id)
            self._trust_after = monotonic() + self._lease_s
        with suppress(WrongSequence):  # an earlier renewal of ours has arrived only now
            self._revision = await self._connection.append(key, payload, after=0 if message is None else message.sequence)


def _node(server_id: str, data: bytes) -> Node:
    try:
        value = json.loads(data)
        ref = ServerRef(server_id, int(value["pid"]), str(value["url"]), str(value["host"]), str(value["name"]))
        offer = value["offer"]
        return Node(ref, Offer(tuple(map(str, offer["agents"])), tuple(map(str, offer["roots"])), int(offer["room"])))
    except (ValueError, KeyError, TypeError):
        return Node(ServerRef(server_id), Offer())
