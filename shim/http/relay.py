"""Lets the server that has a session do what a client asks of another server of the cluster.

    client -> this server: the handler raises SessionElsewhere -> Relay.forward -> the owner: Relay.perform -> its routes
    client <- this server: status, headers and body               <-            <-

This is the only place that knows it: handlers and faces see a request of their own server. A request is forwarded once; a server
that does not have the session any more answers with its 409. The owner gives the request to its application over a private
socket, so that it passes the same middlewares, but for the gate: this server has checked its credentials. Other programs of the
user can find that socket, also agents: it answers nobody who does not know a secret of this process.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog
from aiohttp import ClientResponse, ClientSession, ClientTimeout, UnixConnector, web
from aiohttp.typedefs import Handler
from yarl import URL

from shim.errors import PermissionNotFound, PlacedElsewhere, QuestionNotFound, SessionElsewhere, SessionNotFound, StoreError
from shim.http.access import READING, RELAYED, access_of, is_authorized
from shim.http.directory import HEADER, QUERY_NAMES, resolve
from shim.http.middleware import NOT_HERE
from shim.http.operation import COMPRESS_ABOVE_BYTES, SERVICES
from shim.store.peers import Answer, Command, Headers, Peers
from shim.store.servers import ServerRef

log = structlog.get_logger(__name__)

CHUNK_BYTES = 64 * 2**10
"""Bytes of an answer that are read at once."""
STOP_S = 2.0
"""Maximum seconds that a stop waits for requests of other servers."""
NOT_FORWARDED = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "cookie",
        "date",
        "expect",
        "host",
        "keep-alive",
        "origin",
        "server",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of a connection, and credentials, which are checked already."""
NOT_FORWARDED_PREFIXES = ("access-control-", "sec-", "x-forwarded-", "proxy-")
SECRET_HEADER = "X-Shim-Relay"  # noqa: S105 - a name
STREAM = "text/event-stream"
OF_A_DIRECTORY = frozenset(
    {
        "agent",
        "command",
        "config",
        "file",
        "find",
        "formatter",
        "fs",
        "location",
        "lsp",
        "mcp",
        "model",
        "path",
        "project",
        "provider",
        "reference",
        "skill",
        "vcs",
    }
)
"""What a front reads from a server that may have the directory: the first name of a path, behind `/api`. A front has no agents,
and perhaps no projects."""


def headers_to_forward(headers: Mapping[str, str]) -> Headers:
    """The headers that another server may see."""
    return tuple(
        (name, value)
        for name, value in headers.items()
        if name.lower() not in NOT_FORWARDED and not name.lower().startswith(NOT_FORWARDED_PREFIXES)
    )


class Relay:
    """This server's place in a cluster: it asks others, and does what they ask."""

    def __init__(self, app: web.Application, peers: Peers) -> None:
        self._app = app
        self._peers = peers
        self._secret = secrets.token_hex(32)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._runner: web.ServerRunner | None = None
        self._client: ClientSession | None = None

    async def start(self) -> None:
        """Do what other servers ask from now on."""
        self._folder = await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="opencode-shim-")
        # aiohttp has no public way to give an application a request of another connection.
        server = web.Server(self._receive, request_factory=self._app._make_request)  # pyright: ignore[reportPrivateUsage] - see above
        self._runner = web.ServerRunner(server, shutdown_timeout=STOP_S)
        await self._runner.setup()
        path = str(self.socket)
        await web.UnixSite(self._runner, path).start()
        self._client = ClientSession(connector=UnixConnector(path, limit=0), timeout=ClientTimeout(total=None))
        await self._peers.serve(self.perform)

    async def close(self) -> None:
        """End what is done for others."""
        if self._client is not None:
            await self._client.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.cleanup)

    @property
    def socket(self) -> Path:
        """The private socket, in a folder of this user alone. There is one after `start`."""
        assert self._folder is not None
        return Path(self._folder.name) / "relay"

    async def _receive(self, request: web.BaseRequest) -> web.StreamResponse:
        shown = request.headers.get(SECRET_HEADER, "")
        if not secrets.compare_digest(shown.encode(errors="surrogateescape"), self._secret.encode()):
            raise web.HTTPForbidden(text="This socket is for the server's own requests.")
        request[RELAYED] = True
        handle: Any = self._app._handle  # pyright: ignore[reportPrivateUsage] - as in `start`
        return await handle(request)

    @asynccontextmanager
    async def perform(self, command: Command) -> AsyncGenerator[Answer]:
        """Do a command of another server."""
        assert self._client is not None
        url = URL(f"http://relay{command.path}", encoded=True)
        headers = [*command.headers, ("Accept-Encoding", "identity"), (SECRET_HEADER, self._secret)]
        async with self._client.request(
            command.method, url, data=command.body or None, headers=headers, allow_redirects=False
        ) as response:
            is_change = command.method not in READING
            yield Answer(response.status, headers_to_forward(response.headers), self._chunks(response, is_change=is_change))

    async def _chunks(self, response: ClientResponse, *, is_change: bool) -> AsyncIterator[bytes]:
        """The body of an answer. It ends when what was changed is stored, because the other server reads it from the store."""
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            yield chunk
        if is_change:
            with suppress(StoreError):  # the change is done; the store reports its failure to the next request
                await self._app[SERVICES].store.flush()

    async def forward(self, request: web.Request, server: ServerRef) -> web.StreamResponse:
        """Let another server answer a request. Raises ServerLost, StoreError."""
        services = request.app[SERVICES]
        directory = resolve(request.query, request.headers, str(services.settings.directory))
        path = request.rel_url.raw_path_qs.removeprefix(services.settings.base_path)
        headers = headers_to_forward(request.headers)
        named = {name: directory for name in QUERY_NAMES if request.query.get(name)}
        if named:  # absolute: the other server may have another directory of its own
            path = str(URL(path, encoded=True).update_query(named))
        else:
            headers = (*(pair for pair in headers if pair[0].lower() != HEADER), (HEADER, quote(directory)))
        command = Command(secrets.token_hex(16), request.method, path, headers, await request.read())
        log.debug("cluster.forwarded", method=request.method, path=request.path, server=server.label)
        async with self._peers.ask(server, command) as answer:
            if any(name.lower() == "content-type" and value.startswith(STREAM) for name, value in answer.headers):
                return await self._stream(request, answer)
            body = b"".join([chunk async for chunk in answer.chunks])
        if request.method not in READING:  # the client's next read here must see what was done there
            await services.sessions.others.look_now()
        response = web.Response(status=answer.status, headers=dict(answer.headers), body=body)
        if len(body) > COMPRESS_ABOVE_BYTES:
            response.enable_compression()
        return response

    async def place(self, request: web.Request, error: PlacedElsewhere) -> web.StreamResponse:
        """Let the first of some servers answer that can. Raises the error if none can."""
        for server in error.servers:
            assert isinstance(server, ServerRef)
            response = await self.forward(request, server)
            if NOT_HERE not in response.headers:
                return response
        raise error

    async def _stream(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=dict(answer.headers))
        await response.prepare(request)
        async for chunk in answer.chunks:
            await response.write(chunk)
        await response.write_eof()
        return response


def _servers_for_front(request: web.Request) -> list[ServerRef]:
    """The servers that answer what a front reads of a directory; none for other servers and other requests."""
    services = request.app[SERVICES]
    placement = services.sessions.deps.placement
    if placement is None or placement.runs_agents or request.method not in READING:
        return []
    names = access_of(request).path(request).removeprefix("/api").split("/")
    if names[1:2] == [] or names[1] not in OF_A_DIRECTORY:
        return []
    directory = resolve(request.query, request.headers, str(services.settings.directory))
    return [node.ref for node in placement.candidates(directory)]


async def _with_new_sessions(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Call a handler, again if its session is unknown here and has just been created on another server."""
    try:
        return await handler(request)
    except SessionNotFound as error:
        sessions = request.app[SERVICES].sessions
        await sessions.others.look_now()
        if sessions.index.find(error.session_id) is None:
            raise
    return await handler(request)


RELAY: web.AppKey[list[Relay]] = web.AppKey("relay", list)
"""The relay of a server in a cluster; empty for one that is alone."""


@web.middleware
async def forward(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let the owner of a session answer what only the owner can."""
    relay = next(iter(request.app[RELAY]), None)
    if relay is None or RELAYED in request or not is_authorized(request):  # the owner takes a relayed request for authorized
        return await handler(request)
    if servers := _servers_for_front(request):
        return await relay.place(request, PlacedElsewhere(servers, "This server runs no agents (--no-agents)"))
    try:
        return await _with_new_sessions(request, handler)
    except PlacedElsewhere as error:
        return await relay.place(request, error)
    except SessionElsewhere as error:
        server = error.owner
        if not isinstance(server, ServerRef) or not server.pid:
            raise
    except (PermissionNotFound, QuestionNotFound) as error:
        server = await request.app[SERVICES].sessions.others.owner_of_request(error.request_id)
        if server is None:
            raise
    return await relay.forward(request, server)
