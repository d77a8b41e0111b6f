"""Lets an agent without a network reach its model's hosts, and those that rules allow: a proxy that listens inside its sandbox.

    Egress.open   a channel for the process that is about to start
    (inside)      `sandbox_start.py` makes listening sockets, sends them over the channel, and becomes the agent
    _adopt        serves these sockets here, outside: the first as a proxy (CONNECT, and plain HTTP), others to the same port here

A socket stays in the network in which it was made, so nothing of ours runs inside. Names are looked up here. What is refused is
answered with 403 and a sentence, and logged. Where a rule asks, the connection waits until a person has answered.
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import structlog

from shim.lib.tasks import keep
from shim.processes.handle import JudgeHost
from universal.permissions import Action, Rule, decide

PROXY_PORT = 3128
"""Port of the proxy inside, unless the model's is the same."""
LEAST_DESCRIPTOR = 16
"""Number of the channel, at least: the shell that starts the sandbox uses those up to 9."""
PORTS = {"https": 443, "http": 80}
HEAD_S = 10.0
"""Seconds for the head of a request."""
CONNECT_S = 20.0
"""Seconds to look up a host and to connect to it."""
HEAD_BYTES = 16 * 1024
PIECE_BYTES = 64 * 1024
CONNECTIONS = 256
"""Connections of one process at once. More are refused."""
ADVICE = (
    "no rule allows it and it is not the model's. Allow it by a rule for `webfetch`, or start the agent with another `sandbox`"
)
_FIELD = re.compile(rb"[A-Za-z0-9-]+:[^\x00-\x08\x0a-\x1f\x7f]*")
"""A field of a head, with nothing that two readers could read differently."""
_HOST = re.compile(r"[a-z0-9._-]{1,253}|[0-9a-f:.]{2,45}")
"""A name or an address as a person can read it, and no pattern of a rule."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class McpDoor:
    """A path of this server that a process reaches at `port`, with `authorization`, which stands for whatever it shows."""

    port: int
    path: str
    authorization: str = field(repr=False)

    def head(self, head: bytes) -> bytes | None:
        """The head of a request as it is passed on; None for one that is refused.

        It is the only one of its connection: the server closes that after its answer.
        """
        line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        if line.split(b" ") not in ([method, self.path.encode(), b"HTTP/1.1"] for method in (b"GET", b"POST", b"DELETE")):
            return None
        if any(_FIELD.fullmatch(row) is None for row in fields):
            return None
        names = (b"authorization", b"connection", b"upgrade", b"forwarded", b"x-forwarded-for", b"x-forwarded-host")
        rest = [row for row in fields if row.partition(b":")[0].lower() not in names]
        own = [b"Authorization: " + self.authorization.encode(), b"Connection: close"]
        return b"\r\n".join([line, *rest, *own]) + b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Reach:
    """What a process reaches: `hosts` of its model, `ports` of 127.0.0.1, and what `rules` for `webfetch` allow or ask.

    `is_shared`: it is in the network of this machine, where the proxy takes a free port (`port`) and other ports are reached
    without this server. `door`: what it reaches of this server; never in that network.
    """

    hosts: frozenset[str] = frozenset()
    ports: tuple[int, ...] = ()
    rules: tuple[Rule, ...] = ()
    is_shared: bool = False
    port: int = 0
    door: McpDoor | None = None

    @property
    def proxy_port(self) -> int:
        taken = self.listeners_behind
        return self.port or next(port for port in range(PROXY_PORT, PROXY_PORT + len(taken) + 1) if port not in taken)

    @property
    def listeners_behind(self) -> tuple[int, ...]:
        """The ports inside, but for the proxy's."""
        return tuple(dict.fromkeys((*self.ports, *(() if self.door is None else (self.door.port,)))))

    @property
    def listeners(self) -> tuple[int, ...]:
        """The ports inside, the proxy's first."""
        return (self.proxy_port, *self.listeners_behind)

    @property
    def variables(self) -> dict[str, str]:
        """The environment by which programs inside find the proxy."""
        proxy = f"http://127.0.0.1:{self.proxy_port}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        none = dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1")
        return {**dict.fromkeys(names, proxy), **none, "NODE_USE_ENV_PROXY": "1"}

    def action(self, address: str) -> Action:
        """Whether a host may be reached. In: the address of its front page."""
        if urlsplit(address).hostname in self.hosts:
            return "allow"
        return decide("webfetch", [address], self.rules) or "deny"


class Egress:
    """The connections of one process. Create it with `open`, before the process."""

    def __init__(self, reach: Reach, upstream: str, agent: str, judge: JudgeHost) -> None:
        self.reach = reach
        self._upstream = urlsplit(upstream) if upstream else None
        self._agent = agent
        self._judge = judge
        self._ours, theirs = socket.socketpair()
        self._theirs = socket.socket(fileno=fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR))
        theirs.close()
        self._ours.setblocking(False)
        self._servers: list[asyncio.Server] = []
        self._tasks = set[asyncio.Task[None]]()
        self._refused = set[str]()

    @classmethod
    def open(cls, reach: Reach, environ: Mapping[str, str], agent: str, judge: JudgeHost) -> Egress:
        """Return the connections of a process that is about to start.

        In: our environment, which may name a proxy of its own; who decides where no rule allows.
        """
        self = cls(reach, environ.get("HTTPS_PROXY") or environ.get("https_proxy") or "", agent, judge)
        if reach.is_shared:
            listener = socket.create_server(("127.0.0.1", 0))
            self.reach = replace(reach, port=listener.getsockname()[1])
            self._run(self._listen(listener, self._proxy))
        else:
            asyncio.get_running_loop().add_reader(self._ours, self._adopt)
        return self

    @property
    def descriptor(self) -> int:
        return self._theirs.fileno()

    def hand_over(self) -> None:
        """The process has its end of the channel, or there is none."""
        self._theirs.close()

    def close(self) -> None:
        self.hand_over()
        asyncio.get_running_loop().remove_reader(self._ours)
        self._ours.close()
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()

    def _adopt(self) -> None:
        """Serve the sockets that the process has made. It sends them once."""
        asyncio.get_running_loop().remove_reader(self._ours)
        try:
            _, descriptors, _, _ = socket.recv_fds(self._ours, 1, len(self.reach.listeners))
        except OSError:
            return
        for number, descriptor in enumerate(descriptors):
            port = self.reach.listeners[number]
            is_own = self.reach.door is not None and port == self.reach.door.port
            serve = self._proxy if number == 0 else self._pass_in if is_own else partial(self._forward, port)
            self._run(self._listen(socket.socket(fileno=descriptor), serve))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        keep(asyncio.create_task(work), self._tasks)

    async def _listen(
        self, listener: socket.socket, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> None:
        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._tasks) >= CONNECTIONS:
                writer.close()
                return
            self._run(_carry_out(serve(reader, writer), writer))

        self._servers.append(await asyncio.start_server(on_connection, sock=listener, limit=HEAD_BYTES))

    # --- one connection -------------------------------------------------------------------------------------

    async def _forward(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass a connection to the same port of this machine, where the model listens."""
        async with asyncio.timeout(CONNECT_S):
            far = await asyncio.open_connection("127.0.0.1", port)
        await _relay((reader, writer), far)

    async def _pass_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one request on to this server, if it is one for the only path that a process reaches of it."""
        assert self.reach.door is not None
        async with asyncio.timeout(HEAD_S):
            head = self.reach.door.head(await reader.readuntil(b"\r\n\r\n"))
        if head is None:
            await self._refuse(writer, "this server", f"nothing of it but {self.reach.door.path}")
            return
        async with asyncio.timeout(CONNECT_S):
            far = await asyncio.open_connection("127.0.0.1", self.reach.door.port)
        far[1].write(head)
        await _relay((reader, writer), far)

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request to the proxy, and pass on what follows on the same connection."""
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        method, target, *_ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        is_tunnel = method == "CONNECT"
        address = urlsplit(f"https://{target.removesuffix(':443')}/" if is_tunnel else target)
        host, port = address.hostname or "", address.port or PORTS[address.scheme]
        if _HOST.fullmatch(host) is None:
            await self._refuse(writer, host, "that is no name of a host")
            return
        name = f"[{host}]" if ":" in host else host
        front = f"{address.scheme}://{name}{'' if port == PORTS[address.scheme] else f':{port}'}/"
        action = self.reach.action(front)
        if action != "allow" and (why := await self._judge(front, "" if action == "ask" else ADVICE)):
            await self._refuse(writer, host, why)
            return
        to = (self._upstream.hostname or "", self._upstream.port or 80) if self._upstream is not None else (host, port)
        try:
            async with asyncio.timeout(CONNECT_S):
                far = await asyncio.open_connection(*to)
        except (OSError, TimeoutError) as error:
            await _answer(writer, "502 Bad Gateway", f"{host} cannot be reached: {error or 'it did not answer in time'}.")
            return
        if self._upstream is None and host not in self.reach.hosts and _is_of_machine(far[1]):
            far[1].close()
            await self._refuse(writer, host, await self._judge(front, "it leads to this machine"))
            return
        if self._upstream is not None or not is_tunnel:
            far[1].write(head)
        else:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _relay((reader, writer), far)

    async def _refuse(self, writer: asyncio.StreamWriter, host: str, why: str) -> None:
        if host not in self._refused and len(self._refused) < CONNECTIONS:  # an agent may try thousands
            self._refused.add(host)
            log.info("sandbox.host_refused", agent=self._agent, host=host[:100], why=why)
        await _answer(writer, "403 Forbidden", f"The sandbox of opencode-shim does not reach {host}: {why}.")


async def _answer(writer: asyncio.StreamWriter, status: str, words: str) -> None:
    body = (words + "\n").encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
    await writer.drain()


async def _carry_out(work: Awaitable[None], writer: asyncio.StreamWriter) -> None:
    """Carry out one connection. What breaks it is of no interest but to its ends."""
    try:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, KeyError):
            await work
    finally:
        writer.close()


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _relay(near: Stream, far: Stream) -> None:
    """Pass bytes in both directions until both have ended, or one is broken."""
    try:
        async with asyncio.TaskGroup() as pipes:
            pipes.create_task(_pipe(near[0], far[1]))
            pipes.create_task(_pipe(far[0], near[1]))
    except* OSError:
        pass
    finally:
        far[1].close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _is_of_machine(writer: asyncio.StreamWriter) -> bool:
    """Whether a connection leads to this machine, or to what only machines in one place tell each other (169.254.169.254)."""
    peer = ipaddress.ip_address(writer.get_extra_info("peername")[0].partition("%")[0])
    mapped = getattr(peer, "ipv4_mapped", None) or peer
    return mapped.is_loopback or mapped.is_link_local or mapped.is_unspecified
