"""Real streams: an aiohttp server in the test, real sockets, clients that read, stop reading and leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from shim.faces.opencode1.generations import generation_of
from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.stream.hub import Hub, HubBounds
from shim.stream.response import HEADERS, _Sender, stream
from shim.stream.subscription import Bounds
from tests.unit.stream.reading import WAIT_S, ReceivedFrame, frames_of, make_hub, numbered_event, numbers, subscribe

NEVER_S = 1000.0


@dataclass
class Server:
    """The server of a test: `/event` and `/global/event` over one hub."""

    hub: Hub
    url: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[web.Request] = field(default_factory=list)
    running: int = 0
    stop: Callable[[], Awaitable[None]] | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        wrapped = request.path == "/global/event"
        subscription = subscribe(
            self.hub,
            scope=None if wrapped else request.query.get("directory"),
            wrapped=wrapped,
            legacy=generation_of(request.query, request.headers) == "v1.1",
            last_event_id=request.headers.get("Last-Event-ID"),
        )
        self.requests.append(request)
        self.running += 1
        self.changed.set()
        try:
            return await stream(request, subscription, write_queue=self.hub.write_queue, **self.options)
        finally:
            self.running -= 1
            self.changed.set()

    async def until(self, running: int) -> None:
        """Until so many streams are open."""
        async with asyncio.timeout(WAIT_S):
            while self.running != running:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def stream_server(hub: Hub | None = None, **options: Any) -> AsyncIterator[Server]:
    """A server that ends its hub on shutdown, as the real one does. No task of it may stay."""
    before = asyncio.all_tasks()
    server = Server(hub or make_hub(), options=options)
    app = web.Application()
    app.router.add_route("*", "/event", server.handle)
    app.router.add_route("*", "/global/event", server.handle)

    async def on_shutdown(_: web.Application) -> None:
        server.hub.close()

    app.on_shutdown.append(on_shutdown)
    runner = web.AppRunner(app, handler_cancellation=False, shutdown_timeout=30)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    server.stop = runner.cleanup
    try:
        async with asyncio.timeout(4 * WAIT_S):
            yield server
    finally:
        await runner.cleanup()
        assert server.running == 0
        assert server.hub.stats().readers == 0
        left = [task for task in asyncio.all_tasks() - before if not task.done()]
        assert left == []


@pytest.fixture(autouse=True)
def no_warnings(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(sock_read=WAIT_S)) as session:
        yield session


async def take(frames: AsyncIterator[ReceivedFrame], count: int) -> list[ReceivedFrame]:
    return [await anext(frames) for _ in range(count)]


async def test_headers_as_native(client: aiohttp.ClientSession) -> None:
    async with stream_server() as server, client.get(server.url + "/event") as response:
        assert response.status == 200
        names = {*HEADERS, "Transfer-Encoding"}
        assert {name: response.headers.get(name) for name in names} == {**HEADERS, "Transfer-Encoding": "chunked"}
        assert "Connection" not in response.headers


async def test_a_stream_from_first_to_last(client: aiohttp.ClientSession) -> None:
    async with (
        stream_server() as server,
        client.get(server.url + "/event?directory=/p") as plain,
        client.get(server.url + "/global/event") as wrapped,
    ):
        server.hub.publish(numbered_event(1, "/p", project="prj"))
        server.hub.publish(numbered_event(2, "/q"))
        server.hub.publish(numbered_event(3, "/p", urgent=True))
        here, everywhere = frames_of(plain), frames_of(wrapped)
        first, *rest = await take(here, 3)
        assert first.data == {"id": first.event["id"], "type": "server.connected", "properties": {}}
        assert numbers(rest) == [1, 3]
        first, *rest = await take(everywhere, 4)
        assert first.data == {"payload": {"id": first.event["id"], "type": "server.connected", "properties": {}}}
        assert numbers(rest) == [1, 2, 3]
        assert [got.data.get("project") for got in rest] == ["prj", None, None]
        server.hub.close()
        assert [got async for got in here] == []
        assert [got async for got in everywhere] == []


async def test_a_client_of_1_1_is_known_by_its_name(client: aiohttp.ClientSession) -> None:
    async with (
        stream_server() as server,
        client.get(server.url + "/event", headers={"User-Agent": "opencode/1.1.53"}) as response,
    ):
        server.hub.publish(numbered_event(1, legacy=lambda: numbered_event(-1)))
        found = await take(frames_of(response), 2)
        assert [got.data for got in found] == [
            {"type": "server.connected", "properties": {}},
            {"type": "test.said", "properties": {"n": -1}},
        ]


async def test_only_get_is_allowed() -> None:
    async with stream_server() as server, aiohttp.ClientSession() as session:
        for method in ("POST", "HEAD"):
            async with session.request(method, server.url + "/event") as response:
                assert response.status == 405
        assert server.hub.stats().readers == 0


# Heartbeats.


@pytest.mark.parametrize(
    ("path", "user_agent", "modern", "shape"),
    [
        ("/event", "x", True, {"type": "server.heartbeat", "properties": {}}),
        ("/global/event", "x", True, {"payload": {"type": "server.heartbeat", "properties": {}}}),
        ("/event", "opencode/1.1.53", False, {"type": "server.heartbeat", "properties": {}}),
        ("/global/event", "opencode/1.1.53", False, {"payload": {"type": "server.heartbeat", "properties": {}}}),
    ],
)
async def test_heartbeats(client: aiohttp.ClientSession, path: str, user_agent: str, modern: bool, shape: Any) -> None:
    headers = {"User-Agent": user_agent}
    async with stream_server(heartbeat_s=0.005) as server, client.get(server.url + path, headers=headers) as response:
        found = await take(frames_of(response), 5)
        assert [got.type for got in found] == ["server.connected"] + ["server.heartbeat"] * 4
        ids = {got.event.get("id") for got in found}
        assert len(ids) == 5 if modern else ids == {None}
        for got in found:
            got.event.pop("id", None)
        assert [got.data for got in found[1:]] == [shape] * 4


async def test_heartbeats_come_between_events_too(client: aiohttp.ClientSession) -> None:
    async with stream_server(heartbeat_s=0.005) as server, client.get(server.url + "/event") as response:
        found: list[str] = []
        async for got in frames_of(response):
            found.append(got.type)
            server.hub.publish(numbered_event(1))
            if found.count("server.heartbeat") == 3:
                break
        assert "test.said" in found


async def test_a_heartbeat_is_for_one_reader(client: aiohttp.ClientSession) -> None:
    async with stream_server(heartbeat_s=NEVER_S) as server, client.get(server.url + "/event") as response:
        other = subscribe(server.hub, scope=None)
        other.send_heartbeat()
        server.hub.publish(numbered_event(1))
        assert [got.type for got in await take(frames_of(response), 2)] == ["server.connected", "test.said"]
        other.close()


# Gathering.


async def test_urgent_frames_take_what_waits_along(client: aiohttp.ClientSession) -> None:
    async with stream_server(gather_s=NEVER_S, heartbeat_s=NEVER_S) as server, client.get(server.url + "/event") as response:
        frames = frames_of(response)
        await take(frames, 1)
        for number in range(3):
            server.hub.publish(numbered_event(number))
        waiting = asyncio.ensure_future(anext(frames))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        server.hub.publish(numbered_event(3, urgent=True))
        assert numbers([await waiting, *await take(frames, 3)]) == [0, 1, 2, 3]


async def test_settled_sends_what_was_gathered(client: aiohttp.ClientSession) -> None:
    async with stream_server(gather_s=NEVER_S, heartbeat_s=NEVER_S) as server, client.get(server.url + "/event") as response:
        frames = frames_of(response)
        await take(frames, 1)
        for number in range(3):
            server.hub.publish(numbered_event(number))
        await server.hub.settle("/p", NEVER_S)
        assert numbers(await take(frames, 3)) == [0, 1, 2]


async def test_streams_are_counted_while_they_are_open(client: aiohttp.ClientSession) -> None:
    async with stream_server(heartbeat_s=NEVER_S) as server:
        async with client.get(server.url + "/event") as one, client.get(server.url + "/event") as two:
            await take(frames_of(one), 1)
            await take(frames_of(two), 1)
            assert server.hub.write_queue.streams == 2
        async with asyncio.timeout(WAIT_S):
            while server.hub.write_queue.streams:
                server.hub.publish(numbered_event(1))  # a connection that is closed is found out by the next writes
                await asyncio.sleep(0)


# Replay while others publish.


async def test_reconnecting_without_gap_or_double(client: aiohttp.ClientSession) -> None:
    total, seen, at = 600, [], ""
    async with stream_server() as server:

        async def publish() -> None:
            for number in range(total):
                server.hub.publish(numbered_event(number))
                await asyncio.sleep(0)

        publishing: asyncio.Task[None] | None = None
        connections = 0
        while not seen or seen[-1] != total - 1:
            connections += 1
            async with client.get(server.url + "/event", headers={"Last-Event-ID": at} if at else {}) as response:
                if publishing is None:
                    publishing = asyncio.ensure_future(publish())
                count = 0
                async for got in frames_of(response):
                    at = got.id
                    seen += numbers([got])
                    count += 1
                    if count == 37 or seen[-1:] == [total - 1]:
                        break
            response.close()
        assert publishing is not None
        await publishing
    assert seen == list(range(total))
    assert connections > 5
    assert server.hub.stats().replay_missed == 0


# Clients that leave or do not read.


async def test_a_client_that_left_is_let_go_at_the_next_frame(client: aiohttp.ClientSession) -> None:
    async with stream_server(heartbeat_s=0.01) as server:
        response = await client.get(server.url + "/event")
        await server.until(1)
        response.close()
        await server.until(0)
        assert server.hub.stats().readers == 0


async def connect_and_stop_reading(server: Server, path: str = "/event") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that asks for the stream and takes no byte of it."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1)
    writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue]  a socket transport has it
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return reader, writer


async def is_broken_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the connection ends in the middle of the body: reset, or without the last chunk."""
    writer.transport.resume_reading()  # pyright: ignore[reportAttributeAccessIssue]  a socket transport has it
    tail = b""
    try:
        async with asyncio.timeout(WAIT_S):
            while data := await reader.read(1 << 20):
                tail = (tail + data)[-5:]
    except ConnectionError:
        return True
    finally:
        writer.close()
    return tail != b"0\r\n\r\n"


def large(number: int, directory: str | None = None) -> OpenCodeEvent:
    return OpenCodeEvent("test.said", {"n": number, "x": "y" * 100_000}, scope=directory)


async def test_a_slow_reader_is_broken_off_and_the_others_get_everything(client: aiohttp.ClientSession) -> None:
    hub = make_hub(HubBounds(reader=Bounds(frames=1000, bytes=1_000_000)))
    async with stream_server(hub) as server:
        reader, writer = await connect_and_stop_reading(server)
        await server.until(1)
        async with client.get(server.url + "/event") as response:
            await server.until(2)
            frames = frames_of(response)
            await take(frames, 1)
            with capture_logs() as logs:
                number = 0
                while hub.stats().dropped == 0:
                    hub.publish(large(number))
                    assert numbers([await anext(frames)]) == [number]
                    number += 1
                await server.until(1)
            assert [entry["event"] for entry in logs] == ["subscriber.dropped"]
            hub.publish(numbered_event(-1))
            assert numbers([await anext(frames)]) == [-1]
        assert await is_broken_off(reader, writer)


async def test_a_reader_that_is_dropped_between_writes_is_broken_off(client: aiohttp.ClientSession) -> None:
    hub = make_hub(HubBounds(reader=Bounds(frames=10)))
    async with stream_server(hub) as server, client.get(server.url + "/event") as response:
        frames = frames_of(response)
        await take(frames, 1)
        with capture_logs() as logs:
            for number in range(100):
                hub.publish(numbered_event(number))
        assert [entry["event"] for entry in logs] == ["subscriber.dropped"]
        with pytest.raises(aiohttp.ClientError):
            await anext(frames)


async def test_a_client_that_takes_nothing_for_too_long_is_broken_off() -> None:
    hub = make_hub(HubBounds(reader=Bounds(frames=1000, bytes=1 << 30)))
    async with stream_server(hub, send_timeout_s=0.05) as server:
        reader, writer = await connect_and_stop_reading(server)
        await server.until(1)
        with capture_logs() as logs:
            for number in range(200):
                hub.publish(large(number))
            await server.until(0)
        assert [entry["event"] for entry in logs] == ["subscriber.stalled"]
        assert hub.stats().readers == 0
        assert await is_broken_off(reader, writer)


# Shutdown.


async def test_shutdown_with_fifty_streams_and_one_that_does_not_read() -> None:
    hub = make_hub(HubBounds(reader=Bounds(frames=1000, bytes=1 << 30)))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as many, stream_server(hub) as server:
        responses = [await many.get(server.url + "/event?directory=/p") for _ in range(50)]
        stuck = await connect_and_stop_reading(server, "/event?directory=/q")
        await server.until(51)
        for number in range(100):
            hub.publish(large(number, "/q"))
        hub.publish(numbered_event(1))
        loop = asyncio.get_running_loop()
        assert server.stop is not None
        start = loop.time()
        hub.publish(numbered_event(2))
        await server.stop()
        assert loop.time() - start < 1.0
        for response in responses:
            found = [got async for got in frames_of(response)]
            assert [got.type for got in found] == ["server.connected", "test.said", "test.said"]
        assert await is_broken_off(*stuck)


async def test_the_last_bytes_do_not_wait_for_a_client_either(client: aiohttp.ClientSession) -> None:
    async with stream_server() as server, client.get(server.url + "/event") as response:
        await take(frames_of(response), 1)
        server.requests[0].protocol.pause_writing()  # as a socket does whose buffers are full
        loop = asyncio.get_running_loop()
        assert server.stop is not None
        start = loop.time()
        await server.stop()
        assert loop.time() - start < 1.0


async def test_a_stream_that_is_opened_during_shutdown_ends_at_once(client: aiohttp.ClientSession) -> None:
    async with stream_server() as server:
        server.hub.close()
        async with client.get(server.url + "/event") as response:
            assert [got.type async for got in frames_of(response)] == ["server.connected"]


async def test_a_handler_that_is_cancelled_closes_its_subscription() -> None:
    async with stream_server() as server, aiohttp.ClientSession() as session, session.get(server.url + "/event") as response:
        await take(frames_of(response), 1)
        handlers = [task for task in asyncio.all_tasks() if "RequestHandler.start" in repr(task)]
        assert handlers
        for task in handlers:
            task.cancel()
        await server.until(0)
        assert server.hub.stats().readers == 0


async def test_a_stream_whose_client_left_during_a_write_ends() -> None:
    """Seen at a shutdown: the end came between the failed write and the end of its stream."""
    hub = make_hub()
    subscription = subscribe(hub, scope=None)
    sender = _Sender(subscription, 5.0)

    async def raise_reset() -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await sender.send(raise_reset())
    hub.close()
    subscription.close()
