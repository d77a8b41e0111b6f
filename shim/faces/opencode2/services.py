"""The services of the OpenCode 2 face: its events, clients' forms, statistics. Holds no state of a session."""

from __future__ import annotations

from collections.abc import Sequence

from shim.faces.opencode2 import host
from shim.faces.opencode2.events import render
from shim.faces.opencode2.forms import Forms
from shim.faces.opencode2.session_counts import CountedSessions
from shim.faces.opencode2.stream import KEEP_S, READER_FRAMES
from shim.faces.opencode2.wire_event import FACE, Event, ReadOnlyWire
from shim.host.changes import EVERYWHERE, HostChanged
from shim.lib.clock import Clock
from shim.lib.ids import Ids
from shim.sessions.feed import SessionChanges
from shim.sessions.index.manager import SessionManager
from shim.store.base import Store
from shim.stream.hub import Face, Hub
from shim.stream.subscription import Bounds


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
        return Event(self._new_id(), self._clock.now_ms(), type_, data, directory=directory)

    def _new_id(self) -> str:
        return self._ids.new("event")


def opencode2_face(maker: EventMaker) -> Face:
    """Describe OpenCode 2 to the hub."""
    return Face(FACE, maker.events_of, Bounds(frames=READER_FRAMES), keep_s=KEEP_S, keeps_events=True)


class FaceServices:
    """`forms` holds clients' forms, `counted` reads sessions for statistics."""

    def __init__(self, manager: SessionManager, store: Store, hub: Hub, *, clock: Clock, ids: Ids) -> None:
        self._hub = hub
        self._maker = EventMaker(clock, ids)
        hub.add_face(opencode2_face(self._maker))
        self.forms = Forms(ids, self.publish)
        self.counted = CountedSessions(store, manager.loaded_session, manager.unloaded_state)

    def publish(self, type_: str, data: ReadOnlyWire, directory: str | None = None) -> None:
        """Publish an event that belongs to no session, if a client reads the stream."""
        if self._hub.wants(FACE):
            self._hub.publish(self._maker.event(type_, data, directory))
