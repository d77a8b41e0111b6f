"""Reads event streams of the nodes as clients do, and keeps what the checks need of them."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

import aiohttp

from tools.chaos.evidence import EventDigest, FollowerRecord, Sign, StreamRecord, Token
from tools.chaos.machines import Node
from universal.lib.jsonvalue import obj, text

AGAIN_S = 0.5
"""Seconds until a client connects again."""
CONNECT_S = 15.0
HOP_EVENTS = 40
"""Events after which a hopping client goes on at the next node."""
STAY_S = (2.0, 8.0)
"""Minimum and maximum seconds that a hopping client of all sessions reads at a node."""
SESSION_EVENT = re.compile(rb'data: ?\{.*?"payload": ?\{"id": ?"([^"]+)", ?"type": ?"([^"]+)"')
CREATED = b'"type":"session.created"'
QUIET_S = 20.0
"""Seconds without an event after which it does so too: its node may be paused."""
LINE_BYTES = 2**24
STREAM_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)


class Place(Protocol):
    """A node, as a client knows it."""

    @property
    def name(self) -> str:
        """Its name, for people."""
        ...

    @property
    def url(self) -> str:
        """Where it listens."""
        ...


async def lines_of(http: aiohttp.ClientSession, url: str, headers: dict[str, str] | None = None) -> AsyncGenerator[bytes]:
    """The lines of an event stream until it ends. Raises aiohttp.ClientError, OSError."""
    async with http.get(url, headers=headers, timeout=STREAM_TIMEOUT) as answer:
        answer.raise_for_status()
        while line := await answer.content.readline():
            yield line


def token_of(line: bytes) -> tuple[str, Token] | None:
    """The session and the sign of a line of `/event` or `/global/event`, or None."""
    if b'"session.idle"' not in line and b'"session.status"' not in line and b'"role":"user"' not in line:
        return None
    event = obj(json.loads(line.removeprefix(b"data:")))
    event = obj(event.get("payload")) or event
    properties = obj(event.get("properties"))
    session_id = text(properties.get("sessionID"))
    match event.get("type"):
        case "session.idle":
            return session_id, Token(Sign.IDLE)
        case "session.status" if obj(properties.get("status")).get("type") == "busy":
            return session_id, Token(Sign.BUSY)
        case "message.updated":
            info = obj(properties.get("info"))
            return text(info.get("sessionID")), Token(Sign.PROMPT, text(info.get("id")))
        case _:
            return None


def event_id_of(line: bytes) -> str:
    """The id of an event of a session on `/global/event`; empty for other lines."""
    found = SESSION_EVENT.match(line)
    return "" if found is None or found[2].startswith(b"server.") else found[1].decode()


def stamp(token: Token) -> Token:
    """The token with the present time."""
    return replace(token, at_s=round(asyncio.get_running_loop().time(), 2))


class IdleBell:
    """Wakes clients that wait for the end of a turn, when any stream tells of it."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def clear(self, session_id: str) -> None:
        """Forget earlier idles of a session."""
        self._events[session_id].clear()

    def ring(self, session_id: str) -> None:
        """Note an idle."""
        self._events[session_id].set()

    async def wait(self, session_id: str, limit_s: float) -> bool:
        """Wait for an idle since `clear`; False if there was none within `limit_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._events[session_id].wait()
                return True
        return False


class StreamReader:
    """A client that stays at its node, and reads anew after its stream has ended. Each connection is a record."""

    def __init__(self, http: aiohttp.ClientSession, node: Node, path: str, bell: IdleBell) -> None:
        self._http = http
        self._node = node
        self._path = path
        self._bell = bell
        self.records: list[StreamRecord] = []
        self.is_open = asyncio.Event()

    async def run(self) -> None:
        """Read until this is cancelled."""
        while True:
            record = StreamRecord(f"{self._node.name}{self._path} #{len(self.records) + 1}")
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                async for line in lines_of(self._http, self._node.url + self._path):
                    if not self.is_open.is_set():
                        self.records.append(record)
                        self.is_open.set()
                    self._note(record, line)
            self.is_open.clear()
            await asyncio.sleep(AGAIN_S)

    def _note(self, record: StreamRecord, line: bytes) -> None:
        record.screen.note(line)
        if (found := token_of(line)) is None:
            return
        session_id, token = found
        record.tokens.setdefault(session_id, []).append(stamp(token))
        if token.sign is Sign.IDLE:
            self._bell.ring(session_id)

    def finish(self) -> None:
        """Note that the present connection has lasted until the end."""
        if self.is_open.is_set():
            self.records[-1].is_whole = True


class Hopper:
    """A client of all sessions that hops from node to node with `Last-Event-ID`.

    One record for all its connections, and a new one when a node tells it to read the state anew: the first frame names another
    position than the client's.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        name: str,
        choose: Callable[[], Place],
        chance: random.Random,
        stay_s: tuple[float, float] = STAY_S,
        again_s: float = AGAIN_S,
    ) -> None:
        self._http = http
        self._name = name
        self._stay_s = stay_s
        self._again_s = again_s
        self._choose = choose
        self._chance = chance
        self._position = ""
        self._ids: set[str] = set()
        self._idles: dict[str, str] = {}
        """Idle -> its session, of all its connections: also who reads everything again gets no end of a turn again.

        But a session that is created for it anew: nothing of it was stored when it began to read everything again."""
        self.records = [StreamRecord(f"{name} #1")]

    @property
    def position(self) -> str:
        """The `Last-Event-ID` of its next connection; empty before the first one."""
        return self._position

    async def run(self) -> None:
        """Read until this is cancelled."""
        while True:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._read(self._choose())
            self.records[-1].hops += 1
            await asyncio.sleep(self._again_s)

    async def _read(self, place: Place) -> None:
        """Read from the first frame on for some time, and wait for that frame as long at most as a node takes to know."""
        headers = {"Last-Event-ID": self._position} if self._position else None
        lines = lines_of(self._http, place.url + "/global/event", headers)
        position, is_first = "", True
        try:
            async with asyncio.timeout(CONNECT_S) as limit:
                async for line in lines:
                    if line.startswith(b"id:"):
                        position = line[3:].strip().decode()
                    elif line.startswith(b"data:"):
                        if is_first:
                            limit.reschedule(asyncio.get_running_loop().time() + self._chance.uniform(*self._stay_s))
                            self._note_begin(position, place)
                            is_first = False
                        self.note(line, place.name)
                        self._position = position or self._position
        finally:
            await lines.aclose()

    def _note_begin(self, position: str, place: Place) -> None:
        """Note the first frame of a connection: it names the client's position, or it must read everything anew."""
        if self._position and position != self._position:
            self._ids.clear()
            self.records.append(StreamRecord(f"{self._name} #{len(self.records) + 1}, anew at {place.name}"))

    def note(self, line: bytes, place: str = "") -> None:
        """Note a line with an event. In: where it was read."""
        event_id, record = event_id_of(line), self.records[-1]
        if CREATED in line and event_id not in self._ids:
            session_id = text(obj(obj(obj(json.loads(line[5:])).get("payload")).get("properties")).get("sessionID"))
            self._idles = {idle: session for idle, session in self._idles.items() if session != session_id}
        if event_id in self._ids or event_id in self._idles:
            record.doubles.append(f"{event_id} at {place} {line[:240].decode(errors='replace')}")
        elif event_id:
            self._ids.add(event_id)
        record.screen.note(line)
        if (found := token_of(line)) is not None:
            record.tokens.setdefault(found[0], []).append(stamp(found[1]))
            if found[1].sign is Sign.IDLE and event_id:
                self._idles[event_id] = found[0]

    def finish(self) -> None:
        """Note that the present record has lasted until the end."""
        self.records[-1].is_whole = True


class Follower:
    """A client of `/v1` that reads one session, hops from node to node, and goes on with `Last-Event-ID`."""

    def __init__(self, http: aiohttp.ClientSession, session_id: str, choose: Callable[[], Node]) -> None:
        self._http = http
        self._choose = choose
        self.record = FollowerRecord(session_id)

    @property
    def last(self) -> int:
        """The sequence of the last event that it has."""
        return self.record.events[-1].sequence if self.record.events else 0

    async def run(self) -> None:
        """Read until this is cancelled."""
        while True:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._read(self._choose().url)
            self.record.hops += 1
            await asyncio.sleep(AGAIN_S)

    async def _read(self, url: str) -> None:
        path = f"/v1/sessions/{self.record.session_id}/events/sse"
        left = HOP_EVENTS
        lines = lines_of(self._http, url + path, {"Last-Event-ID": str(self.last)})
        try:
            while left:
                async with asyncio.timeout(QUIET_S):
                    line = await anext(lines, b"")
                if not line:
                    return
                if line.startswith(b"data:"):
                    event: dict[str, Any] = json.loads(line[5:])
                    self.record.events.append(EventDigest.of(event["sequence"], event["event_id"], obj(event["data"])))
                    left -= 1
        finally:
            await lines.aclose()
