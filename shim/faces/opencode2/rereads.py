"""Reads of a session by a client that puts the answers in the place of what events have told it meanwhile.

The TUI of July reads a new session's messages, inbox, permissions and forms right after its first prompt, each by itself. What a
quick agent does between the making of an answer and its arrival was told, and is lost when the answer is put over it: a card of a
tool, or the dialog of a permission. What an answer already has and an event tells after it stands there twice.

    first read      its streams are on hold, and all its reads of that session are answered from one copy of that moment's state
    SETTLE_S later  all that was told before has been taken in, and the answers go out
    LAID_S later    they have been taken in too, and the streams go on where the copy ended

A client that asks for something to be done, or reads for longer than LONGEST_S, is not held any longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from shim.clock import Clock
from shim.faces.opencode2 import read
from shim.faces.opencode2.dialects import Dialect
from shim.faces.opencode2.events import Event, Wire
from shim.faces.opencode2.probes import Client
from shim.faces.opencode2.stream import ENCODERS
from shim.ids import Ids
from shim.stream.hub import Hub
from shim.stream.subscription import Subscription
from universal.session.model import PermissionRequest, Session

SETTLE_S = 0.05
"""Between an event and an answer that contains it: that TUI takes events in every 16 ms."""
LAID_S = 0.1
"""Between the last answer and the next event."""
LONGEST_S = 0.5
"""A stream is never on hold for longer, however much its client reads."""
REPEAT_S = 1.0
"""After a hold, what was asked during it and is still open is sent once more, for an answer that was under way for longer than
LAID_S, by its size or on a slow line. The client takes no notice of a request or form that it has already."""

Load: TypeAlias = Callable[[str], Awaitable[Session]]
Look: TypeAlias = Callable[[str], Session | None]


@dataclass(eq=False, slots=True)
class Hold:
    """One client's streams on hold for its reads of one session. `state` is the session's when the hold began."""

    client: Client
    state: Session
    readers: list[Subscription]
    began: float
    reads: int = 0
    timer: asyncio.TimerHandle | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Rereads:
    """All holds, at most one for each client that has a stream. Used from one event loop.

    `load` gives a session as it is now; `look` does so without waiting, if that is possible.
    """

    def __init__(self, hub: Hub, load: Load, look: Look, *, clock: Clock, ids: Ids) -> None:
        self._hub = hub
        self._load = load
        self._look = look
        self._clock = clock
        self._ids = ids
        self._holds: dict[Client, Hold] = {}
        self._repeats: set[asyncio.TimerHandle] = set()

    @asynccontextmanager
    async def hold_for_answer(self, dialect: Dialect, client: Client, session_id: str) -> AsyncGenerator[Session | None]:
        """Around the making of an answer: the state to make it from; None for a client without a stream. Raises NotFound."""
        hold = await self._hold(dialect, client, session_id)
        if hold is None:
            yield None
            return
        hold.reads += 1
        try:
            await self._settle(hold)
            yield hold.state
        finally:
            hold.reads -= 1
            if not hold.reads:
                self._release_in(hold, LAID_S)

    def end(self, client: Client) -> None:
        """This client does something, and waits for what comes of it: its streams go on at once."""
        hold = self._holds.get(client)
        if hold is not None:
            self._release(hold)

    def close(self) -> None:
        """The server stops."""
        for hold in tuple(self._holds.values()):
            self._release(hold)
        for timer in self._repeats:
            timer.cancel()
        self._repeats.clear()

    # --- holds ---------------------------------------------------------------------------------------------

    async def _hold(self, dialect: Dialect, client: Client, session_id: str) -> Hold | None:
        while True:
            hold = self._holds.get(client)
            if hold is not None and hold.state.id == session_id:
                return hold
            if hold is not None:  # of another session, whose events must not be lost either
                await hold.over.wait()
                continue
            state = await self._load(session_id)
            if client in self._holds:
                continue
            # In the same step as `load` ended: where the streams stop, the copy begins.
            readers = self._hub.hold(ENCODERS[dialect.name], client)
            if not readers:
                return None
            hold = self._holds[client] = Hold(client, state.copy(), readers, asyncio.get_running_loop().time())
            self._release_in(hold, LONGEST_S)
            return hold

    async def _settle(self, hold: Hold) -> None:
        """Wait until what was told before has been sent and taken in; not for a session in which nothing runs."""
        left = hold.began + SETTLE_S - asyncio.get_running_loop().time()
        if not hold.state.is_busy or left <= 0:
            return
        sent = [asyncio.create_task(reader.settle(), name="settle before an answer") for reader in hold.readers]
        try:
            await asyncio.gather(asyncio.wait(sent, timeout=left), asyncio.sleep(left))
        finally:
            for task in sent:
                task.cancel()

    def _release_in(self, hold: Hold, delay_s: float) -> None:
        if hold.over.is_set():
            return
        if hold.timer is not None:
            hold.timer.cancel()
        loop = asyncio.get_running_loop()
        hold.timer = loop.call_at(min(loop.time() + delay_s, hold.began + LONGEST_S), self._release, hold)

    def _release(self, hold: Hold) -> None:
        if hold.over.is_set():
            return
        hold.over.set()
        del self._holds[hold.client]
        if hold.timer is not None:
            hold.timer.cancel()
        for reader in hold.readers:
            reader.release()
        now = self._look(hold.state.id)
        before = {*hold.state.permissions, *hold.state.questions}
        asked = set[str]() if now is None else {*now.permissions, *now.questions} - before
        if asked:
            timer = asyncio.get_running_loop().call_later(REPEAT_S, lambda: self._repeat(hold, asked, timer))
            self._repeats.add(timer)

    def _repeat(self, hold: Hold, asked: set[str], timer: asyncio.TimerHandle) -> None:
        self._repeats.discard(timer)
        now = self._look(hold.state.id)
        if now is None:
            return
        for request in [*now.permissions.values(), *now.questions.values()]:
            if request.id not in asked:
                continue
            if isinstance(request, PermissionRequest):
                self._tell(hold, "permission.asked", read.permission(request, now))
            else:
                self._tell(hold, "form.created", {"form": read.form(request, now)})

    def _tell(self, hold: Hold, type_: str, data: Wire) -> None:
        directory = hold.state.record.directory
        event = Event(self._ids.new("event"), self._clock.now_ms(), type_, data, hold.state.id, directory=directory)
        self._hub.send(event, hold.readers)
