"""The hub: takes each change once, and sends its events to the readers of all faces. One event loop, no awaiting.

    emit(change)        -> the events that each face with readers makes of it
    publish(event)      -> a frame for each encoder with readers -> ring (the last 4,096) and each matching subscription
    subscribe(encoder)  -> server.connected, what was missed, what is still open, then live: in one step, so nothing is
                           lost or doubled between them

Publishers never wait: a reader that does not read is dropped (`subscription.py`). An event is encoded while it is published, for
encoders with readers, and for a while after the last reader has left, so that it can come back and get what it missed.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import islice
from time import monotonic
from typing import Any, NamedTuple

import structlog

from shim.lib.clock import Clock
from shim.lib.ids import Ids
from shim.stream.encoder import Encoder, Positions, RepeatFilter, StreamEvent, local_part
from shim.stream.frame import Frame, Scope, compact, decode_position, normal_scope
from shim.stream.subscription import Bounds, State, Subscription, WriteQueue, batches

# --- the last events --------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """One published event.

    position  its id in the stream
    face      the face whose event it is
    scope     the directory whose readers get it; None: all
    subject   the request that it is about
    event_id  its own id, if that is not the position
    frames    generation of an encoder -> the frame, for those in use when it was published; None: it has no such event
    size      bytes of all frames
    event     the event, if it can be encoded for other encoders later
    """

    position: str
    face: str
    scope: str | None
    subject: tuple[str, str] | None
    event_id: str | None
    frames: dict[str, Frame | None]
    size: int
    event: Any = None


class Ring:
    """Entries of all faces in order. The oldest are removed when they are too many or too large.

    In: `frames`, the maximum of entries of each face; `size`, the maximum of bytes for each face, of all entries together;
    `origin`, the position before the first entry, from which a reader gets all of them.
    """

    def __init__(self, origin: str, *, frames: int, size: int) -> None:
        self._origin = origin
        self._last = origin
        self._max_frames = frames
        self._max_size = size
        self._entries: deque[Entry] = deque()
        self._position_by_event: dict[str, str] = {}
        self._forgotten = 0
        self._size = 0
        self._size_limit = 0
        self._length_limit = 0
        self._count_by_face: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def last(self) -> str:
        """The position after the last entry."""
        return self._last

    @property
    def published_count(self) -> int:
        """The number of entries that were ever added."""
        return self._forgotten + len(self._entries)

    def add(self, entry: Entry) -> None:
        """Add the newest entry, and remove the oldest ones if needed. The newest always stays."""
        position, face, _, _, event_id, _, size, _ = entry
        entries, counts = self._entries, self._count_by_face
        if face not in counts:
            counts[face] = 0
            self._length_limit += self._max_frames
            self._size_limit += self._max_size
        self._last = position
        if event_id is not None:
            self._position_by_event[event_id] = position
        entries.append(entry)
        self._size += size
        counts[face] += 1
        while (
            self._size > self._size_limit or len(entries) > self._length_limit or counts[entries[0].face] > self._max_frames
        ) and len(entries) > 1:
            self._forget(entries.popleft())

    def _forget(self, oldest: Entry) -> None:
        position, face, _, _, event_id, _, size, _ = oldest
        self._size -= size
        self._count_by_face[face] -= 1
        if event_id is not None and self._position_by_event.get(event_id) == position:
            del self._position_by_event[event_id]
        self._origin = position
        self._forgotten += 1

    def position(self, last_event_id: str) -> str:
        """The position of a client's `Last-Event-ID`: the `id:` of a frame, or the id of an event."""
        return self._position_by_event.get(last_event_id) or decode_position(last_event_id)

    def number_of(self, position: str) -> int | None:
        """Number of entries that were added up to a position, or None for an unknown position."""
        place = local_part(position)
        if place == local_part(self._origin):
            return self._forgotten
        newest_first = enumerate(reversed(self._entries))
        return next((self.published_count - back for back, entry in newest_first if local_part(entry.position) == place), None)

    def after(self, position: str) -> list[Entry] | None:
        """The entries after a position, oldest first, or None for an unknown position."""
        number = self.number_of(position)
        return None if number is None else list(islice(self._entries, number - self._forgotten, None))


# --- when readers get them --------------------------------------------------------------------------------------

APART_S = 0.0005
"""Seconds between bursts that are delivered together. With a longer time, a busy loop would turn before readers wake up."""


class Bursts:
    """Decides when the hub delivers: at once, at the end of a burst (`with bursts:`), or together with the next bursts.

    Used from one event loop. In: `soon` calls a function in the loop's next turn; `now` returns seconds.
    """

    def __init__(
        self, *, soon: Callable[[Callable[[], None]], object] | None = None, now: Callable[[], float] = monotonic
    ) -> None:
        self._soon = soon or _soon
        self._now = now
        self._deliveries: list[Callable[[], None]] = []
        self._depth = 0
        self._waits = self._is_urgent = self._is_scheduled = False
        self._delivered_at = -math.inf

    def register(self, deliver: Callable[[], None]) -> None:
        """Add a hub's function that delivers its waiting frames."""
        self._deliveries.append(deliver)

    def notify(self, *, urgent: bool) -> None:
        """Note that a hub has frames for its readers. Outside of a burst they are delivered at once."""
        self._waits = True
        self._is_urgent = self._is_urgent or urgent
        if not self._depth:
            self.deliver()

    def __enter__(self) -> None:
        """Begin a burst: all frames of the block are delivered together, at its end. The block must not await.

        A burst that ends less than APART_S after another one is delivered with the next ones, after a turn of the loop, unless it
        has an urgent frame. Bursts may be nested: the outermost one counts.
        """
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth or not self._waits:
            return
        now = self._now()
        if self._is_urgent or now - self._delivered_at >= APART_S:
            self._delivered_at = now
            self.deliver()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._soon(self.deliver)

    def deliver(self) -> None:
        """Deliver all waiting frames now."""
        self._waits = self._is_urgent = self._is_scheduled = False
        for deliver in self._deliveries:
            deliver()


def _soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)


# --- the hub ----------------------------------------------------------------------------------------------------

RING_FRAMES = 4096
"""Maximum events of each face that can be replayed."""
RING_BYTES = 32 * 1024 * 1024
"""Maximum bytes of all frames in the ring, so that a few large tool outputs shorten the ring and do not fill the memory."""
SETTLE_S = 0.25
"""Maximum seconds that `settle` waits for readers that do not read."""
CACHED_SCOPES = 1024
"""Maximum directories whose audiences are cached."""
LOGGED_CHARS = 40
"""Maximum characters of a client's `Last-Event-ID` in the log."""

log = structlog.get_logger()


class HubBounds(NamedTuple):
    """The bounds of a hub. Tests set smaller ones. `reader`: the bounds of readers of faces without their own."""

    reader: Bounds = Bounds()
    ring_frames: int = RING_FRAMES
    ring_bytes: int = RING_BYTES


DEFAULT_BOUNDS = HubBounds()


class Face(NamedTuple):
    """The description of a face for the hub.

    render        makes events of a change
    reader        how far a reader may be behind
    keep_s        seconds after its last reader left for which events are still made and can be replayed; None: for as many
                  events as the ring keeps
    keeps_events  the ring keeps the events too, so that a new reader of another encoder gets a replay; events must be immutable
    """

    name: str
    render: Callable[[Any], Sequence[StreamEvent]] = lambda change: ()
    reader: Bounds | None = None
    keep_s: float | None = None
    keeps_events: bool = False


class _Readers:
    """The readers of one face. `begun`: number of ring entries before the first event that can be replayed.

    After the last reader has left (`has_left`), events are made until `wanted_until_ms`, or until `wanted_until` events were
    published.
    """

    __slots__ = ("begun", "count", "face", "has_left", "wanted_until", "wanted_until_ms")

    def __init__(self, face: Face) -> None:
        self.face = face
        self.count = 0
        self.has_left = False
        self.wanted_until_ms = 0
        self.wanted_until = 0
        self.begun = 0


class HubStats(NamedTuple):
    """Counts since the start, and the number of readers now."""

    readers: int
    published: int
    dropped: int
    replayed: int
    replay_missed: int


class Audience:
    """The readers with one encoder and one scope, which get the same bytes.

    `pending`: frames of the running burst. Without readers, events are encoded until `encoded_until` events were published.
    `repeats`: of its only reader, which has seen events elsewhere that come here later.
    """

    __slots__ = ("encode", "encoded_until", "encoder", "face", "generation", "pending", "readers", "repeats", "scope")

    def __init__(self, encoder: Encoder[Any], scope: Scope, repeats: RepeatFilter | None = None) -> None:
        self.repeats = repeats
        self.encoder = encoder
        self.face = encoder.face
        self.encode = encoder.encode
        self.generation = encoder.generation
        self.scope = scope
        self.readers: dict[Subscription, int] = {}
        """Reader -> when it came, in epoch milliseconds."""
        self.pending: list[Frame] = []
        self.encoded_until = 0


class Hub:
    """All event streams of the server. Used from one event loop.

    In: `faces`. A face that is not among them makes no events of changes, and has the defaults of `Face`.
    """

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        *,
        faces: Iterable[Face] = (),
        bounds: HubBounds = DEFAULT_BOUNDS,
        bursts: Bursts | None = None,
        write_queue: WriteQueue | None = None,
    ) -> None:
        self.bursts = bursts or Bursts()
        self.bursts.register(self._deliver)
        self.write_queue = write_queue or WriteQueue()
        self._clock = clock
        self._ids = ids
        self._bounds = bounds
        self._faces: dict[str, _Readers] = {}
        self._keepers: set[str] = set()
        """Names of the faces whose events are kept."""
        for face in faces:
            self.add_face(face)
        self._ring = Ring(ids.moment(), frames=bounds.ring_frames, size=bounds.ring_bytes)
        self._audiences: dict[Scope, dict[Hashable, Audience]] = {}
        """Scope -> encoder -> audience. A reader with repeats has an audience of its own, under itself."""
        self._audiences_by_scope: dict[str | None, list[Audience]] = {}
        """Cache of `_audiences_of`. It is cleared when an audience comes or goes."""
        self._due: list[Audience] = []
        self._published = 0
        self._positions: Positions | None = None
        self._counts: Counter[str] = Counter()
        self._is_closed = False

    def add_face(self, face: Face) -> None:
        """Add a face."""
        self._faces[face.name] = _Readers(face)
        if face.keeps_events:
            self._keepers.add(face.name)

    def use_positions(self, positions: Positions) -> None:
        """Take the positions of all later events from `positions`, in a cluster. Called before the first reader comes."""
        self._positions = positions
        self._ring = Ring(positions.next(self._ids.moment())[0], frames=self._bounds.ring_frames, size=self._bounds.ring_bytes)

    def wants(self, face: str) -> bool:
        """Whether events of a face must be published: it has readers, or a reader may come back."""
        return self._is_wanted(self._readers_of(face))

    def _is_wanted(self, readers: _Readers) -> bool:
        if readers.count:
            return True
        if readers.face.keep_s is None:
            return self._published < readers.wanted_until
        return readers.wanted_until_ms > 0 and self._clock.now_ms() < readers.wanted_until_ms

    def stats(self) -> HubStats:
        """The counts for metrics and health."""
        counts, readers = self._counts, sum(face.count for face in self._faces.values())
        return HubStats(readers, self._published, counts["dropped"], counts["replayed"], counts["replay_missed"])

    def _readers_of(self, face: str) -> _Readers:
        readers = self._faces.get(face)
        if readers is None:
            readers = self._faces[face] = _Readers(Face(face))
        return readers

    # --- events ----------------------------------------------------------------------------------------------

    def emit(self, change: object) -> None:
        """Publish the events that each face makes of a change. A face without readers is not asked."""
        positions = self._positions
        for readers in tuple(self._faces.values()):
            if readers.count or (readers.has_left and self._is_wanted(readers)):
                events = readers.face.render(change)
                if events and positions is not None:
                    positions.begin(change)
                self.publish_all(events)
        if positions is not None:
            positions.end(change)

    def render(self, face: str, change: object) -> Iterable[StreamEvent]:
        """The events that a face makes of a change, without publishing them."""
        return self._readers_of(face).face.render(change)

    def publish(self, event: StreamEvent) -> None:
        """Give an event a position and queue it for its readers. Never waits. Does nothing after `close`."""
        self.publish_all((event,))

    def publish_all(self, events: Sequence[StreamEvent]) -> None:
        """Publish events, in order."""
        if self._is_closed or not events:
            return
        positions, keepers = self._positions, self._keepers
        face, scope, audiences = "", None, list[Audience]()
        arrived = urgent = False
        for event, event_id in zip(events, self._ids.moments(len(events)), strict=True):
            if event.face != face or event.scope != scope:
                face, scope = event.face, event.scope
                audiences = self._audiences_with(face, scope)
            position = event_id
            if positions is not None:
                position, event_id = positions.next(position)
            self._published += 1
            frames: dict[str, Frame | None] = {}
            size = 0
            for audience in audiences:
                generation = audience.generation
                if generation in frames:
                    frame = frames[generation]
                else:
                    frame = frames[generation] = audience.encode(event, event_id, position)
                    if frame is not None:
                        size += len(frame.body) + len(frame.envelope)
                if frame is not None and audience.readers:
                    if audience.repeats is not None:
                        if audience.repeats.is_repeat():
                            continue
                        frame = frame._replace(position=audience.repeats.position(position))
                    if not audience.pending:
                        self._due.append(audience)
                    audience.pending.append(frame)
                    arrived = True
                    urgent = urgent or frame.urgent
            # An event without bytes would not be bounded.
            stored_event = event if size and face in keepers else None
            self._ring.add(Entry(position, face, scope, event.subject, event.event_id, frames, size, stored_event))
        if arrived:
            self.bursts.notify(urgent=urgent)

    def _audiences_with(self, face: str, scope: str | None) -> list[Audience]:
        """The audiences of a face that get events of a scope, and for which they are encoded."""
        audiences: list[Audience] = []
        for audience in self._audiences_by_scope.get(scope) or self._audiences_of(scope):
            if audience.face == face and (audience.readers or audience.encoded_until > self._published):
                audiences.append(audience)
        return audiences

    def send(self, event: StreamEvent, readers: Iterable[Subscription]) -> None:
        """Send an event to these readers alone. It is not replayed."""
        self.bursts.deliver()
        for reader in readers:
            frame = reader.encoder.encode(event, self._ids.moment(), self._last_position(self._audience_of(reader)))
            for batch in batches(() if frame is None else (frame,), reader.encoder.layout):
                reader.put(batch)

    def _deliver(self) -> None:
        """Give each reader the frames of the burst. The bytes are made once for each audience."""
        due, self._due = self._due, []
        for audience in due:
            frames, audience.pending = audience.pending, []
            encoder = audience.encoder
            encoded = batches(compact(frames) if encoder.joins else frames, encoder.layout)
            for reader in tuple(audience.readers):
                for batch in encoded:
                    reader.put(batch)
        for audience in due:
            if audience.repeats is not None and audience.repeats.is_over:
                self._share(audience)

    def _share(self, own: Audience) -> None:
        """Move a reader that has no repeats any more to the others with its encoder. No frame is pending."""
        group = self._audiences.get(own.scope, {})
        for reader, came_ms in own.readers.items():
            del group[reader]
            group[own.encoder].readers[reader] = came_ms
        own.readers = {}
        self._audiences_by_scope.clear()

    def _audience_of(self, reader: Subscription) -> Audience | None:
        group = self._audiences.get(reader.scope, {})
        return group.get(reader) or group.get(reader.encoder)

    def _audiences_of(self, scope: str | None) -> list[Audience]:
        """The audiences that get events of a scope; None: those of all directories, without the readers of roots."""
        audiences = self._audiences_by_scope.get(scope)
        if audiences is None:
            groups = [group for wanted, group in self._audiences.items() if wants(wanted, scope)]
            audiences = [audience for group in groups for audience in group.values()]
            if len(self._audiences_by_scope) >= CACHED_SCOPES:
                self._audiences_by_scope.clear()
            self._audiences_by_scope[scope] = audiences
        return audiences

    # --- readers ---------------------------------------------------------------------------------------------

    def subscribe(
        self,
        encoder: Encoder[Any],
        *,
        scope: Scope = None,
        last_event_id: str | None = None,
        greeting: Sequence[StreamEvent] = (),
        position: str = "",
        repeats: RepeatFilter | None = None,
    ) -> Subscription:
        """Add a reader. The caller must give it to `response.stream`, or `close` it.

        In: `scope`, the directory whose events it gets, roots for those of all in them, None for all; `last_event_id`, the last
        frame or event that it saw; `greeting`, the open requests (permissions, questions), read in the same step of the loop;
        `position`, the place of the first frame, if the caller adds what was missed (`Subscription.extend_opening`); `repeats`,
        events that it does not get.
        Out: first the encoder's greeting; then the events after `last_event_id`, if the ring has them (if not, the client must
        read everything again at `server.connected`); then `greeting` without the requests of the replay; then live events.
        """
        self.bursts.deliver()
        readers = self._readers_of(encoder.face)
        if not self.wants(encoder.face):
            self._begin(readers)
        scope = normal_scope(scope) if isinstance(scope, str) else scope
        position, replay = (position, []) if position else self._resume(encoder, scope, last_event_id)
        opening = encoder.greeting(position, self._ids)
        opening += [frame for entry in replay if (frame := entry.frames[encoder.generation]) is not None]
        replayed = {entry.subject for entry in replay} - {None}
        frames = self._encode_greeting(encoder, scope, greeting, self._last_position())
        opening += [frame for subject, frame in frames if subject not in replayed]
        bounds = readers.face.reader or self._bounds.reader
        reader = Subscription(encoder, scope, opening, bounds=bounds, heartbeat=self._heartbeat, closed=self._reader_closed)
        self._forget_audiences()
        self._audiences_by_scope.clear()
        group = self._audiences.setdefault(scope, {})
        audience = group.setdefault(encoder, Audience(encoder, scope))
        if repeats is not None:
            audience = group[reader] = Audience(encoder, scope, repeats)
            repeats.bind(reader.drop)
        audience.readers[reader] = self._clock.now_ms()
        readers.count += 1
        if self._is_closed:
            reader.end()
        return reader

    def encode_greeting(
        self, reader: Subscription, greeting: Iterable[StreamEvent]
    ) -> list[tuple[tuple[str, str] | None, Frame]]:
        """The frames of these events for one reader, each with the request that it is about."""
        return self._encode_greeting(reader.encoder, reader.scope, greeting, self._last_position(self._audience_of(reader)))

    def _encode_greeting(
        self, encoder: Encoder[Any], scope: Scope, greeting: Iterable[StreamEvent], position: str
    ) -> list[tuple[tuple[str, str] | None, Frame]]:
        found: list[tuple[tuple[str, str] | None, Frame]] = []
        for event in greeting:
            if wants(scope, event.scope) and (frame := encoder.encode(event, self._ids.moment(), position)) is not None:
                found.append((event.subject, frame))
        return found

    def knows(self, face: str, last_event_id: str) -> bool:
        """Whether the ring has all events of a face after a client's `Last-Event-ID`."""
        number = self._ring.number_of(self._ring.position(last_event_id))
        return number is not None and number >= self._readers_of(face).begun

    def has_reader(self, directory: str) -> bool:
        """Whether a reader that is no plugin gets this directory's events."""
        for audience in self._audiences_of(normal_scope(directory)):
            for reader in audience.readers:
                if not reader.is_plugin:
                    return True
        return False

    async def settle(self, directory: str | None = None, timeout_s: float = SETTLE_S, *, face: str | None = None) -> None:
        """Wait until the readers of a directory and a face (None: all) have got all published events, at most `timeout_s`.

        Used before answers that end a turn: `opencode run --attach` exits at that answer, and prints only what it has read by
        then (seen with 1.1.53 and 1.18.33).
        """
        self.bursts.deliver()
        scope = None if directory is None else normal_scope(directory)
        recipients = [
            reader for reader in self._all_readers() if face in (None, reader.encoder.face) and wants(reader.scope, scope)
        ]
        waits = [asyncio.ensure_future(reader.settle()) for reader in recipients]
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout_s)
            for wait in late:
                wait.cancel()

    def end(self, directory: str) -> None:
        """End the streams of one directory after their waiting frames, as OpenCode does when it disposes of an instance."""
        self.bursts.deliver()
        for audience in tuple(self._audiences.get(normal_scope(directory), {}).values()):
            for reader in tuple(audience.readers):
                reader.end()

    def end_void(self, directory: str) -> None:
        """End the streams that get a directory's events, because some of them were lost. Their readers come again.

        What was published until now is replayed to nobody: no face knows a position before this one.
        """
        self.bursts.deliver()
        for readers in self._faces.values():
            self._begin(readers)
        for audience in tuple(self._audiences_of(normal_scope(directory))):
            for reader in tuple(audience.readers):
                reader.end()

    def close(self) -> None:
        """End all streams after their waiting frames, when the server stops. May be called again."""
        self.bursts.deliver()
        self._is_closed = True
        for reader in self._all_readers():
            reader.end()

    def _all_readers(self) -> list[Subscription]:
        return [reader for group in self._audiences.values() for audience in group.values() for reader in audience.readers]

    def _heartbeat(self, reader: Subscription) -> Frame:
        return reader.encoder.heartbeat(self._last_position(self._audience_of(reader)), self._ids)

    def _last_position(self, audience: Audience | None = None) -> str:
        """The place after the last event, for the readers of an audience."""
        position = self._ring.last if self._positions is None else self._positions.renew(self._ring.last)
        return position if audience is None or audience.repeats is None else audience.repeats.position(position)

    def _reader_closed(self, reader: Subscription) -> None:
        """Called by a subscription that is over, at least once."""
        audience = self._audience_of(reader)
        came_ms = None if audience is None else audience.readers.pop(reader, None)
        if audience is None or came_ms is None:
            return
        if audience.repeats is not None:
            audience.repeats.close()
            group = self._audiences[reader.scope]
            del group[reader]
            self._audiences_by_scope.clear()
            audience = group[reader.encoder]
        now_ms = self._clock.now_ms()
        readers = self._readers_of(audience.face)
        readers.count -= 1
        readers.has_left = True
        readers.wanted_until_ms = now_ms + int((readers.face.keep_s or 0.0) * 1000)
        audience.encoded_until = readers.wanted_until = self._published + self._bounds.ring_frames
        if reader.state is State.DROPPED:
            self._counts["dropped"] += 1
            frames, size = reader.pending
            wire = reader.encoder.generation
            log.warning("subscriber.dropped", wire=wire, scope=reader.scope, frames=frames, bytes=size, age_ms=now_ms - came_ms)

    # --- replay ----------------------------------------------------------------------------------------------

    def _begin(self, readers: _Readers) -> None:
        """Note that a face has readers again after a time without events, so that the ring is not complete.

        A mark in the ring stands at this place. Positions before it are unknown to the face.
        """
        moment = self._ids.moment()
        position = moment if self._positions is None else self._positions.next(moment)[0]
        self._ring.add(Entry(position, readers.face.name, None, None, None, {}, 0))
        readers.begun = self._ring.published_count

    def _forget_audiences(self) -> None:
        """Remove audiences whose last reader cannot come back any more."""
        for scope, group in tuple(self._audiences.items()):
            lone = {audience.encoder for audience in group.values() if audience.repeats is not None}
            for key, audience in tuple(group.items()):
                if not audience.readers and audience.encoded_until <= self._published and key not in lone:
                    del group[key]
            if not group:
                del self._audiences[scope]

    def _resume(self, encoder: Encoder[Any], scope: Scope, last_event_id: str | None) -> tuple[str, list[Entry]]:
        """The position of the first frame, and the events that the reader missed, or none if they are unknown.

        The position is the old one, so that a reader which is cut off before the replay arrives can ask for it again.
        """
        if not last_event_id:
            return self._last_position(), []
        position = self._ring.position(last_event_id)
        number, face = self._ring.number_of(position), encoder.face
        missed = None if number is None or number < self._readers_of(face).begun else self._ring.after(position)
        if missed is not None:
            missed = [entry for entry in missed if entry.face == face and wants(scope, entry.scope)]
        if missed is None or not all(_is_encoded(entry, encoder) for entry in missed):
            self._counts["replay_missed"] += 1
            log.info("replay.missed", wire=encoder.generation, last_event_id=last_event_id[:LOGGED_CHARS], scope=scope)
            return self._last_position(), []
        self._counts["replayed"] += len(missed)
        return position, missed


def _is_encoded(entry: Entry, encoder: Encoder[Any]) -> bool:
    """Whether the ring has the event's frame for this encoder. Encodes the event if the ring has kept it."""
    if encoder.generation not in entry.frames and entry.event is not None:
        entry.frames[encoder.generation] = encoder.encode(entry.event, entry.position, entry.position)
    return encoder.generation in entry.frames


def wants(scope: Scope, event_scope: str | None) -> bool:
    """Whether a reader of one scope gets events of the other. None stands for all; a reader of roots gets those in them alone."""
    if isinstance(scope, tuple):
        return event_scope is not None and any(event_scope == root or event_scope.startswith(f"{root}/") for root in scope)
    return scope is None or event_scope is None or scope == event_scope
