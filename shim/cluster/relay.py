"""Lets the server that has a session or a directory do what a client asks of another server of the cluster.

    client -> this server: the handler raises SessionElsewhere -> Relay.forward -> the owner: Relay.perform -> its routes
    client <- this server: status, headers and body               <-            <-

For directories `hosts_of` chooses the servers, and WebSockets go through `tunnel.py`. This is the only place
that knows it: handlers and faces see a request of their own server. A server that is asked asks no other one; if it does not have
the session any more it says so, and this server asks the next owner. The owner gives the request to its application over a
private socket, so that it passes the same middlewares, but for the gate: this server has checked its credentials. Other programs
of the user can find that socket, also agents: it answers nobody who does not know a secret of this process.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import quote, unquote

import structlog
from aiohttp import (
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ClientWSTimeout,
    UnixConnector,
    WSCloseCode,
    WSServerHandshakeError,
    web,
)
from aiohttp.typedefs import Handler
from yarl import URL

from shim.cluster import tunnel
from shim.cluster.peers import Answer, Command, Headers, Peers, Pipe, delete_elsewhere
from shim.cluster.placement import ClusterPlacement
from shim.host.files.roots import within
from shim.http.access import (
    CONNECTION,
    PERSON,
    READING,
    RELAYED,
    TOKEN_QUERY,
    RelayedClient,
    access_of,
    has_ticket,
    is_authorized,
    may_use,
    token_of,
    while_good,
)
from shim.http.directory import HEADER, QUERY_NAMES, resolve
from shim.http.middleware import NOT_HERE
from shim.http.operation import COMPRESS_ABOVE_BYTES, SERVICES
from shim.http.pairing import decode_person, encode_person
from shim.http.people import OWNER, Person
from shim.http.services import Relay as LocalRelay
from shim.http.services import Services
from shim.http.terminal import TOKEN_HEADER
from shim.lib.disk import is_folder
from shim.lib.errors import (
    DirectoryElsewhere,
    Forbidden,
    HttpRefused,
    NoServer,
    PlacedElsewhere,
    ServerLost,
    SessionElsewhere,
    SessionNotFound,
    StoreError,
    StoreUnavailable,
)
from shim.lib.tasks import doer
from shim.store.servers import ServerRef
from universal.lib.jsonvalue import obj, text

log = structlog.get_logger(__name__)

CHUNK_BYTES = 64 * 2**10
"""Bytes of an answer that are read at once."""
STOP_S = 2.0
"""Maximum seconds that a stop waits for requests of other servers."""
CLOSE = ClientWSTimeout(ws_close=STOP_S)  # pyright: ignore[reportCallIssue] - of attrs, which pyright does not see
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
OURS_PREFIX = "x-shim-"
"""Begin of the headers between servers. A client's are dropped."""
SECRET_HEADER = "X-Shim-Relay"  # noqa: S105 - a name
STREAM = "text/event-stream"
TAKE_OVER_S = 15.0
"""Maximum seconds that a request waits until the sessions of a dead server have another one."""
LOOK_AGAIN_S = 0.25
"""Seconds between two looks for it."""
MOVES = 2
"""So often a request is placed again whose session its owner has given up or lost meanwhile."""
SWITCHING_PROTOCOLS = 101
PERSON_HEADER = "X-Shim-Person"
"""Who makes a request, as the client's server knows it."""
TICKET_ONLY = "X-Shim-Ticket-Only"
"""Header of a request of a client without credentials, which may show a ticket."""


def headers_to_forward(headers: Mapping[str, str]) -> Headers:
    """The headers that another server may see."""
    return tuple(
        (name, value)
        for name, value in headers.items()
        if name.lower() not in NOT_FORWARDED and not name.lower().startswith(NOT_FORWARDED_PREFIXES)
    )


def _session_of(request: web.Request) -> str | None:
    """The id of the session that a request names, or of its open permission or question. None for others."""
    names = request.match_info
    if "sessionID" not in names and "requestID" in names:
        return request.app[SERVICES].sessions.requests.session_of(names["requestID"])
    return names.get("sessionID")


def _default_directory(request: web.Request) -> str:
    """The directory of a request that names none: its session's, which the other server may use, or this server's."""
    services, session_id = request.app[SERVICES], _session_of(request)
    record = None if session_id is None else services.sessions.index.find_record(session_id)
    return str(services.settings.directory) if record is None else record.directory


def command_for(request: web.Request, body: bytes, more: Headers = ()) -> Command:
    """A client's request as a command. The directory in it is absolute: the other server may have another one of its own."""
    settings = request.app[SERVICES].settings
    directory = resolve(request.query, request.headers, _default_directory(request))
    url = URL(request.rel_url.raw_path_qs.removeprefix(settings.base_path), encoded=True)
    if TOKEN_QUERY in request.query:
        url = url.without_query_params(TOKEN_QUERY)
    headers = tuple(pair for pair in headers_to_forward(request.headers) if not pair[0].lower().startswith(OURS_PREFIX))
    named = {name: directory for name in QUERY_NAMES if request.query.get(name)}
    if named:
        url = url.update_query(named)
    else:
        headers = (*(pair for pair in headers if pair[0].lower() != HEADER), (HEADER, quote(directory)))
    client = (TOKEN_HEADER, token_of(request)) if is_authorized(request) else (TICKET_ONLY, "1")
    person = ((PERSON_HEADER, _person_header(request[PERSON])),) if PERSON in request else ()
    is_change = request.method not in READING
    return Command(secrets.token_hex(16), request.method, str(url), (*headers, client, *person, *more), body, is_change)


def _person_header(person: Person) -> str:
    return quote(json.dumps(encode_person(person)))


def _url(command: Command) -> URL:
    return URL(f"http://relay{command.path}", encoded=True)


class Relay(LocalRelay):
    """This server's place in a cluster: it asks others, and does what they ask.

    In: `placement`, which knows the servers of a directory; `note_host`, called with a directory that this server does not have
    and the server that has answered for it.
    """

    def __init__(
        self, app: web.Application, peers: Peers, placement: ClusterPlacement, note_host: Callable[[str, ServerRef], None]
    ) -> None:
        self._app = app
        self.peers = peers
        self._placement = placement
        self._note_host = note_host
        self._secret = secrets.token_hex(32)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._runner: web.ServerRunner | None = None
        self._client: ClientSession | None = None
        self._sockets: set[web.WebSocketResponse] = set()
        """WebSockets of clients of this server that another one serves."""
        self._is_closed = False

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
        await self.peers.serve(self.perform)
        await self.peers.accept(self.connect)

    async def close(self) -> None:
        """Finish what is done for others, for STOP_S at most, and do nothing more."""
        self._is_closed = True
        if self._runner is not None:
            await self._runner.cleanup()
        if self._client is not None:
            await self._client.close()
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
        token_id = None if TICKET_ONLY in request.headers else request.headers.get(TOKEN_HEADER, "")
        sent = request.headers.get(PERSON_HEADER)
        request[RELAYED] = RelayedClient(token_id, OWNER if sent is None else decode_person(json.loads(unquote(sent))))
        handle: Any = self._app._handle  # pyright: ignore[reportPrivateUsage] - as in `start`
        return await handle(request)

    @asynccontextmanager
    async def perform(self, command: Command) -> AsyncGenerator[Answer]:
        """Do a command of another server."""
        assert self._client is not None
        if self._is_closed:  # this server has just stopped; it has no sessions any more
            yield Answer(503, ((NOT_HERE, "1"),), _empty_body())
            return
        headers = [*self._headers(command), ("Accept-Encoding", "identity")]
        async with self._client.request(
            command.method, _url(command), data=command.body or None, headers=headers, allow_redirects=False
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

    def _headers(self, command: Command) -> Headers:
        return (*command.headers, (SECRET_HEADER, self._secret))

    async def connect(self, command: Command, pipe: Pipe) -> None:
        """Open a WebSocket for a client of another server."""
        assert self._client is not None
        if self._is_closed:
            await pipe.send(tunnel.encode_head(tunnel.Head(503, ((NOT_HERE, "1"),))))
            return
        try:
            async with self._client.ws_connect(
                _url(command), headers=self._headers(command), max_msg_size=0, timeout=CLOSE
            ) as socket:
                response = socket._response  # pyright: ignore[reportPrivateUsage] - there is no public way to its headers
                await pipe.send(tunnel.encode_head(tunnel.Head(101, headers_to_forward(response.headers))))
                await tunnel.join(socket, pipe, response.close)
        except WSServerHandshakeError as error:
            headers = headers_to_forward(error.headers or {})
            await pipe.send(tunnel.encode_head(tunnel.Head(error.status, headers)))

    async def serve(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request of a client, or let the server answer that has its session or its directory."""
        if RELAYED in request:
            await need_directory(request)
            return await _answer_when_stored(request, handler)
        if not is_authorized(request) and not has_ticket(request):  # the other server takes a relayed request for authorized
            return await handler(request)
        if (hosts := await hosts_of(request, self._placement)) is not None:
            served = await self.serve_directory(request, hosts)
            return await handler(request) if served is None else served
        response = await _answer_after_loss(request, handler, self)
        for _ in range(MOVES):
            if NOT_HERE not in response.headers:
                break
            await request.app[SERVICES].sessions.others.look_now()
            response = await _answer_after_loss(request, handler, self)
        return response

    async def forward(self, request: web.Request, server: ServerRef, more: Headers = ()) -> web.StreamResponse:
        """Let another server answer a request. Raises ServerLost, StoreError. In: `more`, headers for that server."""
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._carry(request, server, more)
        services = request.app[SERVICES]
        command = command_for(request, await request.read(), more)
        log.debug("cluster.forwarded", method=request.method, path=request.path, server=server.label)
        async with self.peers.ask(server, command) as answer:
            if any(name.lower() == "content-type" and value.startswith(STREAM) for name, value in answer.headers):
                return await self._stream(request, answer)
            body = b"".join([chunk async for chunk in answer.chunks])
        if request.method not in READING:  # the client's next read here must see what was done there
            await services.sessions.others.look_now()
        response = web.Response(status=answer.status, headers=dict(answer.headers), body=body)
        if len(body) > COMPRESS_ABOVE_BYTES:
            response.enable_compression()
        return response

    async def delete_session(self, session_id: str, server: ServerRef) -> None:
        """Let another server delete a session of its own. Raises ServerLost, StoreError."""
        name = doer()
        headers = () if name is None else ((PERSON_HEADER, _person_header(Person(name))),)
        await delete_elsewhere(self.peers, session_id, server, headers)

    async def _carry(self, request: web.Request, server: ServerRef, more: Headers) -> web.StreamResponse:
        """Let another server serve a WebSocket."""
        log.debug("cluster.socket_forwarded", path=request.path, server=server.label)
        async with self.peers.open(server, command_for(request, b"", more)) as pipe:
            head = tunnel.decode_head(await pipe.receive())
            if NOT_HERE in dict(head.headers):
                return web.Response(status=head.status, headers={NOT_HERE: "1"})
            if head.status != SWITCHING_PROTOCOLS:
                reason = f"The server {server.label} refused the WebSocket"
                raise HttpRefused(head.status, "UpgradeRefused", reason, request.method, request.path)
            token_id = dict(head.headers).get(TOKEN_HEADER, "")
            if not may_use(request, token_id):
                raise Forbidden("The ticket is of a client that was signed out.")
            socket = tunnel.socket_of_client()
            self._sockets.add(socket)
            try:
                with while_good(request, token_id):
                    await socket.prepare(request)
                    await tunnel.join(socket, pipe, request[CONNECTION].cut_off)
            finally:
                self._sockets.discard(socket)
            return socket

    async def close_sockets(self) -> None:
        """Close the WebSockets of this server's clients, for its shutdown."""
        closes = [asyncio.ensure_future(socket.close(code=WSCloseCode.GOING_AWAY)) for socket in self._sockets]
        if closes:
            await asyncio.wait(closes, timeout=STOP_S)

    async def serve_directory(self, request: web.Request, hosts: Hosts) -> web.StreamResponse | None:
        """Let the first of some servers answer that has the directory; None if this one is to answer.

        A server that is lost is passed over, if it has changed nothing: its lease has not ended yet.
        """
        loss: ServerLost | None = None
        for server in hosts.servers:
            try:
                response = await self.forward(request, server, ((NEEDED, quote(hosts.directory)),))
            except ServerLost as error:
                if request.method not in READING and error.was_heard:
                    raise
                loss = error
                continue
            if NOT_HERE not in response.headers:
                if not hosts.has_directory:
                    self._note_host(hosts.directory, server)
                return response
        if hosts.is_here:
            return None
        if loss is not None:
            raise loss
        return await self.forward(request, hosts.servers[0])

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


async def _empty_body() -> AsyncIterator[bytes]:
    """An empty body."""
    return
    yield b""


async def _with_new_sessions(request: web.Request, handler: Handler, peers: Peers) -> web.StreamResponse:
    """Call a handler, again if its session is unknown here and has just been created on another server.

    A session is unknown if NATS says so: a client takes a 404 for the end of its session. Raises StoreUnavailable else.
    """
    try:
        return await handler(request)
    except SessionNotFound as error:
        sessions = request.app[SERVICES].sessions
        await sessions.others.look_now()
        if sessions.index.find(error.session_id) is None:
            await peers.need_session(error.session_id)
            raise StoreUnavailable(f"Session {error.session_id} is stored, and not read here yet. Try again.") from error
    return await handler(request)


async def _answer_when_stored(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request of another server's client, when what it has changed in a session is stored. Raises StoreError.

    The other server may say that it is done. Raises SessionElsewhere if a third server has taken the session meanwhile.
    """
    session_id = _session_of(request)
    response = await handler(request)
    if session_id is not None and request.method not in READING and not response.prepared:
        await request.app[SERVICES].store.flush(session_id)
    return response


async def _answer_after_loss(request: web.Request, handler: Handler, relay: Relay) -> web.StreamResponse:
    """Answer a request. If its server is dead and did not hear it, wait for the server that takes the session over.

    A client that gets a 503 drops what a person has typed.
    """
    end = monotonic() + TAKE_OVER_S
    while True:
        try:
            return await _answer(request, handler, relay)
        except ServerLost as error:
            if error.was_heard or monotonic() > end:
                raise
        await asyncio.sleep(LOOK_AGAIN_S)
        await request.app[SERVICES].sessions.others.look_now()


async def _answer(request: web.Request, handler: Handler, relay: Relay) -> web.StreamResponse:
    """Answer a request here, or let the server answer that can."""
    try:
        return await _with_new_sessions(request, handler, relay.peers)
    except PlacedElsewhere as error:
        return await relay.place(request, error)
    except SessionElsewhere as error:
        if not isinstance(error.owner, ServerRef):
            raise
        if not error.owner.pid:
            problem = f"Another server has taken session {error.session_id} and is gone. Try again in some seconds."
            raise ServerLost(problem, was_heard=False) from error
        return await relay.forward(request, error.owner)


# --- hosts -----------------------------------------------------------------------------------------------

# Decides which servers of a cluster may answer a request that concerns a directory, not a session.
#
#     a front                    a server that has the directory; all ask the same one as long as it lives
#     a server without it        the same
#     a server that has it       itself; for terminals and shell commands, which live in one server, the same as all others
#
# A server is asked with `NEEDED`: it refuses if it has no such directory, and the next one is asked. If all refuse, the first one
# answers as a server does for a directory that does not exist. A worktree is reset and removed where the worktree is.

NEEDED = "X-Shim-Directory-Needed"
"""Header of a request that only a server with this directory may answer."""
OF_A_DIRECTORY = frozenset(
    {
        "agent",
        "agents",
        "command",
        "config",
        "file",
        "find",
        "formatter",
        "fs",
        "instance",
        "location",
        "lsp",
        "mcp",
        "model",
        "path",
        "project",
        "provider",
        "pty",
        "reference",
        "shell",
        "skill",
        "tool",
        "vcs",
        "worktree",
    }
)
"""What concerns a directory: the first name of a path, behind `/api`, `/experimental` and `/v1`."""
IN_ONE_SERVER = frozenset({"pty", "shell"})
"""Those of which the state is in the memory of one server."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The servers to ask for a directory, in this order.

    is_here        this server answers if they refuse
    has_directory  this server has the directory
    """

    directory: str
    servers: tuple[ServerRef, ...]
    is_here: bool
    has_directory: bool


def _name(request: web.Request) -> str:
    path = access_of(request).path(request)
    for prefix in ("/api", "/experimental", "/v1"):
        path = path.removeprefix(prefix) if path.startswith(f"{prefix}/") else path
    return path.split("/")[1]


async def hosts_of(request: web.Request, placement: ClusterPlacement) -> Hosts | None:
    """The servers that a request should go to; None for this one. Raises NoServer for changes at a front that is alone."""
    services, name = request.app[SERVICES], _name(request)
    if name not in OF_A_DIRECTORY:
        return None
    directory = await _place_of_work(request, services, name)
    if not placement.runs_agents:
        servers = placement.hosts(directory)
        if not servers and (request.method not in READING or name in IN_ONE_SERVER):
            raise NoServer(directory, None, "This server runs no agents (--no-agents)")
        return Hosts(directory, tuple(servers), is_here=False, has_directory=False) if servers else None
    has_directory = await _has(services, directory)
    if not has_directory:
        servers = placement.hosts(directory)
    else:
        servers = placement.hosts_before_this(directory) if name in IN_ONE_SERVER else []
    return Hosts(directory, tuple(servers), is_here=True, has_directory=has_directory) if servers else None


async def need_directory(request: web.Request) -> None:
    """Raise DirectoryElsewhere if a request needs a directory that this server does not have."""
    directory = unquote(request.headers.get(NEEDED, ""))
    if directory and not await _has(request.app[SERVICES], directory):
        raise DirectoryElsewhere(directory)


async def _place_of_work(request: web.Request, services: Services, name: str) -> str:
    """The directory that a request concerns: that of the worktree, the project or the session in it, or the one that it names."""
    directory = resolve(request.query, request.headers, str(services.settings.directory))
    path = access_of(request).path(request)
    if name == "fs" and (session := request.query.get("session_id")) and services.universal is not None:
        with suppress(SessionNotFound):
            return services.sessions.index.record(await services.universal.sessions.id_of(session)).directory
    if name == "worktree":
        body: dict[str, object] = {}
        with suppress(ValueError):
            body = {} if request.method in READING else obj(await request.json())
        target = text(body.get("directory"))
        if target and (request.method == "DELETE" or path.endswith("/reset")):
            return resolve({"directory": target}, {}, directory)
        if (project_id := request.query.get("projectID") or text(body.get("projectID"))) and (
            project := await services.projects.get(project_id)
        ):
            return project.worktree
    return directory


async def _has(services: Services, directory: str) -> bool:
    roots = services.settings.roots
    return await asyncio.to_thread(lambda: is_folder(directory) and within(directory, roots))
