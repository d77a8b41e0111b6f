"""Commands between servers: done once, answered in pieces, and never waited for without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

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


async def test_a_command_whose_asker_gave_up_is_never_done(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server is paused, so that NATS says of no sending that nobody listens. It hears all of them when it goes on."""
    heard: list[Parcel] = []
    receive, worker = commands.Commands._receive, Worker()  # pyright: ignore[reportPrivateUsage]

    async def keep(paused: commands.Commands, parcel: Parcel) -> None:
        heard.append(parcel)

    monkeypatch.setattr(commands, "SILENCE_S", 0.01)
    monkeypatch.setattr(commands, "WORD_S", 0.05)
    monkeypatch.setattr(commands.Commands, "_receive", keep)
    await other_store.peers.serve(worker)
    with pytest.raises(ServerLost, match="cannot be reached") as lost:
        await ask(store, other_store, command())
    assert not lost.value.was_heard, "it may be asked of the next server"
    other = other_store._use().peers.commands  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(commands.Commands, "_receive", receive)
    assert heard
    for parcel in heard:
        await receive(other, parcel)
    async with asyncio.timeout(SEEN_S):
        while other._works:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.01)
    assert worker.done == []


async def test_a_word_that_is_as_old_as_a_pause_is_asked_for_again(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server was paused between its question and the word, and the asker has given up meanwhile."""
    worker, loop = Worker(), asyncio.get_running_loop()
    time, paused_s = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: time() + paused_s)
    receive = commands.Commands._receive  # pyright: ignore[reportPrivateUsage]
    words = 0

    async def pause_before_the_word(self: commands.Commands, parcel: Parcel) -> None:
        nonlocal paused_s, words
        if parcel.headers[commands.PART] == commands.BEGIN:
            words += 1
            paused_s += 60.0 if words == 1 else 0.0
        await receive(self, parcel)

    monkeypatch.setattr(commands.Commands, "_receive", pause_before_the_word)
    await other_store.peers.serve(worker)
    async with store.peers.ask(ServerRef(other_store.server_id, 1, name="other"), command()) as answer:
        assert answer.status == 201
    assert words > 1
    assert len(worker.done) == 1


async def test_a_command_that_changes_nothing_begins_at_once(
    store: JetStreamStore, other_store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "QUESTIONS", 0)
    await other_store.peers.serve(Worker())
    assert await ask(store, other_store, replace(command(), is_change=False)) == (201, b"body")


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
