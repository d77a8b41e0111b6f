"""One reader of the event stream: what waits for it, and when it is given up.

Two queues: what it was promised at the beginning (greeting and replay, bounded by the ring), then live frames, bounded
here. A reader that is over a bound is judged when the event loop has turned once, so that a burst within one callback
is not held against it: pieces of text are joined first, and only if that does not help the reader is dropped.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

from shim.stream.batch import CHUNK_BYTES, Batch, batches
from shim.stream.frame import Frame, compact

FIRST_SHARE = 1 / 8
"""Of the time that takes are to be apart: two pieces that happen to come together are no burst."""
HARD_FACTOR = 8
"""So many times the bounds, and a reader is dropped without being judged."""


class Bounds(NamedTuple):
    """How far a reader may be behind."""

    frames: int = 1024
    bytes: int = 4 * 1024 * 1024


class State(StrEnum):
    """OPEN; ENDING: gets what waits, then the end of the stream; CLOSED: gets nothing more; DROPPED: too slow."""

    OPEN = "open"
    ENDING = "ending"
    CLOSED = "closed"
    DROPPED = "dropped"


class Form(Protocol):
    """What a reader asked for, as far as its queue cares."""

    @property
    def scope(self) -> str | None:
        """The directory whose events it gets, None for all; for the log."""
        ...

    def form(self, frame: Frame) -> bytes:
        """A frame as this reader gets it."""
        ...


FormT = TypeVar("FormT", bound=Form)


class Kind(NamedTuple):
    """What a reader asked for: `scope` is a normalised directory or None for all; `wrapped` as on `/global/event`;
    `legacy` for clients of 1.1."""

    scope: str | None
    wrapped: bool
    legacy: bool
    sync: bool = False
    """Lasting events are followed by their `sync` twins."""
    oldest: bool = False
    """A client of 1.0, on `/event`."""

    def form(self, frame: Frame) -> bytes:
        """A frame as this reader gets it."""
        if self.sync:
            return frame.wrapped + frame.twin
        if self.oldest and frame.oldest:
            return frame.oldest
        return frame.wrapped if self.wrapped else frame.plain

    def wants(self, directory: str | None) -> bool:
        """Whether an event of this (normalised) directory is for it."""
        return self.scope is None or directory is None or directory == self.scope


class Subscription(Generic[FormT]):
    """A reader's end of the hub. `take` and `close` are the reader's; the rest is the hub's.

    on_end  called when the state changes by the hub's hand, for a reader that is busy sending
    joins   for a client to which each piece of text costs a redraw: it gets those that go out together as one
    """

    def __init__(
        self,
        kind: FormT,
        first: Iterable[Frame],
        *,
        bounds: Bounds,
        beat: Callable[[FormT], Frame],
        closed: Callable[[Subscription[FormT]], None],
        joins: bool = False,
    ) -> None:
        self.kind = kind
        self.state = State.OPEN
        self.on_end: Callable[[], None] | None = None
        self._bounds = bounds
        self._beat = beat
        self._closed = closed
        self._joins = joins
        self._first = deque(batches(compact(first) if joins else first, kind.form))
        self._live: deque[Batch] = deque()
        self._kept_back: deque[Batch] | None = None
        """Live frames since `hold`; None when it is not on hold."""
        self._frames = self._bytes = 0
        self._hurry = True
        self._judging = False
        self._more = asyncio.Event()
        self._now = asyncio.Event()
        self._quiet = asyncio.Event()
        self._taken_at = -math.inf
        self._share = FIRST_SHARE
        self._due_at = math.inf
        """Until when (loop time) a take gathers. Looked at by whoever brings more: a busy loop is late with its timers."""

    @property
    def pending(self) -> tuple[int, int]:
        """(frames, bytes) of live frames that wait."""
        return self._frames, self._bytes

    @property
    def over(self) -> bool:
        """Nothing will come any more."""
        return self.state in (State.CLOSED, State.DROPPED) or (self.state is State.ENDING and not self._waiting())

    async def take(self, gather_s: float = 0.0, until: float | None = None) -> list[Batch]:
        """The next frames, oldest first: waits for one, and for more until `gather_s` after the last take, unless one is urgent.

        So the first piece of a burst goes out at once, and of a quiet stream each. What comes soon after a take waits for
        FIRST_SHARE of `gather_s`, and for twice as long each time that it happens again.
        Out: about CHUNK_BYTES at most; [] at `until` (loop time), and when it is `over`.
        """
        loop = asyncio.get_running_loop()
        while not self._waiting() and self.state is State.OPEN and (until is None or loop.time() < until):
            self._quiet.set()  # whoever takes again has sent what it took before
            await _set(self._more, until)
        gather_until = self._taken_at + gather_s * self._share
        if gather_until <= loop.time():
            self._share = FIRST_SHARE
        elif not self._hurry and self.state is State.OPEN and self._waiting():
            self._share = min(1.0, self._share * 2)
            self._due_at = gather_until if until is None else min(until, gather_until)
            await _set(self._now, self._due_at)
            self._due_at = math.inf
        self._taken_at = loop.time()
        return self._pop()

    def close(self) -> None:
        """The reader is gone or has had enough. Again is fine."""
        if self.state is not State.DROPPED:
            self.state = State.CLOSED
        self._forget()

    # The hub's.

    def put(self, batch: Batch) -> None:
        """Queue live frames. Never waits; a reader that is too far behind is dropped, now or when the loop has turned."""
        if self.state is not State.OPEN:
            return
        self._frames += len(batch.frames)
        self._bytes += len(batch.data)
        over = self._is_over(1)
        if self._kept_back is not None:
            self._kept_back.append(batch)
            if over:
                self.go_on()
            return
        self._live.append(batch)
        self._quiet.clear()
        if over and self._is_over(HARD_FACTOR):
            self.drop()
            return
        if over and not self._judging:
            self._judging = True
            asyncio.get_running_loop().call_soon(self._judge)
        if batch.urgent or over or self._bytes > CHUNK_BYTES:
            self._hurry = True
            self._now.set()
        elif self._due_at < math.inf and asyncio.get_running_loop().time() >= self._due_at:
            self._now.set()
        self._more.set()

    def hold(self) -> None:
        """Keep back what comes from now on; what waits already is sent. Again is fine."""
        if self._kept_back is None:
            self._kept_back = deque()

    def go_on(self) -> None:
        """Send what was kept back, in order, and whatever comes. Without a `hold` before it, nothing happens."""
        kept_back, self._kept_back = self._kept_back, None
        for batch in kept_back or ():
            self._frames -= len(batch.frames)
            self._bytes -= len(batch.data)
            self.put(batch)

    async def settled(self) -> None:
        """Wait until all that is queued now has been sent, without gathering; or the reader is gone."""
        if self._waiting():
            self._hurry = True
            self._now.set()
        await self._quiet.wait()

    def beat(self) -> None:
        """Queue a heartbeat."""
        for batch in batches((self._beat(self.kind),), self.kind.form):
            self.put(batch)

    def end(self) -> None:
        """No more frames: what waits is still sent, then the stream ends."""
        self.go_on()
        if self.state is State.OPEN:
            self._become(State.ENDING)
            self._closed(self)

    def drop(self) -> None:
        """Give it up: its connection is broken off, and it comes back by itself."""
        if self.state is State.OPEN:
            self._become(State.DROPPED)
            self._closed(self)
            self._forget()

    def _become(self, state: State) -> None:
        self.state = state
        self._more.set()
        self._now.set()
        if self.on_end is not None:
            self.on_end()

    def _forget(self) -> None:
        self._first.clear()
        self._live.clear()
        self._kept_back = None
        self._frames = self._bytes = 0
        self._more.set()
        self._now.set()
        self._quiet.set()
        self._closed(self)

    def _judge(self) -> None:
        self._judging = False
        if self.state is not State.OPEN or not self._is_over(1):
            return
        joined = compact(frame for batch in self._live for frame in batch.frames)
        self._live = deque(batches(joined, self.kind.form))
        self._frames, self._bytes = len(joined), sum(len(batch.data) for batch in self._live)
        if self._is_over(0.75):  # room for a while, or each frame would bring us here again
            self.drop()

    def _is_over(self, factor: float) -> bool:
        """One frame alone is never too much: it has to go out some day."""
        frames, size = self._bounds
        return self._frames > 1 and (self._frames > frames * factor or self._bytes > size * factor)

    def _waiting(self) -> bool:
        return bool(self._first or self._live)

    def _pop(self) -> list[Batch]:
        if self.state in (State.CLOSED, State.DROPPED):
            return []
        taken: list[Batch] = []
        size = 0
        while self._waiting() and size < CHUNK_BYTES:
            if self._first:
                batch = self._first.popleft()
            else:
                batch = self._live.popleft()
                self._frames -= len(batch.frames)
                self._bytes -= len(batch.data)
            taken.append(batch)
            size += len(batch.data)
        self._hurry = self._waiting()
        if self._joins and len(taken) > 1:
            return batches(compact(frame for batch in taken for frame in batch.frames), self.kind.form)
        return taken


async def _set(event: asyncio.Event, until: float | None) -> None:
    """Wait until it is set anew, or `until` (loop time). A bare timer, since each write of each stream waits here twice."""
    event.clear()
    timer = None if until is None else asyncio.get_running_loop().call_at(until, event.set)
    try:
        await event.wait()
    finally:
        if timer is not None:
            timer.cancel()
