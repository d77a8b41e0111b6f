"""A wire between a node and NATS passes bytes, holds them back, or resets its connections."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tools.chaos.proxy import Wire

BOUND_S = 10.0


@pytest_asyncio.fixture
async def wire() -> AsyncIterator[Wire]:
    """To a server that answers with what it hears."""

    async def answer(reader: StreamReader, writer: StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    wire = Wire([server.sockets[0].getsockname()[1]])
    await wire.open()
    yield wire
    await wire.close()
    server.close()
    async with asyncio.timeout(BOUND_S):
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)


async def test_bytes_pass_until_a_silence_and_arrive_after_it(wire: Wire) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", wire.ports[0])
    async with asyncio.timeout(BOUND_S):
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        wire.silence()
        writer.write(b"two")
        answer = asyncio.ensure_future(reader.readexactly(3))
        done, _ = await asyncio.wait([answer], timeout=0.1)
        assert not done
        wire.mend()
        assert await answer == b"two"
    writer.close()


async def test_a_reset_ends_connections_and_refuses_new_ones_until_it_is_mended(wire: Wire) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", wire.ports[0])
    async with asyncio.timeout(BOUND_S):
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        wire.reset()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        again, second = await asyncio.open_connection("127.0.0.1", wire.ports[0])
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await again.readexactly(1)
        wire.mend()
        third, fresh = await asyncio.open_connection("127.0.0.1", wire.ports[0])
        fresh.write(b"two")
        assert await third.readexactly(3) == b"two"
    for one in (writer, second, fresh):
        one.close()
