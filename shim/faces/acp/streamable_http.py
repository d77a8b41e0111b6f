"""Serves `/acp` to clients that speak Streamable HTTP: messages in by POST, messages out by one event stream.

    POST    `initialize` without a connection -> 200 with its answer and the connection's id; everything else -> 202
    GET     the stream of the connection, which has all messages; one for a session stays empty
    DELETE  ends the connection

All messages have one stream, so that updates and answers keep their order: the clients of both SDKs read all streams as one.
Source: @agentclientprotocol/sdk 2.4.0 and agent-client-protocol 0.12.1, whose clients the tests use.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web

from shim.faces.acp.connection import Connection, Outbox
from shim.faces.acp.methods import METHODS
from shim.http import log_stream, wire_json
from shim.http.operation import Ctx
from shim.http.services import need_room
from shim.lib.errors import InvalidRequest, NotFound
from universal.lib.jsonvalue import obj

CONNECTION_ID, SESSION_ID = "Acp-Connection-Id", "Acp-Session-Id"
"""Headers that name a connection, and a session of it. The first opens nothing: each request shows its credentials."""
UNREAD_S = 30.0
"""Seconds that a connection waits for the client to read its stream. It ends with that stream."""
ANSWER_S = 30.0
"""Maximum seconds to answer `initialize`."""


class RemoteClient:
    """A client, from `initialize` to the end of its stream."""

    def __init__(self, ctx: Ctx) -> None:
        self.name = secrets.token_hex(16)
        self.connection = Connection(ctx, METHODS, self.close)
        self.is_read = False
        self._key = id(ctx.services), self.name
        self._unread: asyncio.TimerHandle | None = None
        self._place = ctx.services.sessions.deps.feed.attend(f"acp {self.name[:8]}")
        self._end = asyncio.create_task(self._close_at_end(), name="acp end")
        CLIENTS[self._key] = self

    def read(self) -> _Stream:
        """The stream of the messages, with which the connection ends. Raises InvalidRequest if it is read already."""
        if self.is_read:
            raise InvalidRequest("The stream of this connection is read already.", "Headers", (CONNECTION_ID,))
        self.is_read = True
        if self._unread is not None:
            self._unread.cancel()
        outbox = self.connection.outbox
        return _Stream(outbox, outbox.take, self.close)

    def limit_wait(self) -> None:
        """End the connection if the client does not begin to read in UNREAD_S."""
        self._unread = asyncio.get_running_loop().call_later(UNREAD_S, self.close)

    def close(self) -> None:
        """End the connection. Turns go on. May be called again."""
        if CLIENTS.pop(self._key, None) is not None:
            if self._unread is not None:
                self._unread.cancel()
            self.connection.close()
            self._place.close()
            self._end.cancel()

    async def _close_at_end(self) -> None:
        await self._place.wait(None)
        self.close()


CLIENTS: dict[tuple[int, str], RemoteClient] = {}
"""Server and name of a connection -> its client."""


def _client(ctx: Ctx) -> RemoteClient:
    """The client of a request. Raises NotFound for a connection that is over."""
    name = ctx.request.headers.get(CONNECTION_ID, "")
    found = CLIENTS.get((id(ctx.services), name))
    if found is None:
        raise NotFound("There is no such connection: it is over. Send `initialize` without Acp-Connection-Id for a new one.")
    return found


async def take_message(ctx: Ctx) -> web.StreamResponse:
    """Take a message of a client."""
    raw = await ctx.request.read()
    if CONNECTION_ID in ctx.request.headers:
        _client(ctx).connection.receive(raw)
        return web.Response(status=202)
    try:
        first = obj(wire_json.loads(raw))
    except wire_json.MalformedJson as error:
        raise InvalidRequest(f"The body is not JSON: {error}") from error
    if first.get("method") != "initialize" or "id" not in first:
        raise InvalidRequest("The first request of a connection is `initialize`.")
    need_room(ctx.services)
    client = RemoteClient(ctx)
    client.connection.receive(raw)
    try:
        async with asyncio.timeout(ANSWER_S):
            answers = await client.connection.outbox.take()
        if client.connection.capabilities is None or not answers:  # a refusal, or the server stops
            client.close()
            return web.Response(status=400, body=b"".join(answers), content_type="application/json")
    except BaseException:  # also a cancellation: the client does not know of this connection
        client.close()
        raise
    client.limit_wait()
    return web.Response(body=answers[0], content_type="application/json", headers={CONNECTION_ID: client.name})


async def stream(ctx: Ctx) -> web.StreamResponse:
    """Send a client its messages."""
    client = _client(ctx)
    outbox = client.connection.outbox
    source = _Stream(outbox, outbox.end, lambda: None) if SESSION_ID in ctx.request.headers else client.read()
    return await log_stream.stream(ctx.request, source, lambda message: b"data: %b\n\n" % message)


def end(ctx: Ctx) -> web.StreamResponse:
    """End a client's connection."""
    _client(ctx).close()
    return web.Response(status=202)


class _Stream:
    """A stream of a connection: its messages, or nothing until it is over. In: what waits for the next messages."""

    def __init__(self, outbox: Outbox, wait: Callable[[], Awaitable[list[bytes]]], close: Callable[[], None]) -> None:
        self._outbox, self._wait, self.close = outbox, wait, close

    @property
    def over(self) -> bool:
        return self._outbox.is_over

    async def take(self, until: float | None = None) -> list[bytes]:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                return await self._wait()
        return []
