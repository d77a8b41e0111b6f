"""Two-way streams between servers: complete and in order, bounded, and ended on both sides when one dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shim.cluster.nats import peers
from shim.cluster.nats.store import JetStreamStore
from shim.cluster.peers import Command, Pipe, PipeEnded
from shim.lib.errors import ServerLost
from shim.store.servers import ServerRef

SEEN_S = 20
COMMAND = Command("1", "GET", "/pty/pty_1/connect?cursor=0", (("X-Kind", "test"),))


class Echo:
    """Sends back what comes. `ended`: how the stream has ended for it."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self, command: Command, pipe: Pipe) -> None:
        self.commands.append(command)
        try:
            while (message := await pipe.receive()) is not None:
                await pipe.send(b"echo " + message)
            self.ended.set_result("well")
        except ServerLost as error:
            self.ended.set_result(str(error))
            raise

    async def end(self) -> str:
        async with asyncio.timeout(SEEN_S):
            return await self.ended


@asynccontextmanager
async def stream(store: JetStreamStore, server: JetStreamStore) -> AsyncGenerator[Pipe]:
    async with asyncio.timeout(SEEN_S), store.peers.open(ServerRef(server.server_id, 1, name="other"), COMMAND) as pipe:
        yield pipe


async def test_messages_go_both_ways_in_order(store: JetStreamStore, other_store: JetStreamStore) -> None:
    echo = Echo()
    await other_store.peers.accept(echo)
    messages = [b"", b"one", b"x" * 3 * 2**20, *(b"%d" % number for number in range(200))]
    async with stream(store, other_store) as pipe:
        answers: list[bytes | None] = []
        for message in messages:
            await pipe.send(message)
            answers.append(await pipe.receive())
    assert answers == [b"echo " + message for message in messages]
    assert echo.commands == [COMMAND]
    assert await echo.end() == "well"


async def test_a_sign_of_a_later_version_is_passed_over(store: JetStreamStore, other_store: JetStreamStore) -> None:
    async def speak(command: Command, pipe: Any) -> None:
        await pipe._publish("later", b"sign")
        await pipe.send(b"last")

    await other_store.peers.accept(speak)
    async with stream(store, other_store) as pipe:
        assert await pipe.receive() == b"last"


async def test_the_end_at_the_server_is_the_end_of_the_messages(store: JetStreamStore, other_store: JetStreamStore) -> None:
    async def speak(command: Command, pipe: Pipe) -> None:
        await pipe.send(b"last")

    await other_store.peers.accept(speak)
    async with stream(store, other_store) as pipe:
        assert await pipe.receive() == b"last"
        assert await pipe.receive() is None
        with pytest.raises(ServerLost, match="has ended the stream"):
            await pipe.send(b"late")


async def test_a_failure_of_the_server_ends_the_stream(store: JetStreamStore, other_store: JetStreamStore) -> None:
    async def fail(command: Command, pipe: Pipe) -> None:
        raise ValueError("wrong")

    await other_store.peers.accept(fail)
    async with stream(store, other_store) as pipe:
        with pytest.raises(ServerLost, match="The server other has ended the stream"):
            await pipe.receive()


async def test_an_end_that_does_not_read_gets_no_more_than_the_window(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "STALL_S", 0.2)
    sent = 0
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def flood(command: Command, pipe: Pipe) -> None:
        nonlocal sent
        try:
            while True:
                await pipe.send(b"x" * 1000)
                sent += 1
        except ServerLost as error:
            lost.set_result(str(error))
            raise

    await other_store.peers.accept(flood)
    async with stream(store, other_store) as pipe:
        assert "reads too slowly" in await lost
        assert sent <= peers.WINDOW // (1000 + peers.PIECE_COST) + 1
        with pytest.raises(ServerLost, match=r"has ended the stream|was lost"):
            while await pipe.receive():
                pass


async def test_the_death_of_the_asker_ends_the_stream_at_the_server(
    store: JetStreamStore, other_store: JetStreamStore, options: object
) -> None:
    """NATS says at the next beat that nobody listens any more."""
    echo = Echo()
    await other_store.peers.accept(echo)
    dead = JetStreamStore(store.options)
    await dead.open()
    async with stream(dead, other_store) as pipe:
        await pipe.send(b"one")
        assert await pipe.receive() == b"echo one"
        await cut(dead)
        assert await echo.end() == "The client's server was lost."
    await dead.close()


async def test_the_death_of_the_server_ends_the_stream_at_the_asker(store: JetStreamStore) -> None:
    echo = Echo()
    dead = JetStreamStore(store.options)
    await dead.open()
    await dead.peers.accept(echo)
    async with stream(store, dead) as pipe:
        await pipe.send(b"one")
        assert await pipe.receive() == b"echo one"
        await cut(dead)
        with pytest.raises(ServerLost, match=r"The server other was lost\."):
            await pipe.receive()
    await dead.close()


async def cut(store: JetStreamStore) -> None:
    """End the connection of a server to NATS, as its death does."""
    await store._use().connection.close()  # pyright: ignore[reportPrivateUsage]


async def test_silence_ends_a_stream(store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused server: NATS takes it for living."""
    publish = peers._End._publish  # pyright: ignore[reportPrivateUsage]

    async def only_the_first(self: peers._End, number: str, payload: bytes, headers: dict[str, str] | None = None) -> None:  # pyright: ignore[reportPrivateUsage]
        if self._label == "The server other" or self not in spoken:  # pyright: ignore[reportPrivateUsage]
            spoken.append(self)
            await publish(self, number, payload, headers)

    spoken: list[peers._End] = []  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(peers._End, "_publish", only_the_first)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(peers, "SILENCE_S", 0.2)
    monkeypatch.setattr(peers, "BEAT_S", 0.05)
    await other_store.peers.accept(Echo())
    async with stream(store, other_store) as pipe:
        with pytest.raises(ServerLost, match="does not answer any more"):
            await pipe.receive()


async def test_a_lost_piece_ends_a_stream(store: JetStreamStore, other_store: JetStreamStore) -> None:
    async def skip(command: Command, pipe: Pipe) -> None:
        assert isinstance(pipe, peers._End)  # pyright: ignore[reportPrivateUsage]
        pipe._number += 1  # pyright: ignore[reportPrivateUsage]
        await pipe.send(b"two")
        await pipe.receive()

    await other_store.peers.accept(skip)
    async with stream(store, other_store) as pipe:
        with pytest.raises(ServerLost, match="was lost on its way"):
            await pipe.receive()


async def test_a_lost_acknowledgement_stops_nothing(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS was away for a moment. Without the next beat the sender would wait until it takes the reader for stuck."""
    publish = peers._End._publish  # pyright: ignore[reportPrivateUsage]

    async def lose(self: peers._End, number: str, payload: bytes, headers: dict[str, str] | None = None) -> None:  # pyright: ignore[reportPrivateUsage]
        if number != peers.TAKEN:
            await publish(self, number, payload, headers)

    async def fill(command: Command, pipe: Pipe) -> None:
        for _ in range(3):
            await pipe.send(b"x" * peers.WINDOW)

    monkeypatch.setattr(peers._End, "_publish", lose)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(peers, "BEAT_S", 0.05)
    await other_store.peers.accept(fill)
    async with stream(store, other_store) as pipe:
        assert [len(await pipe.receive() or b"") for _ in range(4)] == [peers.WINDOW] * 3 + [0]


async def test_the_last_words_are_received_after_the_end(store: JetStreamStore, other_store: JetStreamStore) -> None:
    async def speak(command: Command, pipe: Pipe) -> None:
        await pipe.send(b"last words")

    await other_store.peers.accept(speak)
    async with stream(store, other_store) as pipe:
        with pytest.raises(PipeEnded):
            while True:
                await pipe.send(b"input")
                await asyncio.sleep(0)
        assert await pipe.receive() == b"last words"
        assert await pipe.receive() is None


async def test_a_server_that_does_not_live_is_a_clear_error(store: JetStreamStore, other_store: JetStreamStore) -> None:
    with pytest.raises(ServerLost, match="The server other cannot be reached"):
        async with stream(store, other_store):
            pass


async def test_too_many_streams_are_refused(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PIPES", 0)
    await other_store.peers.accept(Echo())
    with pytest.raises(ServerLost, match="has 0 streams of other servers already"):
        async with stream(store, other_store):
            pass
