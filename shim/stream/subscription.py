"""A reader of an event stream: its queues of frames, the rule by which a slow reader is cut off, and whose turn it is to write.

A reader has two queues: the opening (greeting and replay, bounded by the ring), then live frames, bounded here. A reader over a
bound is judged a second later, because a large frame (an image) takes so long to a client far away. Pieces of text are joined
first; only if that does not help, the reader is dropped.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NamedTuple

from shim.stream.encoder import Encoder
from shim.stream.frame import Frame, Scope, compact

CHUNK_BYTES = 256 * 1024
"""Approximate size of a batch. Each chunk that is sent has its own time limit."""
FIRST_SHARE = 1 / 8
"""Share of the gather time that the first wait takes. A second piece right after the first one is often the last."""
HARD_FACTOR = 8
"""A reader that is this many times over its bounds is dropped without being judged."""
JUDGED_FACTOR = 0.75
"""Share of its bounds below which a judged reader must be. Without this room, each frame would cause another judgement."""


class Batch(NamedTuple):
    """Frames that are sent together. `data` is the same object for all readers of one audience."""

    frames: Sequence[Frame]
    data: bytes
    urgent: bool


def batches(frames: Iterable[Frame], layout: Callable[[Frame], bytes]) -> list[Batch]:
    """All frames in order, in batches that end with the frame that reaches CHUNK_BYTES."""
    full: list[Batch] = []
    batch: list[Frame] = []
    texts: list[bytes] = []
    size, urgent = 0, False
    for frame in frames:
        text = layout(frame)
        batch.append(frame)
        texts.append(text)
        size += len(text)
        urgent = urgent or frame.urgent
        if size >= CHUNK_BYTES:
            full.append(Batch(batch, b"".join(texts), urgent))
            batch, texts, size, urgent = [], [], 0, False
    if batch:
        full.append(Batch(batch, b"".join(texts), urgent))
    return full


class Bounds(NamedTuple):
    """Maximum frames and bytes that wait for a reader, beside the largest frame; seconds until a reader over them is judged."""

    frames: int = 1024
    bytes: int = 4 * 1024 * 1024
    grace_s: float = 1.0


class State(StrEnum):
    """OPEN; ENDING: gets the waiting frames and then the end; CLOSED: gets nothing more; DROPPED: was too slow."""

    OPEN = "open"
    ENDING = "ending"
    CLOSED = "closed"
    DROPPED = "dropped"


class Subscription:
    """A reader's end of the hub. `take` and `close` are for the response that serves the reader.

    In: `scope`, as `Hub.subscribe`, normalised; `opening`, its first frames. `heartbeat` makes
    one; `closed` is called at least once when the subscription is over.
    `on_end` is called when the hub changes the state, for a response that is busy sending.
    """

    def __init__(
        self,
        encoder: Encoder[Any],
        scope: Scope,
        opening: Iterable[Frame],
        *,
        bounds: Bounds,
        heartbeat: Callable[[Subscription], Frame],
        closed: Callable[[Subscription], None],
    ) -> None:
        self.encoder = encoder
        self.scope = scope
        self.is_plugin = False
        """Whether it reads for a plugin, which shows nothing to a person."""
        self.state = State.OPEN
        self.on_end: Callable[[], None] | None = None
        self._bounds = bounds
        self._heartbeat = heartbeat
        self._closed = closed
        self._opening = deque(batches(compact(opening) if encoder.joins else opening, encoder.layout))
        self._live: deque[Batch] = deque()
        self._frames = self._bytes = self._largest = 0
        """Of the live queue: frames, bytes, and the bytes of the largest batch since it was empty."""
        self._is_urgent = True
        self._is_judged_soon = False
        self._waiter: asyncio.Future[None] | None = None
        """What `take` waits for."""
        self._timer: asyncio.TimerHandle | None = None
        self._quiet = asyncio.Event()
        self._taken_at = -math.inf
        self._share = FIRST_SHARE
        self._due_at = math.inf
        """Loop time at which gathering ends; infinite if nothing is gathered. `put` checks it too, because a busy loop is late
        with its timers."""

    @property
    def pending(self) -> tuple[int, int]:
        """The number and bytes of live frames that wait."""
        return self._frames, self._bytes

    @property
    def over(self) -> bool:
        """Whether no more frames will come."""
        return self.state in (State.CLOSED, State.DROPPED) or (self.state is State.ENDING and not (self._opening or self._live))

    async def take(self, gather_s: float = 0.0, until: float | None = None) -> list[Batch]:
        """Wait for the next frames, oldest first. Gather more until `gather_s` after the last take, unless one is urgent.

        So the first piece of a burst is sent at once, and each piece of a quiet stream. Frames soon after a take wait for
        FIRST_SHARE of `gather_s`, and twice as long each time that this happens again.
        Out: at most about CHUNK_BYTES; [] at the loop time `until`, and when it is `over`.
        """
        loop = asyncio.get_running_loop()
        while not (self._opening or self._live) and self.state is State.OPEN and (until is None or loop.time() < until):
            self._quiet.set()  # a reader that takes again has sent its earlier frames
            await self._until(until)
        gather_until = self._taken_at + gather_s * self._share
        if gather_until <= loop.time():
            self._share = FIRST_SHARE
        elif not self._is_urgent and self.state is State.OPEN and (self._opening or self._live):
            self._share = min(1.0, self._share * 2)
            self._due_at = gather_until if until is None else min(until, gather_until)
            try:
                await self._until(self._due_at)
            finally:
                self._due_at = math.inf
        self._taken_at = loop.time()
        return self._pop()

    def _until(self, until: float | None) -> asyncio.Future[None]:
        """A future that `_wake` sets, and the loop time `until`. It is bare, because each write waits for two of them."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        if until is not None:
            self._timer = loop.call_at(until, self._wake)
        return waiter

    def _wake(self) -> None:
        """Wake `take`, if it waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def extend_opening(self, frames: Iterable[Frame]) -> None:
        """Add frames after the first ones and before all live ones. Called before the first `take`."""
        self._opening.extend(batches(compact(frames) if self.encoder.joins else frames, self.encoder.layout))

    def close(self) -> None:
        """Close the subscription from the reader's side. May be called again."""
        if self.state is not State.DROPPED:
            self.state = State.CLOSED
        self._forget()

    def put(self, batch: Batch) -> None:
        """Queue live frames. Never waits. A reader that is too far behind is dropped, now or when it is judged."""
        if self.state is not State.OPEN:
            return
        self._frames += len(batch.frames)
        self._bytes += len(batch.data)
        self._largest = max(self._largest if self._live else 0, len(batch.data))
        self._live.append(batch)
        over = self._is_over(1)
        self._quiet.clear()
        if over and self._is_over(HARD_FACTOR):
            self.drop()
            return
        if over and not self._is_judged_soon:
            self._is_judged_soon = True
            asyncio.get_running_loop().call_later(self._bounds.grace_s, self._judge)
        if batch.urgent or over or self._bytes > CHUNK_BYTES:
            self._is_urgent = True
            self._wake()
        elif self._due_at == math.inf or asyncio.get_running_loop().time() >= self._due_at:
            self._wake()

    async def settle(self) -> None:
        """Wait until all queued frames were sent, without gathering, or the reader is gone."""
        if self._opening or self._live:
            self._is_urgent = True
            self._wake()
        await self._quiet.wait()

    def send_heartbeat(self) -> None:
        """Queue a heartbeat."""
        for batch in batches((self._heartbeat(self),), self.encoder.layout):
            self.put(batch)

    def end(self) -> None:
        """End the stream after the waiting frames."""
        if self.state is State.OPEN:
            self._become(State.ENDING)
            self._closed(self)

    def drop(self) -> None:
        """Drop the reader: its connection is broken, and the client reconnects."""
        if self.state is State.OPEN:
            self._become(State.DROPPED)
            self._closed(self)
            self._forget()

    def _become(self, state: State) -> None:
        self.state = state
        self._wake()
        if self.on_end is not None:
            self.on_end()

    def _forget(self) -> None:
        self._opening.clear()
        self._live.clear()
        self._frames = self._bytes = 0
        self._wake()
        self._quiet.set()
        self._closed(self)

    def _judge(self) -> None:
        self._is_judged_soon = False
        if self.state is not State.OPEN or not self._is_over(1):
            return
        joined = compact(frame for batch in self._live for frame in batch.frames)
        self._live = deque(batches(joined, self.encoder.layout))
        self._frames, self._bytes = len(joined), sum(len(batch.data) for batch in self._live)
        if self._is_over(JUDGED_FACTOR):
            self.drop()

    def _is_over(self, factor: float) -> bool:
        """Whether more than `factor` times the bounds waits beside the largest batch: one large frame is never too much."""
        frames, size, _ = self._bounds
        return self._frames > frames * factor or self._bytes - self._largest > size * factor

    def _pop(self) -> list[Batch]:
        if self.state in (State.CLOSED, State.DROPPED):
            return []
        out: list[Batch] = []
        size = 0
        while (self._opening or self._live) and size < CHUNK_BYTES:
            if self._opening:
                batch = self._opening.popleft()
            else:
                batch = self._live.popleft()
                self._frames -= len(batch.frames)
                self._bytes -= len(batch.data)
            out.append(batch)
            size += len(batch.data)
        self._is_urgent = bool(self._opening or self._live)
        if len(out) > 1 and self.encoder.joins:
            return batches(compact(frame for batch in out for frame in batch.frames), self.encoder.layout)
        return out


# --- the order of writes ----------------------------------------------------------------------------------------

WRITES_AT_ONCE = 64
"""Maximum streams that write in one turn of the loop: 2 ms of writes."""
CHECK_S = 1.0
"""Seconds between checks for clients that have gone. A stream stays open so long after its client has gone."""


class WriteQueue:
    """A fair queue that limits how many streams write in one loop iteration. It also closes streams whose client has gone.

    A piece of text wakes all readers in the same turn. With 1,000 readers the writes take 30 ms or more, and a request would wait
    for all of them. With this queue it waits for WRITES_AT_ONCE of them.
    The server notices a closed connection at the next write, which on a quiet stream is a heartbeat. Until then the stream would
    keep its place and the watchers of its directory. So all streams are checked every CHECK_S.
    The server has one queue for all streams, used from one event loop. With few readers, no stream waits.
    """

    def __init__(self, at_once: int = WRITES_AT_ONCE) -> None:
        self._at_once = self._remaining = at_once
        self._queue: deque[asyncio.Future[None]] = deque()
        self._is_turning = False
        self._open: dict[int, tuple[Callable[[], bool], Callable[[], None]]] = {}
        self._opened = 0
        self._check_timer: asyncio.TimerHandle | None = None

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._open)

    @contextmanager
    def stream(self, is_gone: Callable[[], bool], close: Callable[[], None]) -> Generator[None, None, None]:
        """Register a stream for as long as it is open. `close` is called when `is_gone` becomes true."""
        self._opened = number = self._opened + 1
        self._open[number] = (is_gone, close)
        if self._check_timer is None:
            self._check_later()
        try:
            yield
        finally:
            del self._open[number]
            if not self._open and self._check_timer is not None:
                self._check_timer.cancel()
                self._check_timer = None

    def _check_later(self) -> None:
        self._check_timer = asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def _check(self) -> None:
        for is_gone, close in tuple(self._open.values()):
            if is_gone():
                close()
        self._check_later()

    async def enter(self) -> None:
        """Wait until a registered stream may write: at once, or in one of the next turns of the loop."""
        if len(self._open) <= self._at_once:
            return
        self._turn_soon()
        if self._remaining > 0 and not self._queue:
            self._remaining -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        await turn

    def _turn_soon(self) -> None:
        if not self._is_turning:
            self._is_turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turning = False
        self._remaining = self._at_once
        while self._queue and self._remaining > 0:
            turn = self._queue.popleft()
            if not turn.done():  # it may have been cancelled
                turn.set_result(None)
                self._remaining -= 1
        if self._queue:
            self._turn_soon()
