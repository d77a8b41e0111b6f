"""Sends live universal events and changes of sessions to their readers and observers, and names their places in a stream.

    publish(event)  -> observers (metrics, spans, hooks; called at once, must not wait) and the listeners of that session
    Follower.take   -> events of one session after a sequence: from the journal until it is caught up, then live

A listener holds at most QUEUE events. A slower one is cut off from the live events and reads the journal again, which has all
events. So no reader waits for a slow one, memory is bounded, and no event is lost or doubled. Without listeners and observers,
`publish` costs one lookup in an empty dict.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import structlog

from shim.lib.clock import from_rfc3339
from shim.lib.errors import SessionElsewhere, StoreError
from shim.store.base import Store
from shim.stream.encoder import SEPARATOR, local_part
from universal.events import EventType, UniversalEvent
from universal.session.changes import Change
from universal.session.model import Session

log = structlog.get_logger(__name__)

QUEUE = 512
"""Maximum events that wait for a listener. Beyond it, the listener reads them from the journal."""
PAGE = 500
"""Events of one read of the journal."""

Observer: TypeAlias = Callable[[UniversalEvent], None]
WINDOW_S = 60
"""Seconds of history for rates."""


class SequencedEvent(Protocol):
    """An event of a journal, in any form."""

    @property
    def sequence(self) -> int: ...


T = TypeVar("T", bound=SequencedEvent)
E_co = TypeVar("E_co", covariant=True)


class Source(Protocol[E_co]):
    """The source of a stream: a `Follower`, or a wrapper of one."""

    @property
    def over(self) -> bool: ...

    async def take(self, until: float | None = None) -> Sequence[E_co]:
        """Wait for the next items. Returns none at the loop time `until`, and when it is `over`."""
        ...

    def close(self) -> None: ...


Read: TypeAlias = Callable[[int, int], Awaitable[Sequence[T]]]
"""(after, limit) -> events of the journal, ascending."""


class SessionChanges(NamedTuple):
    """Changes of a session.

    is_resent  they were published before
    sequence   the event of the journal that has made them; 0: none has
    is_stored  the event was read from the journal of another server's session, so that nobody can lose it
    event_id   the id of that event, or empty
    """

    changes: Sequence[Change]
    session: Session
    at_ms: int
    is_resent: bool = False
    sequence: int = 0
    is_stored: bool = False
    event_id: str = ""


ChangeObserver: TypeAlias = Callable[[SessionChanges], None]


NO_BURST = nullcontext()


class ChangeFeed:
    """Publishes the changes of all sessions to the faces, at the moment when they happen.

    In: `burst`, a context manager; changes that are published within it reach readers together, at its end.
    """

    def __init__(self, burst: AbstractContextManager[None] = NO_BURST) -> None:
        self.burst = burst
        self._observers: tuple[tuple[ChangeObserver, frozenset[type[Any]] | None], ...] = ()

    def observe(self, observer: ChangeObserver, kinds: Iterable[type[Any]] | None = None) -> None:
        """Call the observer with all changes until `forget`. It must not wait. `kinds`: only if one of these is among them."""
        self._observers = (*self._observers, (observer, None if kinds is None else frozenset(kinds)))

    def forget(self, observer: ChangeObserver) -> None:
        """Stop calling the observer. A second call does nothing."""
        self._observers = tuple(registered for registered in self._observers if registered[0] != observer)

    def publish(
        self,
        changes: Sequence[Change],
        session: Session,
        at_ms: int,
        *,
        is_resent: bool = False,
        sequence: int = 0,
        is_stored: bool = False,
        event_id: str = "",
    ) -> None:
        published = SessionChanges(changes, session, at_ms, is_resent, sequence, is_stored, event_id)
        made = set(map(type, changes))
        for observer, kinds in self._observers:
            if kinds is None or not kinds.isdisjoint(made):
                observer(published)


# --- positions in a stream that goes on at the next server ----------------------------------------------------------

#     LOCAL.ID        the place in this server's own stream; the client has seen all events of journals up to the one with this id
#     LOCAL.ID.SEEN   of that one, the client has seen SEEN events of its face

DIGITS = 12
DIGITS_OF = slice(4, 4 + DIGITS)
"""The part of an event's id that ascends."""


def digits_of(event_id: str) -> str:
    """The part of an event's id that ascends."""
    return event_id[DIGITS_OF]


class ReaderPlace(NamedTuple):
    """What a client has seen: all up to the event `id`; of that one only `shown` events of its face, unless 0."""

    id: str
    shown: int = 0

    def encode(self) -> str:
        """Itself as the part of a position after the local one."""
        return f"{SEPARATOR}{self.id}{SEPARATOR}{self.shown:x}" if self.shown else SEPARATOR + self.id

    @classmethod
    def decode(cls, last_event_id: str) -> ReaderPlace | None:
        """Read a client's `Last-Event-ID`, or None if it tells nothing of journals."""
        _, _, shared = last_event_id.partition(SEPARATOR)
        id_, *numbers = shared.split(SEPARATOR)
        try:
            if len(id_) != DIGITS or not id_.isalnum() or int(id_, 16) < 0 or len(numbers) > 1:
                return None
            shown = int(numbers[0], 16) if numbers else 0
        except ValueError:
            return None
        return cls(id_, shown) if shown >= 0 else None


class JournalPositions:
    """The `Positions` of a hub whose clients go on at the next server. In: the newest event of all journals."""

    def __init__(self, newest: str) -> None:
        self._last = ReaderPlace(digits_of(newest)).encode()
        self._event = ""
        """What all positions of the event have that is being published; empty for one of no journal."""
        self._shown = 0

    def begin(self, change: object) -> None:
        """As `Positions.begin`."""
        self._event, self._shown = "", 0
        if isinstance(change, SessionChanges) and change.event_id:
            self._event = f"{SEPARATOR}{change.event_id[DIGITS_OF]}{SEPARATOR}"

    def next(self, moment: str) -> tuple[str, str]:
        """As `Positions.next`."""
        if not self._event:
            return moment[4:] + self._last, moment
        self._shown += 1
        return f"{moment[4:]}{self._event}{self._shown:x}", moment

    def end(self, change: object) -> None:
        """As `Positions.end`. Also of a change that no face was asked for."""
        self._event = ""
        if isinstance(change, SessionChanges) and change.event_id:
            self._last = SEPARATOR + change.event_id[DIGITS_OF]

    def renew(self, position: str) -> str:
        """As `Positions.renew`."""
        return local_part(position) + self._last


# --- events ---------------------------------------------------------------------------------------------------------


class Listener:
    """One reader's queue. Close it at the end. `behind`: the reader was cut off and must read the journal."""

    def __init__(self, closed: Callable[[Listener], None], size: int) -> None:
        self._queue: deque[UniversalEvent] = deque()
        self._size = size
        self._closed = closed
        self._more = asyncio.Event()
        self.behind = False
        self.ended = False
        self.is_lost = False

    @property
    def waiting_events(self) -> int:
        return len(self._queue)

    def put(self, event: UniversalEvent) -> None:
        """Queue an event. Called by the feed. Never waits."""
        if self.is_lost or not self._size:
            return
        if len(self._queue) >= self._size:
            self._queue.clear()
            self.behind = True
        self._queue.append(event)
        self._more.set()

    def end(self, *, is_lost: bool = False) -> None:
        """End the queue. Called by the feed. `is_lost`: what waits was never stored."""
        if is_lost:
            self.is_lost = True
            self._queue.clear()
        self.ended = True
        self._more.set()

    def drain(self) -> list[UniversalEvent]:
        events = list(self._queue)
        self._queue.clear()
        self._more.clear()
        return events

    async def wait(self, until: float | None) -> None:
        """Wait for an event, for the end, or for the loop time `until`."""
        if self.ended or self._queue:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._more.wait()
        self._more.clear()

    def close(self) -> None:
        """Close the queue. May be called again."""
        self._queue.clear()
        self._closed(self)


class Feed:
    """All live universal events of the server. Used from one event loop. `is_stored_first`: streams wait for the store."""

    def __init__(self, *, queue: int = QUEUE, is_stored_first: bool = False) -> None:
        self.is_stored_first = is_stored_first
        self._listeners: dict[str, list[Listener]] = {}
        self._observers: dict[Observer, Collection[EventType] | None] = {}
        self._queue = queue
        self._is_closed = False
        self.cut_off = 0
        """Number of listeners that were cut off."""
        self.events: Counter[str] = Counter()
        """Number of events since the server's start, by type."""
        self._seconds: deque[list[Any]] = deque(maxlen=WINDOW_S)
        """Times and numbers of events of the last seconds that had any."""
        self._second = ""

    def rate(self, now_ms: int, seconds: int = 10) -> float:
        """Return the events per second over the last `seconds`."""
        since = now_ms // 1000 - seconds
        return sum(count for time, count in self._seconds if from_rfc3339(time) // 1000 > since) / seconds

    @property
    def listeners(self) -> int:
        return sum(map(len, self._listeners.values()))

    def lag(self) -> int:
        """Number of events that wait for the slowest reader."""
        return max((listener.waiting_events for some in self._listeners.values() for listener in some), default=0)

    def observe(self, observer: Observer, types: Collection[EventType] | None = None) -> None:
        """Call the observer with every event of these types, or that is no piece of text, in order, until `forget`.

        It must not wait. Its exceptions are logged.
        """
        self._observers[observer] = types

    def forget(self, observer: Observer) -> None:
        """Stop calling the observer. May be called again."""
        self._observers.pop(observer, None)

    def publish(self, events: Sequence[UniversalEvent], *, to_readers: bool = True) -> None:
        """Publish a stamped event, or pieces of text that came together. Never waits, never raises.

        In: `to_readers`, whether listeners get them, and not the observers alone.
        """
        if self._listeners and to_readers:
            for event in events:
                self.show(event)
        first, count = events[0], len(events)
        self.events[first.type] += count
        if first.time[:19] != self._second:
            self._second = first.time[:19]
            self._seconds.append([first.time, 0])
        self._seconds[-1][1] += count
        if first.type is EventType.ITEM_DELTA:
            return
        for observer, types in tuple(self._observers.items()):
            try:
                for event in events:
                    if types is None or event.type in types:
                        observer(event)
            except Exception:  # one observer never keeps an event from the others
                log.exception("feed.observer_failed", session_id=first.session_id, sequence=first.sequence)

    def show(self, event: UniversalEvent) -> None:
        """Publish an event of another server, whose own observers it has met there, to listeners. Never waits."""
        for listener in self._listeners.get(event.session_id, ()):
            was_behind = listener.behind
            listener.put(event)
            self.cut_off += listener.behind and not was_behind

    def listen(self, session_id: str) -> Listener:
        """Add a reader of one session's live events."""
        return self._add(session_id, self._queue)

    def attend(self, session_id: str) -> Listener:
        """Count as a reader of a session, for a client that gets its changes otherwise. It is told of no event but the end."""
        return self._add(session_id, 0)

    def _add(self, session_id: str, size: int) -> Listener:
        listener = Listener(lambda closed_listener: self._leave(session_id, closed_listener), size)
        self._listeners.setdefault(session_id, []).append(listener)
        if self._is_closed:
            listener.end()
        return listener

    def has_listener(self, session_id: str) -> bool:
        """Whether the session has readers of live events."""
        return session_id in self._listeners

    def end(self, session_id: str, *, is_lost: bool = False) -> None:
        """End the readers of a deleted session, after their waiting events; of one that is lost to another server at once."""
        for listener in self._listeners.get(session_id, ()):
            listener.end(is_lost=is_lost)

    def close(self) -> None:
        """End all readers, when the server stops."""
        self._is_closed = True
        for session_id in tuple(self._listeners):
            self.end(session_id)

    def _leave(self, session_id: str, listener: Listener) -> None:
        rest = [other_listener for other_listener in self._listeners.get(session_id, ()) if other_listener is not listener]
        if rest:
            self._listeners[session_id] = rest
        else:
            self._listeners.pop(session_id, None)


def wait_for_store(feed: Feed, store: Store, session_id: str) -> Callable[[], Awaitable[None]] | None:
    """The `store` of a `Follower`. None if a session ends with its server: nothing else can come in place of its events."""
    return partial(store.flush, session_id) if feed.is_stored_first or store.ownership.sessions_move else None


class Follower(Generic[T]):
    """The events of one session after `after`, in order and each once: first the journal, then live ones.

    In: `read` reads the journal, in any form; it must show every event that was published before its call. `store`, if events
    may be lost to another server, or to the next one: it waits until all that was published is stored. A live event is returned
    after it, so that its sequence means the same at all servers.
    State: `position`, the last sequence that was returned.
    """

    def __init__(
        self, feed: Feed, session_id: str, read: Read[T], after: int, store: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._store = store
        self._listener = feed.listen(session_id)
        self._read = read
        self._unread: list[UniversalEvent] = []
        self._behind = True
        self.position = after

    @property
    def over(self) -> bool:
        return self._listener.ended and not self._behind and not self._unread and not self._listener.waiting_events

    async def take(self, until: float | None = None) -> Sequence[T | UniversalEvent]:
        """Wait for the next events. Returns none at the loop time `until`, and when it is `over`. Raises StoreError."""
        while True:
            if self._behind:
                self._listener.behind = False
                page = await self._read(self.position, PAGE)
                if page:
                    self.position = page[-1].sequence
                    return page
                if self._listener.behind:  # during the read
                    continue
                # The journal has no more. A hole that is left is one of a disk that refused to write.
                self._behind = False
                if fresh := self._fresh():
                    return await self._events(fresh)
            elif fresh := self._fresh():
                if not self._listener.behind and fresh[0].sequence == self.position + 1:
                    return await self._events(fresh)
                self._unread, self._behind = fresh, True
            elif self._listener.ended:
                return []
            else:
                await self._listener.wait(until)
                if not self._listener.waiting_events and until is not None and asyncio.get_running_loop().time() >= until:
                    return []

    def close(self) -> None:
        """Release the follower. May be called again."""
        self._listener.close()

    def _fresh(self) -> list[UniversalEvent]:
        if self._listener.is_lost:
            self._unread = []
        waiting, self._unread = [*self._unread, *self._listener.drain()], []
        return [event for event in waiting if event.sequence > self.position]

    async def _events(self, events: list[UniversalEvent]) -> Sequence[UniversalEvent]:
        """These events, once they are stored; none while that fails, and none of a session that was lost."""
        if self._store is not None:
            try:
                await self._store()
            except SessionElsewhere:
                self._listener.end(is_lost=True)
                return []
            except StoreError:  # the client gets a sign of life; then it is tried again
                self._unread = events
                return []
            if self._listener.is_lost:  # while the store was away: it has other events in their place
                return []
        self.position = events[-1].sequence
        return events
