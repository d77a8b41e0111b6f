"""Changes beside the sessions at other servers: each reaches a client once, and directories are watched where they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, get_args

import pytest

from shim.cluster import remote_changes
from shim.cluster.peers import Node, Offer
from shim.cluster.remote_changes import RemoteChanges, decode_change, encode_change
from shim.host.changes import (
    AllDisposed,
    DirectoryDisposed,
    FileChanged,
    HostChange,
    HostChanged,
    HostFeed,
    ShellCreated,
    TerminalCreated,
    TerminalDeleted,
)
from shim.host.values import ShellInfo
from shim.lib.errors import StoreUnavailable
from shim.store.servers import ServerRef
from tests.support.host_changes import EXAMPLES, TERMINAL

SEEN_S = 20
ALL: tuple[HostChange, ...] = (
    *EXAMPLES,
    ShellCreated(ShellInfo("sh_1", "ls", "/src", "/bin/sh", "/tmp/out", {"a": [1, None]}, 5, "exited", 8, 0, None, 9)),
    FileChanged("/src/ä", "unlink"),
)


class Wire:
    """A cluster of servers in one loop."""

    def __init__(self) -> None:
        self.receivers: dict[str, Callable[[str, bytes], None]] = {}
        self.living: list[str] = ["a", "b", "c"]
        self.is_away = False


class FakePeers:
    def __init__(self, wire: Wire, server_id: str) -> None:
        self._wire = wire
        self._server_id = server_id

    async def broadcast(self, message: bytes) -> None:
        if self._wire.is_away:
            raise StoreUnavailable("NATS is away")
        for server_id, receive in self._wire.receivers.items():
            if server_id != self._server_id:
                receive(self._server_id, message)

    async def hear(self, receive: Callable[[str, bytes], None]) -> None:
        self._wire.receivers[self._server_id] = receive

    def nodes(self) -> Sequence[Node]:
        return [Node(ServerRef(id_), Offer()) for id_ in self._wire.living if id_ != self._server_id]


class Server:
    """One server. `seen`: what its clients have got."""

    def __init__(self) -> None:
        self.feed = HostFeed()
        self.seen: list[HostChanged] = []
        self.watches: list[str] = []
        self.has_reader = True
        self.changed = asyncio.Event()
        self.feed.observe(self.see)
        self.remote = RemoteChanges(self.feed, self.see, lambda directory: self.has_reader, self.watch)

    def see(self, changed: HostChanged) -> None:
        self.seen.append(changed)
        self.changed.set()

    async def watch(self, directory: str) -> None:
        self.watches.append(directory)
        self.changed.set()

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(SEEN_S):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def servers(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Server, Server, Server]]:
    """Three servers: `a` and `b` have the directory, `c` does not."""
    monkeypatch.setattr(remote_changes, "BEAT_S", 0.01)
    servers = (Server(), Server(), Server())
    for name, server in zip("abc", servers, strict=True):
        peers: Any = FakePeers(wire, name)
        await server.remote.start(peers, name)
    yield servers
    for server in servers:
        await server.remote.close()


def test_every_change_can_be_sent() -> None:
    assert {type(change) for change in ALL} == set(get_args(HostChange))
    for change in ALL:
        changed = HostChanged(change, "/src", None if isinstance(change, AllDisposed) else "p")
        assert decode_change(encode_change(changed)) == changed


def test_a_change_of_another_version_is_refused() -> None:
    for message in (b'["Unheard",{},"/src",null]', b'["TuiPrompt",{"words":1},"/src",null]', b"{}", b"["):
        with pytest.raises(ValueError):
            decode_change(message)


async def test_each_change_of_a_server_reaches_all_clients_once(servers: tuple[Server, Server, Server]) -> None:
    a, b, c = servers
    change = HostChanged(TerminalCreated(TERMINAL), "/src", "p")
    a.feed.publish(*change)
    for server in (b, c):
        await server.until(lambda: server.seen)  # noqa: B023 - awaited at once
    b.feed.publish(TerminalDeleted("pty_1"), "/src")
    await c.until(lambda: len(c.seen) == 2)
    await a.until(lambda: len(a.seen) == 2)
    for server in servers:
        assert server.seen == [change, HostChanged(TerminalDeleted("pty_1"), "/src")]


async def test_files_are_watched_by_the_server_that_serves_the_directory(
    servers: tuple[Server, Server, Server],
) -> None:
    """The other server with the directory watches it too, for its own clients. Its word is not taken, so that nothing doubles."""
    a, b, c = servers
    change = HostChanged(FileChanged("/src/x", "add"), "/src", "p")
    a.feed.publish(*change)
    c.remote.note_host("/src", ServerRef("a"))
    await a.until(lambda: a.watches)
    assert set(a.watches) == {"/src"}
    assert a.remote.is_wanted("/src")
    for server in (a, b):
        server.feed.publish(*change)
    b.feed.publish(TerminalDeleted("last"), "/src")
    await c.until(lambda: c.seen and c.seen[-1].change == TerminalDeleted("last"))
    assert c.seen == [change, HostChanged(TerminalDeleted("last"), "/src")]
    assert b.seen.count(change) == 1
    assert b.watches == []


async def test_a_directory_is_watched_as_long_as_a_client_of_the_other_server_reads(
    servers: tuple[Server, Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_changes, "WANTED_S", 0.05)
    a, _, c = servers
    c.has_reader = False
    c.remote.note_host("/src", ServerRef("a"))
    c.has_reader = True
    await a.until(lambda: a.watches)
    c.has_reader = False
    async with asyncio.timeout(SEEN_S):
        while a.remote.is_wanted("/src"):
            await asyncio.sleep(0.01)


async def test_clients_read_everything_again_when_the_server_of_their_directory_is_lost(
    servers: tuple[Server, Server, Server], wire: Wire
) -> None:
    a, _, c = servers
    c.remote.note_host("/src", ServerRef("a"))
    await a.until(lambda: a.watches)
    wire.living.remove("a")
    await c.until(lambda: c.seen)
    assert c.seen == [HostChanged(DirectoryDisposed("/src"), "/src")]


async def test_no_change_waits_while_nats_is_away(servers: tuple[Server, Server, Server], wire: Wire) -> None:
    a, b, _ = servers
    wire.is_away = True
    for number in range(remote_changes.QUEUE + 10):
        a.feed.publish(TerminalDeleted(str(number)), "/src")
    async with asyncio.timeout(SEEN_S):
        while not a.remote._queue.empty():  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0)
    wire.is_away = False
    a.feed.publish(TerminalDeleted("last"), "/src")
    await b.until(lambda: b.seen)
    assert [changed.change for changed in b.seen] == [TerminalDeleted("last")]
