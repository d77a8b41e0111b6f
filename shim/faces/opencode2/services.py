"""The services of the OpenCode 2 face: its events, clients' forms, probes, rereads, statistics. Holds no state of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from shim.faces.opencode2 import host, read
from shim.faces.opencode2.dialects import Dialect
from shim.faces.opencode2.events import FACE, Event, ReadOnlyWire
from shim.faces.opencode2.forms import Forms
from shim.faces.opencode2.probes import Client, Probes
from shim.faces.opencode2.render import render
from shim.faces.opencode2.session_counts import CountedSessions
from shim.faces.opencode2.stream import ENCODERS, KEEP_S, READER_FRAMES
from shim.host.changes import EVERYWHERE, HostChanged
from shim.lib.clock import Clock
from shim.lib.ids import Ids
from shim.sessions.feed import SessionChanges
from shim.sessions.index.manager import SessionManager
from shim.store.base import Store
from shim.stream.hub import Face, Hub
from shim.stream.subscription import Bounds, Subscription
from universal.session.model import Session
from universal.session.values import PermissionRequest


class EventMaker:
    """Makes OpenCode 2's events of changes of sessions and of the host."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids

    def events_of(self, change: SessionChanges | HostChanged) -> Sequence[Event]:
        """The events of one change. Resent changes have none: they are for clients of OpenCode 1."""
        if isinstance(change, SessionChanges):
            return () if change.is_resent else render(change.changes, change.session, change.at_ms, self._new_id)
        pair = host.event(change.change)
        return () if pair is None else (self.event(*pair, None if change.directory == EVERYWHERE else change.directory),)

    def event(self, type_: str, data: ReadOnlyWire, directory: str | None = None) -> Event:
        """Make an event that belongs to no session."""
        return Event(self._new_id(), self._clock.now_ms(), type_, data, directory=directory)

    def _new_id(self) -> str:
        return self._ids.new("event")


def opencode2_face(maker: EventMaker) -> Face:
    """Describe OpenCode 2 to the hub."""
    return Face(FACE, maker.events_of, Bounds(frames=READER_FRAMES), keep_s=KEEP_S, keeps_events=True)


class FaceServices:
    """`probes` and `rereads` know the clients, `forms` holds clients' forms, `counted` reads sessions for statistics."""

    def __init__(self, manager: SessionManager, store: Store, hub: Hub, *, clock: Clock, ids: Ids) -> None:
        self._hub = hub
        self._maker = EventMaker(clock, ids)
        hub.add_face(opencode2_face(self._maker))
        self.probes = Probes()
        self.rereads = Rereads(hub, manager.session, manager.loaded_session, clock=clock, ids=ids)
        self.forms = Forms(ids, self.publish)
        self.counted = CountedSessions(store, manager.loaded_session, manager.unloaded_state)

    def publish(self, type_: str, data: ReadOnlyWire, directory: str | None = None) -> None:
        """Publish an event that belongs to no session, if a client reads the stream."""
        if self._hub.wants(FACE):
            self._hub.publish(self._maker.event(type_, data, directory))

    def close(self) -> None:
        """End what runs, when the server stops."""
        self.rereads.close()


# --- rereads ---------------------------------------------------------------------------------------------

# Keeps answers and events consistent for a client that lets answers replace what events have told it.
#
# July's TUI reads a new session's messages, inbox, permissions and forms right after its first prompt, with one request each. If
# the agent does something between the making of an answer and its arrival, the TUI gets the event first and then replaces it by
# the older answer: a tool's card or a permission's dialog is lost. If an event arrives after an answer that contains it, the TUI
# shows it twice.
#
#     first read      the client's streams are held; all its reads of the session are answered from one copy of the state
#     SETTLE_S later  the client has processed all earlier events; the answers are sent
#     LAID_S later    the client has processed the answers; its streams go on from the place of the copy
#
# The hold ends early if the client sends a request that changes something, or reads for longer than LONGEST_S.

SETTLE_S = 0.05
"""Seconds between an event and an answer that contains it. July's TUI processes events every 16 ms."""
LAID_S = 0.1
"""Seconds between the last answer and the next event."""
LONGEST_S = 0.5
"""Maximum seconds of a hold."""
REPEAT_S = 1.0
"""Seconds after a hold at which requests that were opened during it and are still open are sent again. An answer may take longer
than LAID_S, if it is large or the connection is slow. The client ignores a request or form that it has already."""

Load: TypeAlias = Callable[[str], Awaitable[Session]]
Look: TypeAlias = Callable[[str], Session | None]


@dataclass(eq=False, slots=True)
class Hold:
    """The hold of one client's streams for its reads of one session. `state`: the session at the begin of the hold."""

    client: Client
    state: Session
    readers: list[Subscription]
    began: float
    reads: int = 0
    timer: asyncio.TimerHandle | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Rereads:
    """All holds, at most one for each client with a stream. Used from one event loop.

    In: `load` returns a session; `look` returns it without waiting, or None.
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
        """Hold the streams while an answer is made. Yields its state, or None for a client without a stream. Raises NotFound."""
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
        """End the client's hold at once, because its request changes something and it waits for the events."""
        hold = self._holds.get(client)
        if hold is not None:
            self._release(hold)

    def close(self) -> None:
        """End all holds, when the server stops."""
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
            if hold is not None:  # a hold for another session, whose events must not be lost
                await hold.over.wait()
                continue
            state = await self._load(session_id)
            if client in self._holds:
                continue
            # No await after `load`: the streams stop where the copy begins.
            readers = self._hub.hold(ENCODERS[dialect.name], client)
            if not readers:
                return None
            hold = self._holds[client] = Hold(client, state.copy(), readers, asyncio.get_running_loop().time())
            self._release_in(hold, LONGEST_S)
            return hold

    async def _settle(self, hold: Hold) -> None:
        """Wait until the client has processed all earlier events. Skipped for a session in which nothing runs."""
        left_s = hold.began + SETTLE_S - asyncio.get_running_loop().time()
        if not hold.state.is_busy or left_s <= 0:
            return
        waits = [asyncio.create_task(reader.settle(), name="settle before an answer") for reader in hold.readers]
        try:
            await asyncio.gather(asyncio.wait(waits, timeout=left_s), asyncio.sleep(left_s))
        finally:
            for task in waits:
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
        new_ids = set[str]() if now is None else {*now.permissions, *now.questions} - before
        if new_ids:
            timer = asyncio.get_running_loop().call_later(REPEAT_S, lambda: self._repeat(hold, new_ids, timer))
            self._repeats.add(timer)

    def _repeat(self, hold: Hold, request_ids: set[str], timer: asyncio.TimerHandle) -> None:
        self._repeats.discard(timer)
        now = self._look(hold.state.id)
        if now is None:
            return
        for request in [*now.permissions.values(), *now.questions.values()]:
            if request.id not in request_ids:
                continue
            if isinstance(request, PermissionRequest):
                self._send_event(hold, "permission.asked", read.permission(request, now))
            else:
                self._send_event(hold, "form.created", {"form": read.form(request, now)})

    def _send_event(self, hold: Hold, type_: str, data: ReadOnlyWire) -> None:
        directory = hold.state.record.directory
        event = Event(self._ids.new("event"), self._clock.now_ms(), type_, data, hold.state.id, directory=directory)
        self._hub.send(event, hold.readers)
