"""A WebSocket that another server serves: frames, closes and losses pass to the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from socket import SHUT_RDWR

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, ClientWSTimeout, WSMsgType, web
from aiohttp.test_utils import TestServer

from shim.cluster import tunnel
from shim.cluster.peers import PipeEnded
from shim.cluster.tunnel import Head, decode_head, encode_head, join, socket_of_client
from shim.lib.errors import ServerLost

SEEN_S = 20
BOUND = ClientWSTimeout(ws_receive=SEEN_S)  # pyright: ignore[reportCallIssue] - of attrs, which pyright does not see


class FakePipe:
    """One end in memory. `other` is set by `pair`; `loss`: how it ends instead of well."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other = self
        self.loss = ""
        self.ended = asyncio.Event()
        """Its WebSocket is over."""

    async def send(self, message: bytes) -> None:
        if self.loss:
            raise ServerLost(self.loss)
        self.other.messages.put_nowait(message)

    async def receive(self) -> bytes | None:
        message = await self.messages.get()
        if message is None and self.loss:
            raise ServerLost(self.loss)
        return message

    def lose(self, reason: str) -> None:
        self.loss = reason
        self.messages.put_nowait(None)


def pair() -> tuple[FakePipe, FakePipe]:
    one, other = FakePipe(), FakePipe()
    one.other, other.other = other, one
    return one, other


@asynccontextmanager
async def socket_to(pipe: FakePipe) -> AsyncGenerator[ClientWebSocketResponse]:
    """A client's WebSocket on a server that carries it through a pipe."""

    async def serve(request: web.Request) -> web.StreamResponse:
        socket = socket_of_client()
        await socket.prepare(request)
        assert request.transport is not None
        try:
            await join(socket, pipe, request.transport.abort)
        finally:
            pipe.ended.set()
            pipe.other.messages.put_nowait(None)
        return socket

    app = web.Application()
    app.router.add_get("/", serve)
    async with (
        TestServer(app) as server,
        ClientSession() as client,
        client.ws_connect(server.make_url("/"), autoclose=False, timeout=BOUND) as socket,
    ):
        yield socket


@pytest.fixture
async def ends() -> AsyncIterator[tuple[ClientWebSocketResponse, ClientWebSocketResponse]]:
    """Two WebSockets whose servers are joined by a pipe."""
    one, other = pair()
    async with socket_to(one) as left, socket_to(other) as right:
        yield left, right


def test_the_head_of_an_answer_survives() -> None:
    head = Head(101, (("X-Shim-Token", "a"),))
    assert decode_head(encode_head(head)) == head
    for message in (None, b"", b"{}", b"[1]"):
        with pytest.raises(ServerLost, match="another version"):
            decode_head(message)


async def test_text_and_bytes_pass_both_ways(ends: tuple[ClientWebSocketResponse, ClientWebSocketResponse]) -> None:
    for here, there in (ends, ends[::-1]):
        await here.send_str("tëxt")
        await here.send_bytes(b"T\0\xff")
        await here.send_str("")
        assert [(await there.receive())[:2] for _ in range(3)] == [
            (WSMsgType.TEXT, "tëxt"),
            (WSMsgType.BINARY, b"T\0\xff"),
            (WSMsgType.TEXT, ""),
        ]


@pytest.mark.parametrize("is_left", [True, False])
async def test_a_close_passes_with_its_code_and_reason(
    ends: tuple[ClientWebSocketResponse, ClientWebSocketResponse], is_left: bool
) -> None:
    here, there = ends if is_left else ends[::-1]
    await here.close(code=4404, message=b"gone")
    message = await there.receive()
    assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 4404, "gone")


async def test_a_side_that_is_cut_off_closes_the_other_one(
    ends: tuple[ClientWebSocketResponse, ClientWebSocketResponse],
) -> None:
    here, there = ends
    here.get_extra_info("socket").shutdown(SHUT_RDWR)
    message = await there.receive()
    assert (message.type, message.data) == (WSMsgType.CLOSE, tunnel.LOST)


@pytest.mark.parametrize("is_sending", [True, False])
async def test_a_lost_server_closes_the_socket_with_the_reason(is_sending: bool) -> None:
    pipe, _ = pair()
    async with socket_to(pipe) as socket:
        if is_sending:
            pipe.loss = "The server one was lost. " + "x" * 500
            await socket.send_str("input")
        else:
            pipe.lose("The server one was lost. " + "x" * 500)
        message = await socket.receive()
    assert (message.type, message.data) == (WSMsgType.CLOSE, tunnel.LOST)
    assert message.extra == ("The server one was lost. " + "x" * 500)[: tunnel.REASON_BYTES]


async def test_a_stream_that_ends_without_a_close_closes_the_socket() -> None:
    pipe, _ = pair()
    async with socket_to(pipe) as socket:
        pipe.messages.put_nowait(None)
        message = await socket.receive()
    assert (message.type, message.data) == (WSMsgType.CLOSE, tunnel.LOST)


async def test_the_last_output_is_shown_to_a_person_who_types_while_the_shell_ends() -> None:
    class ShellAtItsEnd(FakePipe):
        """It is over, and what came before is read after a send has failed."""

        has_failed = asyncio.Event()

        async def send(self, message: bytes) -> None:
            self.has_failed.set()
            raise PipeEnded("The server one has ended the stream.")

        async def receive(self) -> bytes | None:
            await self.has_failed.wait()
            return await super().receive()

    pipe = ShellAtItsEnd()
    for frame in (b"Tlogout", b'C{"code": 1000, "reason": "done"}'):
        pipe.messages.put_nowait(frame)
    async with socket_to(pipe) as socket:
        await socket.send_str("exit\nls\n")
        messages = [await socket.receive() for _ in range(2)]
    assert [(message.type, message.data) for message in messages] == [(WSMsgType.TEXT, "logout"), (WSMsgType.CLOSE, 1000)]


async def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "SEND_S", 0.2)
    monkeypatch.setattr(tunnel, "STOP_S", 0.1)
    pipe, other = pair()
    for _ in range(100):
        await other.send(b"B" + b"x" * 2**20)
    async with socket_to(pipe):
        await asyncio.wait_for(pipe.ended.wait(), SEEN_S)
        assert not pipe.messages.empty()
