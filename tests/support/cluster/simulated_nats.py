"""A NATS server with JetStream in memory, and clients with the interface of nats-py that `connection.py` uses.

The tests of the real server run on it too (`tests/unit/cluster/nats/conftest.py`), so both mean the same. It works in a loop
of real time, and in a `ClusterLoop`, where a test decides what happens to messages (`Link`) and to the server (`SimulatedNats`).

    client -> Link: in order, LATENCY_S -> server: streams, subscriptions -> Link -> client
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import nats.errors

LATENCY_S = 0.0005
"""Seconds from a client to the server, and back."""
NOTICED_S = 12.0
"""Seconds after which a client notices that its connection is silent: two pings without an answer."""
PAYLOAD_BYTES = 2**20
"""Maximum bytes of a message."""

WRONG_LAST = (400, 10071, "wrong last sequence: {}")
NO_SPACE = (503, 10077, "maximum bytes exceeded")

Headers: TypeAlias = dict[str, str]
Direction: TypeAlias = Literal["to_server", "to_client"]


@dataclass(frozen=True, slots=True)
class Packet:
    """A message on its way. It has the attributes of nats-py's `Msg` that `connection.py` reads."""

    subject: str
    data: bytes
    reply: str = ""
    headers: Headers | None = None


@dataclass(slots=True)
class StoredMessage:
    """A message of a stream. `gone_at`: when it was removed; `expires_at`: when it will be."""

    sequence: int
    subject: str
    data: bytes
    at: float
    expires_at: float | None = None
    gone_at: float | None = None


@lru_cache(maxsize=8192)
def matches(pattern: str, subject: str) -> bool:
    """Whether a subject fits a pattern with `*` and `>`."""
    if pattern == subject:
        return True
    parts, tokens = pattern.split("."), subject.split(".")
    for at, part in enumerate(parts):
        if part == ">":
            return len(tokens) > at
        if at >= len(tokens) or part not in ("*", tokens[at]):
            return False
    return len(parts) == len(tokens)


@dataclass(slots=True)
class SimulatedStream:
    """A stream. `pending`: subjects with a message that is accepted, and not stored yet."""

    config: dict[str, Any]
    last: int = 0
    messages: dict[int, StoredMessage] = field(default_factory=dict[int, StoredMessage])
    removed: list[StoredMessage] = field(default_factory=list[StoredMessage])
    newest: dict[str, int] = field(default_factory=dict[str, int])
    pending: set[str] = field(default_factory=set[str])

    def put(self, subject: str, data: bytes, now: float, ttl_s: int) -> int:
        """Store a message and return its number."""
        self.last += 1
        age_s = self.config["max_age"] / 1e9
        lives_s = ttl_s or age_s
        if self.config["max_msgs_per_subject"] == 1 and subject in self.newest:
            self.drop(self.newest[subject], now)
        self.messages[self.last] = StoredMessage(self.last, subject, data, now, now + lives_s if lives_s else None)
        self.newest[subject] = self.last
        return self.last

    def drop(self, sequence: int, now: float) -> bool:
        """Remove a message. False if it is gone."""
        message = self.messages.pop(sequence, None)
        if message is None:
            return False
        message.gone_at = now
        self.removed.append(message)
        if self.newest.get(message.subject) == sequence:
            left = [number for number, other in self.messages.items() if other.subject == message.subject]
            if left:
                self.newest[message.subject] = left[-1]
            else:
                del self.newest[message.subject]
        return True

    def expire(self, now: float) -> None:
        """Remove what has expired."""
        for message in [one for one in self.messages.values() if one.expires_at is not None and one.expires_at <= now]:
            self.drop(message.sequence, now)

    def view_at(self, at: float, now: float) -> Iterator[StoredMessage]:
        """The messages that a replica has which is as old as `at`."""
        if at >= now:
            yield from list(self.messages.values())
            return
        gone = [one for one in self.removed if one.gone_at is not None and one.gone_at > at]
        present = [one for one in (*gone, *self.messages.values()) if one.at <= at]
        yield from sorted(present, key=lambda one: one.sequence)


class SimulatedNats:
    """The server. A test may change what it does:

    has_leader  False: it refuses everything of JetStream, as while its servers choose a leader
    is_full     it refuses messages for streams on disk
    room_bytes  it refuses those that would make all streams on disk larger; None: it has room for any
    lag_s       reads without the leader show what was stored so many seconds ago
    commit_s    seconds from a message's acceptance to its place in the stream
    """

    def __init__(self) -> None:
        self.streams: dict[str, SimulatedStream] = {}
        self.links: list[Link] = []
        self.has_leader = True
        self.is_full = False
        self.room_bytes: int | None = None
        self.lag_s = 0.0
        self.commit_s = 0.0
        self.on_stored: Callable[[str, StoredMessage], None] = lambda stream, message: None
        self._context = copy_context()
        self._inboxes = 0

    def client(self) -> SimulatedClient:
        """A new client, which is not connected."""
        return SimulatedClient(self)

    def new_inbox(self) -> str:
        """A subject that nobody uses."""
        self._inboxes += 1
        return f"_INBOX.{self._inboxes}"

    def stream(self, name: str) -> SimulatedStream:
        """A stream as it is now."""
        stream = self.streams[name]
        stream.expire(self.now())
        return stream

    def now(self) -> float:
        """The time of the event loop."""
        return asyncio.get_running_loop().time()

    def later(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        """Call a function of the server, also if the machine that asks for it is paused."""
        asyncio.get_running_loop().call_later(delay_s, call, *args, context=self._context)

    # --- messages ----------------------------------------------------------------------------------------------------

    def receive(self, packet: Packet) -> None:
        """Do what a message asks."""
        subject = packet.subject
        if subject.startswith("$JS.API.DIRECT.GET."):
            self._get_direct(subject.rpartition(".")[2], packet)
        elif subject.startswith("$JS.API."):
            answer = self._call(subject.removeprefix("$JS.API."), json.loads(packet.data))
            self._answer(packet, json.dumps(answer).encode())
        else:
            stream = next((one for one in self.streams.values() if matches(one.config["subjects"][0], subject)), None)
            is_heard = self._publish(packet)
            if stream is not None and self.has_leader:
                self._accept(stream, packet)
            elif not is_heard:
                self._answer(packet, b"", {"Status": "503"})

    def _publish(self, packet: Packet) -> bool:
        hearers = [link for link in self.links if link.hears(packet.subject)]
        for link in hearers:
            link.to_client(packet)
        return bool(hearers)

    def _answer(self, packet: Packet, data: bytes, headers: Headers | None = None) -> None:
        if packet.reply:
            self._publish(Packet(packet.reply, data, headers=headers))

    def _accept(self, stream: SimulatedStream, packet: Packet) -> None:
        stream.expire(self.now())
        headers = packet.headers or {}
        expected = headers.get("Nats-Expected-Last-Subject-Sequence")
        last = stream.newest.get(packet.subject, 0)
        if stream.config["storage"] == "file" and not self._has_room(len(packet.data)):
            self._refuse(packet, NO_SPACE)
        elif expected is not None and (int(expected) != last or packet.subject in stream.pending):
            self._refuse(packet, WRONG_LAST, last)
        elif not self.commit_s:
            self._store(stream, packet)
        else:
            stream.pending.add(packet.subject)
            self.later(self.commit_s, self._store, stream, packet)

    def _has_room(self, size: int) -> bool:
        if self.room_bytes is None or self.is_full:
            return not self.is_full
        return size + self._on_disk() <= self.room_bytes

    def _on_disk(self) -> int:
        on_disk = (stream for stream in self.streams.values() if stream.config["storage"] == "file")
        return sum(len(message.data) for stream in on_disk for message in stream.messages.values())

    def _store(self, stream: SimulatedStream, packet: Packet) -> None:
        now = self.now()
        stream.pending.discard(packet.subject)
        sequence = stream.put(packet.subject, packet.data, now, int((packet.headers or {}).get("Nats-TTL", 0)))
        self.on_stored(stream.config["name"], stream.messages[sequence])
        self._answer(packet, json.dumps({"stream": stream.config["name"], "seq": sequence}).encode())

    def _refuse(self, packet: Packet, why: tuple[int, int, str], *values: object) -> None:
        self._answer(packet, json.dumps(_error(why[0], why[1], why[2].format(*values))).encode())

    # --- the API of JetStream ----------------------------------------------------------------------------------------

    def _call(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if not self.has_leader:
            return _error(503, 10008, "JetStream system temporarily unavailable")
        operation, _, stream_name = name.rpartition(".")
        if name == "INFO":
            return {"storage": self._on_disk(), "limits": {"max_storage": -1 if self.room_bytes is None else self.room_bytes}}
        stream = self.streams.get(stream_name)
        if operation == "STREAM.CREATE":
            if stream is None:
                stream = self.streams[stream_name] = SimulatedStream(body)
            return {"config": stream.config}
        if stream is None:
            return _error(404, 10059, "stream not found")
        stream.expire(self.now())
        match operation:
            case "STREAM.INFO":
                state = {"last_seq": stream.last, "messages": len(stream.messages)}
                time = datetime.fromtimestamp(self.now(), UTC).isoformat()
                return {"config": stream.config, "state": state, "created": "2026-11-30T00:00:00Z", "ts": time}
            case "STREAM.PURGE":
                gone = [one.sequence for one in stream.messages.values() if matches(body["filter"], one.subject)]
                for sequence in gone:
                    stream.drop(sequence, self.now())
                return {"success": True, "purged": len(gone)}
            case "STREAM.MSG.DELETE":
                is_removed = stream.drop(body["seq"], self.now())
                return {"success": True} if is_removed else _error(400, 10043, "stream message not found")
            case "STREAM.MSG.GET":
                found = stream.newest.get(body["last_by_subj"])
                if found is None:
                    return _error(404, 10037, "no message found")
                message = stream.messages[found]
                data = base64.b64encode(message.data).decode()
                return {"message": {"subject": message.subject, "seq": message.sequence, "data": data}}
            case _:
                raise NotImplementedError(f"the simulated NATS does not know {operation}")

    def _get_direct(self, name: str, packet: Packet) -> None:
        if not self.has_leader:
            self._answer(packet, b"", {"Status": "503"})
            return
        body, now = json.loads(packet.data), self.now()
        present = list(self.stream(name).view_at(now - self.lag_s, now))
        if "next_by_subj" not in body:
            message = next((one for one in present if one.sequence == body["seq"]), None)
            if message is None:
                self._answer(packet, b"", {"Status": "404", "Description": "Message Not Found"})
            else:
                self._answer(packet, message.data, _stored_headers(message, 0))
            return
        found = [one for one in present if one.sequence >= body["seq"] and matches(body["next_by_subj"], one.subject)]
        if not found:
            self._answer(packet, b"", {"Status": "404", "Description": "Message Not Found"})
            return
        size = sent = 0
        for message in found[: body["batch"]]:
            sent += 1
            size += len(message.data)
            self._answer(packet, message.data, _stored_headers(message, len(found) - sent))
            if size >= body["max_bytes"]:
                break
        self._answer(packet, b"", {"Status": "204", "Description": "EOB", "Nats-Num-Pending": str(len(found) - sent)})


def _stored_headers(message: StoredMessage, more: int) -> Headers:
    return {"Nats-Subject": message.subject, "Nats-Sequence": str(message.sequence), "Nats-Num-Pending": str(more)}


def _error(status: int, code: int, why: str) -> dict[str, Any]:
    return {"error": {"code": status, "err_code": code, "description": why}}


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to a message: it comes `copies` times, `delay_s` late, and what follows comes behind it."""

    copies: int = 1
    delay_s: float = 0.0


ARRIVES = Fate()


class Link:
    """The connection of one client. Messages keep their order, as in TCP. A test may cut it, and decide the fate of messages.

    ghost_s  what is on its way to the server when the link is cut arrives so many seconds later; 0: it is lost
    """

    def __init__(self, nats: SimulatedNats, client: SimulatedClient, context: Context) -> None:
        self._nats = nats
        self._client = client
        self._context = context
        self._free_at: dict[Direction, float] = {"to_server": 0.0, "to_client": 0.0}
        self._number = 0
        self._passes = asyncio.Event()
        self._passes.set()
        self.ghost_s = 0.0
        self.fate: Callable[[Direction, Packet], Fate] = lambda direction, packet: ARRIVES

    def hears(self, subject: str) -> bool:
        """Whether the server sends messages of this subject here. It does for a while after a silent cut."""
        return any(matches(one.subject, subject) for one in self._client.subscriptions)

    @property
    def is_up(self) -> bool:
        """Whether messages pass."""
        return self._passes.is_set()

    async def until_up(self) -> None:
        """Wait until messages pass."""
        await self._passes.wait()

    def cut(self, *, is_silent: bool = False, ghost_s: float = 0.0) -> None:
        """Lose all messages from now on. The client notices at once; after a silent cut late, if it is not healed before."""
        self._passes.clear()
        self.ghost_s = ghost_s
        self._number += 1

        def notice(number: int) -> None:
            if number == self._number and not (is_silent and self.is_up):
                self._client.on_cut()

        delay_s = NOTICED_S if is_silent else LATENCY_S
        asyncio.get_running_loop().call_later(delay_s, notice, self._number, context=self._context)

    def heal(self) -> None:
        """Let messages pass. The client connects again, if it has noticed the cut."""
        self._passes.set()

    def to_server(self, packet: Packet) -> None:
        """Send a message of the client."""
        number = self._number

        def arrive() -> None:
            if number == self._number:
                self._nats.receive(packet)
            elif self.ghost_s:
                self._nats.later(self.ghost_s, self._nats.receive, packet)

        if self.is_up:
            self._send("to_server", packet, arrive, self._nats._context)

    def to_client(self, packet: Packet) -> None:
        """Send a message to the client."""
        number = self._number

        def arrive() -> None:
            if number == self._number:
                self._client.receive(packet)

        if self.is_up:
            self._send("to_client", packet, arrive, self._context)

    def _send(self, direction: Direction, packet: Packet, arrive: Callable[[], None], context: Context) -> None:
        loop = asyncio.get_running_loop()
        fate = self.fate(direction, packet)
        for _ in range(fate.copies):
            at = max(loop.time() + LATENCY_S + fate.delay_s, self._free_at[direction])
            self._free_at[direction] = at + 1e-7
            loop.call_at(at, arrive, context=context)


class Subscription:
    """A subscription of a client. Its messages are given to `call` one after the other."""

    def __init__(self, client: SimulatedClient, subject: str, call: Callable[[Any], Awaitable[None]]) -> None:
        self._client = client
        self.subject = subject
        self._call = call
        self._queue: deque[Packet] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, packet: Packet) -> None:
        """Queue a message."""
        self._queue.append(packet)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(), context=copy_context())

    async def _work(self) -> None:
        try:
            while self._queue:
                await self._call(self._queue.popleft())
        finally:
            self._task = None

    async def unsubscribe(self) -> None:
        """End it. What is queued is dropped."""
        self._queue.clear()
        if self in self._client.subscriptions:
            self._client.subscriptions.remove(self)


class SimulatedClient:
    """What `connection.py` uses of nats-py's `Client`. It belongs to the machine that makes it."""

    max_payload = PAYLOAD_BYTES
    needs_tls = False
    server_wants_credentials = False

    def __init__(self, nats: SimulatedNats) -> None:
        self._nats = nats
        self.subscriptions: list[Subscription] = []
        self.link = Link(nats, self, copy_context())
        self._is_connected = False
        self._is_closed = False
        self._buffer: list[Packet] = []
        self._on_lost: Callable[[], Awaitable[None]]
        self._on_again: Callable[[], Awaitable[None]]
        self._reconnecting: asyncio.Task[None] | None = None

    async def connect(
        self,
        servers: list[str],
        *,
        disconnected_cb: Callable[[], Awaitable[None]],
        reconnected_cb: Callable[[], Awaitable[None]],
        **_options: Any,
    ) -> None:
        """Connect. Raises NoServersError."""
        self._on_lost, self._on_again = disconnected_cb, reconnected_cb
        if not self.link.is_up:
            raise nats.errors.NoServersError
        self._is_connected = True
        self._nats.links.append(self.link)

    def new_inbox(self) -> str:
        """A subject that nobody uses."""
        return self._nats.new_inbox()

    async def subscribe(self, subject: str, cb: Callable[[Any], Awaitable[None]]) -> Subscription:
        """Call a function with each message of a subject."""
        self._need_open()
        subscription = Subscription(self, subject, cb)
        self.subscriptions.append(subscription)
        return subscription

    async def publish(self, subject: str, payload: bytes = b"", reply: str = "", headers: Headers | None = None) -> None:
        """Send a message. While the connection is gone, messages wait."""
        self._need_open()
        if len(payload) > self.max_payload:
            raise nats.errors.MaxPayloadError
        packet = Packet(subject, payload, reply, headers)
        if self._is_connected:
            self.link.to_server(packet)
        else:
            self._buffer.append(packet)

    async def close(self) -> None:
        """Disconnect for good."""
        self._is_closed, self._is_connected = True, False
        self.subscriptions.clear()
        if self.link in self._nats.links:
            self._nats.links.remove(self.link)
        if self._reconnecting is not None:
            self._reconnecting.cancel()

    def receive(self, packet: Packet) -> None:
        """Give a message to its subscriptions."""
        for subscription in list(self.subscriptions):
            if matches(subscription.subject, packet.subject):
                subscription.put(packet)

    def on_cut(self) -> None:
        """The connection is gone: connect again."""
        if self._is_connected and not self._is_closed:
            self._is_connected = False
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect(), name="reconnect")

    async def _reconnect(self) -> None:
        await self._on_lost()
        await self.link.until_up()
        self._is_connected = True
        await self._on_again()
        buffer, self._buffer = self._buffer, []
        for packet in buffer:
            self.link.to_server(packet)

    def _need_open(self) -> None:
        if self._is_closed:
            raise nats.errors.ConnectionClosedError
