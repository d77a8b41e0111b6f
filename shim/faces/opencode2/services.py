"""What OpenCode 2 has beside the sessions: its events, forms of clients, who reads, counts. Holds no state of a session."""

from __future__ import annotations

from collections.abc import Sequence

from shim.clock import Clock
from shim.faces.opencode2.counted import Counted
from shim.faces.opencode2.events import Event2, Wire
from shim.faces.opencode2.forms import Forms
from shim.faces.opencode2.hosted import ROWS
from shim.faces.opencode2.probes import Probes
from shim.faces.opencode2.render import render
from shim.faces.opencode2.rereads import Rereads
from shim.host.changes import EVERYWHERE, HostChange
from shim.ids import Ids
from shim.sessions.manager import SessionManager
from shim.store.base import Store
from shim.stream.hub import Hub
from universal.session.changes import Change
from universal.session.model import Session


class EventPublisher:
    """Gives events to OpenCode 2's hub while somebody reads: an observer of `ChangeFeed` and `HostFeed`."""

    def __init__(self, hub: Hub[Event2], *, clock: Clock, ids: Ids) -> None:
        self._hub = hub
        self._clock = clock
        self._ids = ids

    def session_changed(self, changes: Sequence[Change], session: Session, at_ms: int, is_resent: bool) -> None:
        """These changes were just made in this session. What is resent is for clients of OpenCode 1."""
        if self._hub.wanted and not is_resent:
            for event in render(changes, session, at_ms, self._new_id):
                self._hub.publish(event)

    def host_changed(self, change: HostChange, directory: str, _project_id: str | None) -> None:
        """Something beside the sessions has changed."""
        if (row := ROWS.get(type(change))) is not None:
            type_, data = row(change)
            self.tell(type_, data, None if directory == EVERYWHERE else directory)

    def tell(self, type_: str, data: Wire, directory: str | None = None) -> None:
        """An event that is of no session, to all readers, if there are any."""
        if self._hub.wanted:
            self._hub.publish(Event2(self._new_id(), self._clock.now_ms(), type_, data, directory=directory))

    def _new_id(self) -> str:
        return self._ids.new("event")


class FaceServices:
    """Beside the hub: `probes` and `rereads`, what is known of who reads, `forms`, those of clients, and `counted` sessions."""

    def __init__(self, manager: SessionManager, store: Store, hub: Hub[Event2], *, clock: Clock, ids: Ids) -> None:
        self.hub = hub
        self.publisher = EventPublisher(hub, clock=clock, ids=ids)
        self.tell = self.publisher.tell
        self.probes = Probes()
        self.rereads = Rereads(hub, manager.session, manager.loaded, clock=clock, ids=ids)
        self.forms = Forms(ids, self.tell)
        self.counted = Counted(store, manager.loaded)

    def close(self) -> None:
        """The server stops."""
        self.rereads.close()
        self.hub.close()
