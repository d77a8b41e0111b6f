"""Commands between servers: done once, answered in pieces, and never waited for without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shim.cluster.nats import commands
from shim.cluster.nats.connection import Parcel
from shim.cluster.nats.store import JetStreamStore
from shim.cluster.peers import Answer, Command
from shim.lib.errors import ServerLost
from shim.store.servers import ServerRef

SEEN_S = 20


class Worker:
    """Does commands, and notes them. `more`: further chunks of each answer; `go`: when to answer."""

    def __init__(self, *more: bytes) -> None:
        self.done: list[Command] = []
        self.more = more
        self.go = asyncio.Event()
        self.go.set()
        self.ended = asyncio.Event()

    @asynccontextmanager
    async def __call__(self, command: Command) -> AsyncGenerator[Answer]:
        self.done.append(command)
        try:
            await self.go.wait()
            yield Answer(201, (("X-Kind", "test"),), self.chunks(command.body))
        finally:
            self.ended.set()

    async def chunks(self, body: bytes) -> AsyncIterator[bytes]:
        yield body
        for chunk in self.more:
            yield chunk


async def ask(store: JetStreamStore, server: JetStreamStore, command: Command) -> tuple[int, bytes]:
    async with asyncio.timeout(SEEN_S), store.peers.ask(ServerRef(server.server_id, 1, name="other"), command) as answer:
        return answer.status, b"".join([chunk async for chunk in answer.chunks])


def command(number: int = 1, body: bytes = b"body") -> Command:
    return Command(f"command{number}", "POST", "/session?x=%2F", (("Content-Type", "a/b"),), body)


async def test_a_command_is_done_by_the_other_server(store: JetStreamStore, other_store: JetStreamStore) -> None:
    worker = Worker(b" and", b"", b" more")
    await other_store.peers.serve(worker)
    assert await ask(store, other_store, command()) == (201, b"body and more")
    assert worker.done == [command()]
    overview = store.peers.overview()
    assert (overview.asked, overview.answer_s.count) == ({"answered": 1}, 1)


async def test_a_command_that_is_repeated_by_its_id_is_done_once(store: JetStreamStore, other_store: JetStreamStore) -> None:
    worker = Worker(b" more")
    await other_store.peers.serve(worker)
    for _ in range(3):
        assert await ask(store, other_store, command()) == (201, b"body more")
    assert len(worker.done) == 1
    await ask(store, other_store, command(2))
    assert [one.id for one in worker.done] == ["command1", "command2"]


async def test_a_command_that_is_repeated_while_it_is_done_is_done_once(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sign of life comes in time, so that its asker sends it again."""
    worker = Worker()
    await other_store.peers.serve(worker)
    monkeypatch.setattr(commands, "SILENCE_S", 0.05)
    monkeypatch.setattr(commands, "SENDS", 100)
    worker.go.clear()
    task = asyncio.create_task(ask(store, other_store, command()))
    await asyncio.wait([task], timeout=0.5)
    worker.go.set()
    assert await task == (201, b"body")
    assert len(worker.done) == 1


@pytest.mark.parametrize("size", [3, 3 * 2**20])
async def test_a_lost_piece_is_sent_again_and_the_work_is_not_done_again(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The head of the answer is lost on its way. Large answers are not kept: the asker is told so."""
    worker = Worker(b"x" * size)
    await other_store.peers.serve(worker)
    monkeypatch.setattr(commands, "SILENCE_S", 0.3)
    monkeypatch.setattr(commands, "AGAIN_S", 0.01)
    question, take = commands._Question, commands._Question._parcel  # pyright: ignore[reportPrivateUsage]
    lost: list[str] = []

    async def lose(self: commands._Question) -> Parcel | None:  # pyright: ignore[reportPrivateUsage]
        parcel = await take(self)
        if parcel is not None and parcel.headers.get(commands.NUMBER) == "1" and not lost:
            lost.append("1")
            return await lose(self)
        return parcel

    monkeypatch.setattr(question, "_parcel", lose)
    if size < commands.KEPT_BYTES:
        assert await ask(store, other_store, command()) == (201, b"body" + b"x" * size)
    else:
        with pytest.raises(ServerLost, match="the answer was lost on its way"):
            await ask(store, other_store, command())
    assert (lost, len(worker.done)) == (["1"], 1)


async def test_large_commands_and_answers_are_cut_into_messages(store: JetStreamStore, other_store: JetStreamStore) -> None:
    worker = Worker(b"y" * (5 * 2**20))
    await other_store.peers.serve(worker)
    status, body = await ask(store, other_store, command(body=b"x" * (3 * 2**20)))
    assert (status, len(body), body.count(b"x")) == (201, 8 * 2**20, 3 * 2**20)


async def test_a_server_that_does_not_live_is_a_clear_error(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "AGAIN_S", 0.01)
    with pytest.raises(ServerLost, match="The server other, which has this session, cannot be reached") as lost:
        await ask(store, other_store, command())
    assert not lost.value.was_heard


async def test_a_silent_server_may_have_done_a_command(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is paused, so that NATS says of no sending that nobody listens."""

    async def ignore(paused: commands.Commands, parcel: Parcel) -> None:
        """Hear a command, and do nothing."""

    monkeypatch.setattr(commands, "SILENCE_S", 0.01)
    monkeypatch.setattr(commands.Commands, "_receive", ignore)
    await other_store.peers.serve(Worker())
    with pytest.raises(ServerLost, match="cannot be reached") as lost:
        await ask(store, other_store, command())
    assert lost.value.was_heard


async def test_a_failure_of_the_work_reaches_its_asker(store: JetStreamStore, other_store: JetStreamStore) -> None:
    @asynccontextmanager
    async def fail(command: Command) -> AsyncGenerator[Answer]:
        raise ValueError("no room")
        yield

    await other_store.peers.serve(fail)
    with pytest.raises(ServerLost, match=r"The server other failed: no room\. See its log"):
        await ask(store, other_store, command())


async def test_work_ends_when_its_client_has_gone(store: JetStreamStore, other_store: JetStreamStore) -> None:
    worker = Worker()
    worker.go.clear()
    await other_store.peers.serve(worker)
    task = asyncio.create_task(ask(store, other_store, command()))
    async with asyncio.timeout(SEEN_S):
        while not worker.done:
            await asyncio.sleep(0)
        task.cancel()
        await worker.ended.wait()


async def test_too_many_commands_are_refused(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "WORKS", 0)
    await other_store.peers.serve(Worker())
    with pytest.raises(ServerLost, match="works on 0 requests of other servers already"):
        await ask(store, other_store, command())
