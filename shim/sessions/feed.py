"""Universal events, live: from the one place that stamps them to whoever reads or watches them.

    publish(event)  -> observers (metrics, spans, hooks; called at once, must not wait) and the listeners of that session
    Follower.take   -> events of one session after a sequence: from the journal until it is caught up, then live

A listener holds references to at most QUEUE events. One that is further behind is cut off from the live events and reads
the journal again, which has all of them: so nobody waits for a slow reader, memory is bounded, and nothing is lost or
doubled. Without listeners and observers, `publish` costs one look into an empty dict.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import structlog

from universal.events import UniversalEvent
from universal.session.changes import Change
from universal.session.model import Session

log = structlog.get_logger(__name__)

QUEUE = 512
"""Events that a listener may be behind before it has to read them from the journal."""
PAGE = 500
"""Events of one read of the journal."""

Observer: TypeAlias = Callable[[UniversalEvent], None]


class SequencedEvent(Protocol):
    """An event of a journal, in whatever form it is read."""

    @property
    def sequence(self) -> int:
        """Its place."""
        ...


T = TypeVar("T", bound=SequencedEvent)
E_co = TypeVar("E_co", covariant=True)


class Source(Protocol[E_co]):
    """What a stream is made of: a `Follower`, or what somebody makes of one."""

    @property
    def over(self) -> bool:
        """Nothing will come any more."""
        ...

    async def take(self, until: float | None = None) -> Sequence[E_co]:
        """The next ones; none at `until` (loop time), and when it is `over`."""
        ...

    def close(self) -> None:
        """Done."""
        ...


Read: TypeAlias = Callable[[int, int], Awaitable[Sequence[T]]]
"""(after, limit) -> events of the journal, ascending."""


class SessionChanges(NamedTuple):
    """What has just changed in a session. `is_resent`: it was published before."""

    changes: Sequence[Change]
    session: Session
    at_ms: int
    is_resent: bool = False


ChangeObserver: TypeAlias = Callable[[SessionChanges], None]


class ChangeFeed:
    """Gives the changes of all sessions to the faces, in the step in which they happen.

    In: `burst`, which makes a context manager; what is published within goes out to readers in one go, at its end.
    """

    def __init__(self, burst: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self.burst = burst
        self._observers: tuple[ChangeObserver, ...] = ()

    def observe(self, observer: ChangeObserver) -> None:
        """Call it with all changes until `forget`. It must not wait."""
        self._observers = (*self._observers, observer)

    def forget(self, observer: ChangeObserver) -> None:
        """It is not called any more. A second call does nothing."""
        self._observers = tuple(one for one in self._observers if one != observer)

    def publish(self, changes: Sequence[Change], session: Session, at_ms: int, *, is_resent: bool = False) -> None:
        """Give them to all observers."""
        made = SessionChanges(changes, session, at_ms, is_resent)
        for observer in self._observers:
            observer(made)


class Listener:
    """One reader's queue. `close` it when done. `behind`: it was cut off and must read the journal."""

    def __init__(self, closed: Callable[[Listener], None], size: int) -> None:
        self._queue: deque[UniversalEvent] = deque()
        self._size = size
        self._closed = closed
        self._more = asyncio.Event()
        self.behind = False
        self.ended = False

    @property
    def waiting_events(self) -> int:
        """Events that wait to be taken."""
        return len(self._queue)

    def put(self, event: UniversalEvent) -> None:
        """The feed's. Never waits."""
        if len(self._queue) >= self._size:
            self._queue.clear()
            self.behind = True
        self._queue.append(event)
        self._more.set()

    def end(self) -> None:
        """The feed's: nothing more will come."""
        self.ended = True
        self._more.set()

    def drain(self) -> list[UniversalEvent]:
        """All that waits."""
        taken = list(self._queue)
        self._queue.clear()
        self._more.clear()
        return taken

    async def wait(self, until: float | None) -> None:
        """Until something came or ended, or `until` (loop time)."""
        if self.ended or self._queue:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._more.wait()
        self._more.clear()

    def close(self) -> None:
        """The reader has gone. Again is fine."""
        self._queue.clear()
        self._closed(self)


class Feed:
    """All live universal events of the server. Used from one event loop."""

    def __init__(self, *, queue: int = QUEUE) -> None:
        self._listeners: dict[str, list[Listener]] = {}
        self._observers: list[Observer] = []
        self._queue = queue
        self._is_closed = False
        self.cut_off = 0
        """How often a listener was too far behind."""

    @property
    def listeners(self) -> int:
        """Readers of now."""
        return sum(map(len, self._listeners.values()))

    def lag(self) -> int:
        """Events that the slowest reader has not taken yet."""
        return max((one.waiting_events for some in self._listeners.values() for one in some), default=0)

    def observe(self, observer: Observer) -> None:
        """Call it with every event, in order, until `forget`. It must not wait; what it raises is logged."""
        self._observers = [*self._observers, observer]

    def forget(self, observer: Observer) -> None:
        """It is not called any more. Again is fine."""
        self._observers = [one for one in self._observers if one != observer]

    def publish(self, event: UniversalEvent) -> None:
        """Hand a stamped event to all who want it. Never waits, never raises."""
        for listener in self._listeners.get(event.session_id, ()):
            was_behind = listener.behind
            listener.put(event)
            self.cut_off += listener.behind and not was_behind
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                log.exception("feed.observer_failed", session_id=event.session_id, sequence=event.sequence)

    def listen(self, session_id: str) -> Listener:
        """A new reader of one session's live events, from now on."""
        listener = Listener(lambda one: self._leave(session_id, one), self._queue)
        self._listeners.setdefault(session_id, []).append(listener)
        if self._is_closed:
            listener.end()
        return listener

    def has_listener(self, session_id: str) -> bool:
        """Whether somebody reads this session's live events."""
        return session_id in self._listeners

    def end(self, session_id: str) -> None:
        """The session is gone: its readers get what waits, then the end."""
        for listener in self._listeners.get(session_id, ()):
            listener.end()

    def close(self) -> None:
        """All readers end: for the server's shutdown."""
        self._is_closed = True
        for session_id in tuple(self._listeners):
            self.end(session_id)

    def _leave(self, session_id: str, listener: Listener) -> None:
        rest = [one for one in self._listeners.get(session_id, ()) if one is not listener]
        if rest:
            self._listeners[session_id] = rest
        else:
            self._listeners.pop(session_id, None)


class Follower(Generic[T]):
    """Events of one session after `after`, in order, each once: history, then live.

    In: `read` gives the journal, in a form of its own choice; it must show everything that was published before it was called.
    State: `position`, the last sequence that was given out.
    """

    def __init__(self, feed: Feed, session_id: str, read: Read[T], after: int) -> None:
        self._listener = feed.listen(session_id)
        self._read = read
        self._held: list[UniversalEvent] = []
        self._behind = True
        self.position = after

    @property
    def over(self) -> bool:
        """Nothing will come any more."""
        return self._listener.ended and not self._behind and not self._held and not self._listener.waiting_events

    async def take(self, until: float | None = None) -> Sequence[T | UniversalEvent]:
        """The next events; none at `until` (loop time), and when it is `over`. Raises StoreError."""
        while True:
            if self._behind:
                self._listener.behind = False
                page = await self._read(self.position, PAGE)
                if page:
                    self.position = page[-1].sequence
                    return page
                if self._listener.behind:  # while we read
                    continue
                # The journal has no more. A hole that is left is one of a disk that refused to write.
                self._behind = False
                if fresh := self._fresh():
                    return self._events(fresh)
            elif fresh := self._fresh():
                if not self._listener.behind and fresh[0].sequence == self.position + 1:
                    return self._events(fresh)
                self._held, self._behind = fresh, True
            elif self._listener.ended:
                return []
            else:
                await self._listener.wait(until)
                if not self._listener.waiting_events and until is not None and asyncio.get_running_loop().time() >= until:
                    return []

    def close(self) -> None:
        """Done. Again is fine."""
        self._listener.close()

    def _fresh(self) -> list[UniversalEvent]:
        waiting, self._held = [*self._held, *self._listener.drain()], []
        return [event for event in waiting if event.sequence > self.position]

    def _events(self, events: Sequence[UniversalEvent]) -> Sequence[UniversalEvent]:
        self.position = events[-1].sequence
        return events
