"""Leases: each server has a key that expires in NATS, and renews it. A server without a key counts as dead.

NATS alone measures the time of a lease; no clocks of two machines are compared. A wrong judgement loses nothing: a server whose
session was taken has its next append refused (`journals.py`).

A server that could not renew its own lease for a while (it was paused, or NATS was down) cannot judge others: they may be about
to renew theirs. It counts all servers that it knew as living until it has renewed its own, and for another LEASE_S.

Who has renewed its lease says so (`PREFIX.renewal`), and who ends one. So the buckets are read only when a word is missing,
or an end was told: a server that dies is late first.

While the disk of NATS is full, a lease stands in a bucket in the memory of NATS. A server lives that has a lease in one of both.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from time import monotonic
from typing import Any

import structlog

from shim.cluster.nats.commands import FROM, NUMBER
from shim.cluster.nats.connection import Connection, Parcel, WrongSequence
from shim.cluster.nats.layout import Layout
from shim.cluster.peers import Node, Offer
from shim.lib.errors import StoreError, StoreFull
from shim.lib.tasks import wait_at_most
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
        self._renewed: dict[str, tuple[int, float]] = {}
        """Server -> number of its last renewal, and when this server saw it."""
        self.renewals: Counter[str] = Counter()
        """Renewals of this server's lease, by result: `done`, `failed`."""
        self._trust_after = 0.0
        self._renewed_at = monotonic()
        self._renew_now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self._buckets = (layout.servers, layout.leases)
        self._told: dict[str, Node] = {}
        """The servers that have told of a renewal since the last look."""
        self._is_hearing = self._is_end_told = False
        self._newest = 0
        """The number of the newest renewal that was read."""

    async def start(self) -> None:
        """Take the lease, and renew it from now on. Raises StoreError."""
        await self._connection.subscribe(self._layout.renewal, self._hear)
        self._is_hearing = True
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
        for stream in self._buckets:
            await self._connection.purge(stream, self._layout.server_key(server_id, stream))
        self._is_end_told = True
        await self._announce_renewal(server_id, b"")

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

    @property
    def here(self) -> Node:
        """This server, with what it can take at present."""
        return Node(ServerRef(self._server_id, os.getpid(), self._url, socket.gethostname(), self._name), self._offer())

    def age_s(self, server_id: str) -> float:
        """Seconds since this server saw the last renewal of a lease. 0 for a server that is not known."""
        _, seen = self._renewed.get(server_id, (0, monotonic()))
        return monotonic() - seen

    async def look(self) -> tuple[str, ...]:
        """Look which servers live, and return the ids of those that have ended since the last look."""
        async with self._looking:  # an older answer must not replace a newer one
            told = self._told.copy()
            now = await self._read() if self._is_unsure else self._living | told
            self._told = {server_id: node for server_id, node in self._told.items() if told.get(server_id) is not node}
            if not self._may_judge:
                now = self._living | now
            ended = tuple(server_id for server_id in self._living if server_id not in now)
            self._living = now
            for server_id in ended:
                self._renewed.pop(server_id, None)
            return ended

    async def find(self, server_id: str) -> ServerRef | None:
        """The server if it lives, or None. Asks the leader, so a renewal that was acknowledged is seen."""
        for stream in self._buckets:
            message = await self._connection.last(stream, self._layout.server_key(server_id, stream))
            if message is not None:
                node = _node(server_id, message.data)
                if server_id in self._living:  # its word of this renewal may come after this answer
                    self._living[server_id] = node
                return node.ref
        return None if self._may_judge else self.live_servers.get(server_id)

    @property
    def _may_judge(self) -> bool:
        """Whether a server without a lease is dead. Not if NATS may just have been away for all: they may be about to renew."""
        now = monotonic()
        return now >= self._trust_after and now - self._renewed_at < self._away_s

    @property
    def _away_s(self) -> float:
        """Seconds without NATS after which leases may have ended: of those that were about to be renewed."""
        return self._lease_s - self._lease_s / RENEWALS

    @property
    def _is_unsure(self) -> bool:
        """Whether a server has ended, or is late. Perhaps its word was lost, or it is of a version that tells nothing."""
        return (
            self._is_end_told or not self._is_hearing or any(self.age_s(server_id) >= self._away_s for server_id in self._living)
        )

    async def _announce_renewal(self, server_id: str, value: bytes) -> None:
        """Tell the others of a lease, or of its end. They read it themselves if they do not hear of it."""
        with suppress(StoreError):
            await self._connection.publish(self._layout.renewal, value, {FROM: server_id, NUMBER: str(self._revision)})

    async def _hear(self, parcel: Parcel) -> None:
        server_id, number = parcel.headers.get(FROM, ""), parcel.headers.get(NUMBER, "")
        if not parcel.data or not number.isdecimal():
            self._is_end_told = True
        elif server_id in self._living or int(number) > self._newest:  # else it waited here while that server died
            self._told[server_id] = _node(server_id, parcel.data)
            self._note_renewal(server_id, int(number))

    async def _read(self) -> dict[str, Node]:
        was_end_told, self._is_end_told = self._is_end_told, False
        try:
            return await self._read_now()
        except BaseException:  # the next look reads again
            self._is_end_told |= was_end_told
            raise

    async def _read_now(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for stream in self._buckets:
            for message in await self._connection.read_all(stream, self._layout.server_key("*", stream)):
                server_id = message.subject.rpartition(".")[2]
                found[server_id] = _node(server_id, message.data)
                self._note_renewal(server_id, message.sequence)
                if stream is self._layout.servers:
                    self._newest = max(self._newest, message.sequence)
        return found

    async def _keep(self) -> None:
        while True:
            await wait_at_most(self._renew_now.wait(), self._lease_s / RENEWALS)
            self._renew_now.clear()
            try:
                await self._renew()
            except StoreError as error:
                self.renewals["failed"] += 1
                log.warning("cluster.lease_not_renewed", error=str(error))

    def _note_renewal(self, server_id: str, number: int) -> None:
        if self._renewed.get(server_id, (0, 0.0))[0] != number:
            self._renewed[server_id] = (number, monotonic())

    async def _renew(self) -> None:
        key = self._layout.server_key(self._server_id)
        ref, offer = self.here.ref, self.here.offer
        value = {"pid": ref.pid, "url": ref.url, "host": ref.host, "name": ref.name, "offer": asdict(offer)}
        begin, payload = monotonic(), json.dumps(value).encode()
        await self._write(key, payload)
        away_s, self._renewed_at = begin - self._renewed_at, begin
        if away_s >= self._away_s:
            self._trust_after = monotonic() + self._lease_s
        self.renewals["done"] += 1
        self._note_renewal(self._server_id, self._revision)
        await self._announce_renewal(self._server_id, payload)

    async def _write(self, key: str, payload: bytes) -> None:
        """Replace the key of this server, or create it anew if it has expired; in memory if the disk of NATS is full."""
        try:
            await self._write_on_disk(key, payload)
        except StoreFull:
            memory = self._layout.leases
            await self._connection.append(self._layout.server_key(self._server_id, memory), payload)
            self._revision = 0  # the one on disk may end meanwhile

    async def _write_on_disk(self, key: str, payload: bytes) -> None:
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


def _offer(value: dict[str, Any]) -> Offer:
    """Read an offer, also one of a server of another version: fields that it lacks have their default."""
    agents = {str(name): str(version) for name, version in dict(value.get("agents", {})).items()}
    roots, labels, in_use = (tuple(map(str, value.get(name, ()))) for name in ("roots", "labels", "in_use"))
    is_draining, is_cordoned = (bool(value.get(name, False)) for name in ("is_draining", "is_cordoned"))
    return Offer(agents, roots, int(value.get("room", 0)), labels, is_draining, in_use, is_cordoned)


def _node(server_id: str, data: bytes) -> Node:
    try:
        value = json.loads(data)
        ref = ServerRef(server_id, int(value["pid"]), str(value["url"]), str(value["host"]), str(value["name"]))
        return Node(ref, _offer(value["offer"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Node(ServerRef(server_id), Offer())
