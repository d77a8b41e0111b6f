"""The hub: each event of a face goes in once, and out to everyone who reads. One event loop, no awaiting.

    publish(event)      -> a frame for each wire that somebody reads -> ring (the last 4,096) and each matching subscription
    subscribe(encoder)  -> server.connected, what was missed, what is still open, then live: in one step, so nothing is
                           lost or doubled between them

Publishers never wait: a reader that does not read is dropped (`subscription.py`). An event is encoded while it is published,
for wires that somebody reads, and for as long after the last reader left as it could come back and ask for what it missed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, NamedTuple, TypeVar

import structlog

from shim.clock import Clock
from shim.ids import Ids
from shim.stream.encoder import Encoder, StreamEvent
from shim.stream.frame import Frame, batches, compact, normal_scope
from shim.stream.ring import Entry, Ring
from shim.stream.scheduling import Bursts, WriteQueue
from shim.stream.subscription import Bounds, State, Subscription

RING_FRAMES = 4096
"""The number of events that can be replayed."""
RING_BYTES = 32 * 1024 * 1024
"""The same in bytes of all frames: a few large tool outputs shorten the ring instead of filling the memory."""
SETTLE_S = 0.25
"""The longest that `settled` waits for readers that do not read."""
CACHED_SCOPES = 1024
"""Directories whose audiences are remembered between two subscriptions."""
LOGGED_CHARS = 40
"""Of a client's Last-Event-ID."""

log = structlog.get_logger()

EventT = TypeVar("EventT", bound=StreamEvent)


class HubBounds(NamedTuple):
    """The bounds of a hub, as tests may want them smaller."""

    reader: Bounds = Bounds()
    ring_frames: int = RING_FRAMES
    ring_bytes: int = RING_BYTES


DEFAULT_BOUNDS = HubBounds()


class HubStats(NamedTuple):
    """Counts since the start, and the number of readers now."""

    readers: int
    published: int
    dropped: int
    replayed: int
    replay_missed: int


class Audience(Generic[EventT]):
    """The readers that get the same bytes: those of one encoder and one scope.

    `pending` are frames of the burst that is under way. Without readers, events are encoded until `encoded_until` were published.
    """

    __slots__ = ("encode", "encoded_until", "encoder", "generation", "pending", "readers", "scope")

    def __init__(self, encoder: Encoder[EventT], scope: str | None) -> None:
        self.encoder = encoder
        self.encode = encoder.encode
        self.generation = encoder.generation
        self.scope = scope
        self.readers: dict[Subscription, int] = {}
        """Each reader, and when it came (epoch ms)."""
        self.pending: list[Frame] = []
        self.encoded_until = 0


class Hub(Generic[EventT]):
    """All event streams of a face. Used from one event loop.

    In: `bursts` and `write_queue`, those of all hubs of the server. `keep_s`, how long after the last reader left events are
    still `wanted`, and what was published before is known; None: always. `keeps_events`, whether the ring keeps events too, so
    that a wire that nobody read can be replayed: for events that are values.
    `on_first_reader` is called when somebody subscribes while events were not wanted.
    """

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        *,
        bounds: HubBounds = DEFAULT_BOUNDS,
        bursts: Bursts | None = None,
        write_queue: WriteQueue | None = None,
        keep_s: float | None = None,
        keeps_events: bool = False,
    ) -> None:
        self.bursts = bursts or Bursts()
        self.bursts.register(self._deliver)
        self.write_queue = write_queue or WriteQueue()
        self.on_first_reader: Callable[[], None] = lambda: None
        self._clock = clock
        self._ids = ids
        self._bounds = bounds
        self._keep_s = keep_s
        self._keeps_events = keeps_events
        self._ring = self._new_ring()
        self._audiences: dict[str | None, dict[Encoder[EventT], Audience[EventT]]] = {}
        self._audiences_by_scope: dict[str | None, list[Audience[EventT]]] = {}
        """As `_audiences_of` made them since the last audience came or went."""
        self._due: list[Audience[EventT]] = []
        self._observers: list[Callable[[EventT], None]] = []
        self._published = self._readers = self._wanted_until_ms = 0
        self._counts: Counter[str] = Counter()
        self._is_closed = False

    @property
    def wanted(self) -> bool:
        """Whether events need to be published: somebody reads, or may come back."""
        return self._keep_s is None or self._readers > 0 or self._clock.now_ms() < self._wanted_until_ms

    def stats(self) -> HubStats:
        """For metrics and health."""
        counts = self._counts
        return HubStats(self._readers, self._published, counts["dropped"], counts["replayed"], counts["replay_missed"])

    def observe(self, observer: Callable[[EventT], None]) -> None:
        """Call it with every event that is published from now on. It must not wait or raise."""
        self.forget(observer)
        self._observers = [*self._observers, observer]

    def forget(self, observer: Callable[[EventT], None]) -> None:
        """Call it no longer."""
        self._observers = [kept for kept in self._observers if kept != observer]

    # --- events ----------------------------------------------------------------------------------------------

    def publish(self, event: EventT) -> None:
        """Give an event a position and queue it for all who want it. Never waits. After `close` it does nothing."""
        if self._is_closed:
            return
        for observer in self._observers:
            observer(event)
        position, scope, number = self._ids.moment(), event.scope, self._published
        self._published += 1
        frames: dict[str, Frame | None] = {}
        size, arrived, urgent = 0, False, False
        for audience in self._audiences_of(scope):
            if not audience.readers and audience.encoded_until <= number:
                continue
            generation = audience.generation
            if generation in frames:
                frame = frames[generation]
            else:
                frame = frames[generation] = audience.encode(event, position, position)
                if frame is not None:
                    size += frame.size
            if frame is not None and audience.readers:
                if not audience.pending:
                    self._due.append(audience)
                audience.pending.append(frame)
                arrived = True
                urgent = urgent or frame.urgent
        kept = event if self._keeps_events and size else None  # what has no bytes would not be bounded
        self._ring.add(Entry(position, scope, event.subject, event.event_id, frames, size, kept))
        if arrived:
            self.bursts.notify(urgent=urgent)

    def burst(self) -> AbstractContextManager[None]:
        """Gives what the block publishes to the readers in one go, as `Bursts.burst`."""
        return self.bursts.burst()

    def send(self, event: EventT, readers: Iterable[Subscription]) -> None:
        """Send an event to these readers alone; it is in no replay."""
        self.bursts.deliver()
        for reader in readers:
            frame = reader.encoder.encode(event, self._ids.moment(), self._ring.last)
            for batch in batches(() if frame is None else (frame,), reader.encoder.layout):
                reader.put(batch)

    def _deliver(self) -> None:
        """Give each reader its frames of the burst. The bytes are made once for each audience."""
        due, self._due = self._due, []
        for audience in due:
            frames, audience.pending = audience.pending, []
            encoder = audience.encoder
            made = batches(compact(frames) if encoder.joins else frames, encoder.layout)
            for reader in tuple(audience.readers):
                for batch in made:
                    reader.put(batch)

    def _audiences_of(self, scope: str | None) -> list[Audience[EventT]]:
        """The audiences that get events of a scope; None: all."""
        audiences = self._audiences_by_scope.get(scope)
        if audiences is None:
            groups = self._audiences.values() if scope is None else [self._audiences.get(key, {}) for key in (None, scope)]
            audiences = [audience for group in groups for audience in group.values()]
            if len(self._audiences_by_scope) >= CACHED_SCOPES:
                self._audiences_by_scope.clear()
            self._audiences_by_scope[scope] = audiences
        return audiences

    # --- readers ---------------------------------------------------------------------------------------------

    def subscribe(
        self,
        encoder: Encoder[EventT],
        *,
        scope: str | None = None,
        last_event_id: str | None = None,
        greeting: Sequence[EventT] = (),
        client: Hashable = None,
    ) -> Subscription:
        """A new reader. The caller must give it to `response.stream`, or `close` it.

        In: `scope`, the directory whose events it gets, None for all; `last_event_id`, the last frame or event that it saw;
        `greeting`, what is open and must be repeated (permissions, questions), read in the same step of the loop.
        Out: first the encoder's greeting; then what followed `last_event_id`, if that is still known (if not, the client reads
        everything again at `server.connected`, or has to); then `greeting`, less what the replay has; then live.
        """
        self.bursts.deliver()
        if not self.wanted:
            self._begin()
        scope = None if scope is None else normal_scope(scope)
        position, replay = self._resume(encoder, scope, last_event_id)
        opening = encoder.greeting(position, self._ids)
        opening += [frame for entry in replay if (frame := entry.frames[encoder.generation]) is not None]
        replayed = {entry.subject for entry in replay} - {None}
        for event in greeting:
            if _wants(scope, event.scope) and event.subject not in replayed:
                frame = encoder.encode(event, self._ids.moment(), self._ring.last)
                opening += [] if frame is None else [frame]
        reader = Subscription(
            encoder, scope, opening, bounds=self._bounds.reader, heartbeat=self._heartbeat, closed=self._closed, client=client
        )
        self._forget_audiences()
        self._audiences_by_scope.clear()
        audience = self._audiences.setdefault(scope, {}).setdefault(encoder, Audience(encoder, scope))
        audience.readers[reader] = self._clock.now_ms()
        self._readers += 1
        if self._is_closed:
            reader.end()
        return reader

    def listened(self, directory: str) -> bool:
        """Whether a reader gets this directory's events."""
        return any(audience.readers for audience in self._audiences_of(normal_scope(directory)))

    def hold(self, encoder: Encoder[EventT], client: Hashable) -> list[Subscription]:
        """Keep back what is published from now on from this client's readers, until their `release`."""
        self.bursts.deliver()
        readers = [reader for reader in self._all_readers() if reader.encoder == encoder and reader.client == client]
        for reader in readers:
            reader.hold()
        return readers

    async def settled(self, directory: str | None = None, timeout_s: float = SETTLE_S) -> None:
        """Wait until readers of a directory (None: all) have been sent what was published so far, at most `timeout_s`.

        For answers that end a turn: `opencode run --attach` exits at that answer and prints only what it has read by then
        (seen with 1.1.53 and 1.18.33).
        """
        self.bursts.deliver()
        scope = None if directory is None else normal_scope(directory)
        waits = [asyncio.ensure_future(reader.settled()) for reader in self._all_readers() if _wants(reader.scope, scope)]
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout_s)
            for wait in late:
                wait.cancel()

    def end(self, directory: str) -> None:
        """End the streams of one directory after what waits, as OpenCode does when it disposes of an instance."""
        self.bursts.deliver()
        for audience in tuple(self._audiences.get(normal_scope(directory), {}).values()):
            for reader in tuple(audience.readers):
                reader.end()

    def close(self) -> None:
        """End all streams after what waits. For the server's shutdown; it may be called again."""
        self.bursts.deliver()
        self._is_closed = True
        for reader in self._all_readers():
            reader.end()

    def _all_readers(self) -> list[Subscription]:
        return [reader for audience in self._audiences_of(None) for reader in audience.readers]

    def _heartbeat(self, encoder: Encoder[Any]) -> Frame:
        return encoder.heartbeat(self._ring.last, self._ids)

    def _closed(self, reader: Subscription) -> None:
        """Called by a subscription that is over, at least once."""
        audience = self._audiences.get(reader.scope, {}).get(reader.encoder)
        came_ms = None if audience is None else audience.readers.pop(reader, None)
        if audience is None or came_ms is None:
            return
        now_ms = self._clock.now_ms()
        self._readers -= 1
        self._wanted_until_ms = now_ms + int((self._keep_s or 0.0) * 1000)
        audience.encoded_until = self._published + self._bounds.ring_frames
        if reader.state is State.DROPPED:
            self._counts["dropped"] += 1
            frames, size = reader.pending
            wire = reader.encoder.generation
            log.warning("subscriber.dropped", wire=wire, scope=reader.scope, frames=frames, bytes=size, age_ms=now_ms - came_ms)

    # --- replay ----------------------------------------------------------------------------------------------

    def _new_ring(self) -> Ring:
        return Ring(self._ids.moment(), frames=self._bounds.ring_frames, size=self._bounds.ring_bytes)

    def _begin(self) -> None:
        """Somebody reads after a time in which events were not published: what the ring has is not all that happened."""
        self._ring = self._new_ring()
        self.on_first_reader()

    def _forget_audiences(self) -> None:
        """Forget audiences that nobody can come back to."""
        for scope, group in tuple(self._audiences.items()):
            for encoder, audience in tuple(group.items()):
                if not audience.readers and audience.encoded_until <= self._published:
                    del group[encoder]
            if not group:
                del self._audiences[scope]

    def _resume(self, encoder: Encoder[EventT], scope: str | None, last_event_id: str | None) -> tuple[str, list[Entry]]:
        """The position of the first frame, and what the reader missed; nothing if that is not known.

        A reader that is cut off before the replay arrived must be able to ask for it again, so its position is the old one.
        """
        if not last_event_id:
            return self._ring.last, []
        position = self._ring.position(last_event_id)
        missed = self._ring.after(position)
        if missed is not None:
            missed = [entry for entry in missed if _wants(scope, entry.scope)]
        if missed is None or not all(_is_encoded(entry, encoder) for entry in missed):
            self._counts["replay_missed"] += 1
            log.info("replay.missed", wire=encoder.generation, last_event_id=last_event_id[:LOGGED_CHARS], scope=scope)
            return self._ring.last, []
        self._counts["replayed"] += len(missed)
        return position, missed


def _is_encoded(entry: Entry, encoder: Encoder[Any]) -> bool:
    """Whether it is known what this wire has of an event. Encodes it if the event was kept."""
    if encoder.generation not in entry.frames and entry.event is not None:
        entry.frames[encoder.generation] = encoder.encode(entry.event, entry.position, entry.position)
    return encoder.generation in entry.frames


def _wants(scope: str | None, event_scope: str | None) -> bool:
    """Whether a reader of one scope gets events of the other; None stands for all."""
    return scope is None or event_scope is None or scope == event_scope
