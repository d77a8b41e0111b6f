"""Sessions as OpenCode 2 shows them: a second projection of each session that somebody reads, and of no other.

    of(session)  -> its view, rebuilt from the journal if it is not there, and as new as the journal
    live events  -> the views, and what they make of them to the hub of OpenCode 2, while it has readers

Without readers and views nothing is observed at all. Events of a session that has no view yet, or that missed some (copies of
a fork are not published), wait while the journal is read; those that were there before anybody read are not told.
Owner of: which views exist. A view that nobody needed for IDLE_S is dropped, and the oldest ones when there are too many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from shim.clock import Clock, from_rfc3339
from shim.collector import collector
from shim.errors import SessionNotFound
from shim.faces.opencode2.events import Event2, Wire
from shim.faces.opencode2.forms import Forms
from shim.faces.opencode2.hosted import ROWS, toast
from shim.faces.opencode2.probes import Probes
from shim.faces.opencode2.rereads import Rereads
from shim.host.changes import EVERYWHERE, HostChange, HostFeed
from shim.ids import Ids
from shim.sessions.feed import Feed
from shim.sessions.manager import SessionManager
from shim.store.base import Store
from shim.stream.hub import Hub
from universal.events import EventType, SessionStartedData, UniversalEvent
from universal.jsonvalue import obj, text
from universal.session.changes import Change, Notice, SessionDeleted
from universal.session.model import Session

PAGE = 200
"""Events of one read of the journal: some 5 ms of projection, between which others have their turn."""
WAITING = 2048
"""Live events that wait for a view in memory; those before them are read from the journal."""
IDLE_S = 60.0
"""Without being read, and without readers of the stream."""
MAX_VIEWS = 256
"""Of sessions that are idle; one that runs keeps its view while somebody reads."""
SWEEP_S = 15.0

if TYPE_CHECKING:  # loaded when somebody reads a session by the second wire
    from shim.faces.opencode2.counted import Counted
    from shim.faces.opencode2.projector import Projector2
    from shim.faces.opencode2.state import Conversation2

log = structlog.get_logger(__name__)


def projector_of(first: UniversalEvent) -> Projector2:
    """A projection for the session that this event begins. What it becomes depends on the journal alone."""
    from shim.faces.opencode2.projector import Projector2

    metadata = obj(first.data.metadata) if isinstance(first.data, SessionStartedData) else {}
    return Projector2(first.session_id, text(metadata.get("agent"), "mock"))


class View:
    """One session's second projection. `position`: the last sequence that is in it."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.projector: Projector2 | None = None
        self.position = 0
        self.waiting: deque[UniversalEvent] = deque(maxlen=WAITING)
        self.told_from: int | None = None
        """The first event that is for readers; None: the next one that comes."""
        self.reading: asyncio.Task[None] | None = None
        self.used_at = 0.0
        self.numbers: dict[str, int] = {}
        """Where in the log each item of the inbox was accepted."""

    @property
    def conversation(self) -> Conversation2:
        """What can be read of it."""
        assert self.projector is not None
        return self.projector.conversation

    def feed(self, event: UniversalEvent) -> Sequence[Event2]:
        """The next event; what is to be told of it."""
        if self.projector is None:
            self.projector = projector_of(event)
        made = self.projector.feed(event, from_rfc3339(event.time))
        self.position = event.sequence
        for one in made:
            if one.type == "session.inbox.enqueued" and one.seq is not None:
                self.numbers[one.data["inboxID"]] = one.seq
        return made if self.told_from is not None and event.sequence >= self.told_from else ()


class Views:
    """All views. Beside them are `probes` and `rereads`, what is known of who reads, and `forms`, those of clients."""

    def __init__(
        self, manager: SessionManager, store: Store, hub: Hub[Event2], *, clock: Clock, ids: Ids, host: HostFeed
    ) -> None:
        self.hub = hub
        self.probes = Probes()
        self.rereads = Rereads(hub, self.of, self.seen, clock=clock, ids=ids)
        self.forms = Forms(ids, self.tell)
        self._counted: Counted | None = None
        self._manager = manager
        self._store = store
        self._feed: Feed = manager.deps.feed
        self._clock = clock
        self._ids = ids
        self._host_feed = host
        self._views: dict[str, View] = {}
        self._observing = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False
        hub.on_first_reader = self._begin

    def __len__(self) -> int:
        return len(self._views)

    async def of(self, session_id: str) -> Conversation2:
        """A session as it is now. Raises NotFound, StoreError."""
        self._manager.record(session_id)
        await self._manager.others.refresh(session_id)
        view = self._views.get(session_id) or self._open(session_id)
        view.used_at = asyncio.get_running_loop().time()
        self._observe_on()
        while view.reading is not None or view.position < self._store.last_sequence(session_id):
            before = view.position
            if view.reading is None:
                view.told_from = None  # what is in between was not published: copies of a fork
                self._read_on(view)
            assert view.reading is not None
            await asyncio.shield(view.reading)
            if view.position == before:
                break
        if view.projector is None:  # deleted meanwhile
            raise SessionNotFound(session_id)
        return view.conversation

    def seen(self, session_id: str) -> Conversation2 | None:
        """The session's view if there is one that is complete."""
        view = self._views.get(session_id)
        complete = view is not None and view.reading is None and view.position >= self._store.last_sequence(session_id)
        return view.conversation if view is not None and complete and view.projector is not None else None

    @property
    def counted(self) -> Counted:
        """What statistics need of the sessions."""
        if self._counted is None:
            from shim.faces.opencode2.counted import Counted

            self._counted = Counted(self._store, projector_of, self.seen)
        return self._counted

    def number(self, session_id: str, inbox_id: str) -> int:
        """Where in the session's log this item of the inbox was accepted; 0 if that is not known. After `of`."""
        view = self._views.get(session_id)
        return 0 if view is None else view.numbers.get(inbox_id, 0)

    def tell(self, type_: str, data: Wire, directory: str | None = None) -> None:
        """An event that is of no session, to all readers, if there are any."""
        if self.hub.wanted:
            event = Event2(self._ids.new("event"), self._clock.now_ms(), type_, data, directory=directory)
            self.hub.publish(event)

    def close(self) -> None:
        """The server stops."""
        self._is_closed = True
        self._stop()
        self.rereads.close()
        self.hub.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for view in self._views.values():
            if view.reading is not None:
                view.reading.cancel()

    # --- what happens --------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Somebody reads: what happens from now on is told."""
        for view in self._views.values():
            view.told_from = None
        self._observe_on()

    def _observe_on(self) -> None:
        if not self._observing and not self._is_closed:
            self._observing = True
            self._feed.observe(self._observe)
            self._host_feed.observe(self._host)
            self._manager.deps.changes.observe(self._session_changed)
        if self._sweeper is None and not self._is_closed:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _stop(self) -> None:
        self._observing = False
        self._feed.forget(self._observe)
        self._host_feed.forget(self._host)
        self._manager.deps.changes.forget(self._session_changed)

    def _observe(self, event: UniversalEvent) -> None:
        view = self._views.get(event.session_id)
        if view is None:
            if not self.hub.wanted or event.type is EventType.SESSION_ENDED:  # of which nothing is told
                return
            view = self._open(event.session_id)
        if view.told_from is None:
            view.told_from = event.sequence
        if view.reading is None and event.sequence == view.position + 1:
            self._tell(view.feed(event))
        else:
            view.waiting.append(event)
            if view.reading is None:
                view.told_from = event.sequence  # what is missing was not published
                self._read_on(view)

    def _tell(self, events: Sequence[Event2]) -> None:
        if events and self.hub.wanted:
            for event in events:
                self.hub.publish(event)

    def _host(self, change: HostChange, directory: str, _project_id: str | None) -> None:
        """Something beside the sessions has changed."""
        if (row := ROWS.get(type(change))) is not None:
            type_, data = row(change)
            self.tell(type_, data, None if directory == EVERYWHERE else directory)

    def _session_changed(self, changes: Sequence[Change], session: Session, _at_ms: int, _is_resent: bool) -> None:
        """What no event of the session's journal says: that it is gone, and notices for the person."""
        for change in changes:
            if isinstance(change, Notice):
                self.tell("tui.toast.show", toast(change), session.record.directory)
            elif isinstance(change, SessionDeleted):
                self._deleted(session.id)

    def _deleted(self, session_id: str) -> None:
        view = self._drop(session_id)
        now = self._clock.now_ms()
        if view is not None and view.projector is not None:
            self._tell(view.projector.deleted(now))
        elif self.hub.wanted:  # nobody has read it: its number in the log, which is gone, is not known
            from shim.faces.opencode2.projector import Projector2

            self._tell(Projector2(session_id, "mock").deleted(now))

    # --- the journal ---------------------------------------------------------------------------------------

    def _open(self, session_id: str) -> View:
        if len(self._views) >= MAX_VIEWS:
            spare = (one for one in self._views.values() if one.reading is None and not one.conversation.running)
            if (oldest := min(spare, key=lambda one: one.used_at, default=None)) is not None:
                self._drop(oldest.session_id)
        view = self._views[session_id] = View(session_id)
        view.used_at = asyncio.get_running_loop().time()
        return view

    def _read_on(self, view: View) -> None:
        view.reading = asyncio.get_running_loop().create_task(self._read(view), name=f"view of {view.session_id}")
        view.reading.add_done_callback(lambda task: self._read_over(view, task))

    def _read_over(self, view: View, task: asyncio.Task[None]) -> None:
        if view.reading is task:
            view.reading = None
        if task.cancelled() or task.exception() is None:
            return
        log.error("view.failed", session_id=view.session_id, error=str(task.exception()))
        if self._views.get(view.session_id) is view:
            self._drop(view.session_id)

    async def _read(self, view: View) -> None:
        """Until nothing is between the journal and the live events. Raises StoreError."""
        while True:
            page = await self._store.events(view.session_id, view.position, PAGE)
            for event in page:
                self._tell(view.feed(event))
            while view.waiting and view.waiting[0].sequence <= view.position:
                view.waiting.popleft()
            # A hole that the journal does not fill is one of a disk that refused to write.
            if not page or (view.waiting and view.waiting[0].sequence == view.position + 1):
                for event in view.waiting:
                    self._tell(view.feed(event))
                view.waiting.clear()
            if not page or view.position >= self._store.last_sequence(view.session_id):
                view.reading = None  # in the same step: the next event is fed at once
                return
            await asyncio.sleep(0)

    # --- what is not needed ----------------------------------------------------------------------------------

    def _drop(self, session_id: str) -> View | None:
        view = self._views.pop(session_id, None)
        if view is not None:
            collector.give_up(view.position)
        return view

    def _sweep(self) -> None:
        """Nobody reads the stream: drop what was not asked for either, and stop observing when that is all."""
        self._sweeper = None
        if not self.hub.wanted:
            old = asyncio.get_running_loop().time() - IDLE_S
            for view in [one for one in self._views.values() if one.reading is None and one.used_at < old]:
                self._drop(view.session_id)
        if self._views or self.hub.wanted:
            self._observe_on()
        else:
            self._stop()
