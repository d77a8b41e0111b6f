"""The hub of OpenCode 2's stream, `/api/event`: queue, ring and answer are those of the first one.

    publish(event) -> the ring, and each reader, in its dialect; encoded once for each dialect
    subscribe(...) -> server.connected, what was missed if the client says where it was, then live

One stream carries all directories. Frames have an `id:` line, which native lacks: the place to ask for what follows, by
`Last-Event-ID` or `?after=`; the event's own id will do as well. Keep-alives are comments.
Events are made only while somebody reads, and for KEEP_S after the last one left, so that it can come back; a ring that has
missed something is thrown away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import structlog

from shim.clock import Clock
from shim.ids import Ids
from shim.opencode2.dialects import Dialect
from shim.opencode2.events import Event2
from shim.opencode2.probes import Client
from shim.stream.batch import Batch, batches
from shim.stream.burst import Bursts
from shim.stream.frame import Frame, compact, event_at, place, to_json
from shim.stream.hub import DEFAULT_BOUNDS, HubBounds, HubStats
from shim.stream.ring import Ring
from shim.stream.subscription import Bounds, State, Subscription
from shim.stream.turnstile import Turnstile

KEEP_S = 60.0
"""How long events are made for a reader that has gone."""
SECOND_BOUNDS = HubBounds(Bounds(4096, DEFAULT_BOUNDS.reader.bytes), DEFAULT_BOUNDS.ring_frames, DEFAULT_BOUNDS.ring_bytes)
"""As native: 4,096 events may wait for a reader."""
HEARTBEAT = b": heartbeat\n\n"
URGENT = frozenset(
    {
        *("session.execution.started", "session.execution.succeeded", "session.execution.failed"),
        *("session.execution.interrupted", "permission.asked", "permission.replied", "form.created"),
        *("form.replied", "form.cancelled", "session.inbox.enqueued", "session.status", "session.idle"),
    }
)
"""Sent at once, without waiting for more."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Kind2:
    """What a reader asked for, and who it is."""

    dialect: Dialect
    client: Client = ("", "")
    scope: None = None

    def form(self, frame: Frame) -> bytes:
        """A frame as this reader gets it."""
        return frame.plain


Reader: TypeAlias = Subscription[Kind2]


@dataclass(frozen=True, slots=True)
class Piece2:
    """A piece of a growing text. `field` is where it stands in the event's data."""

    event: Event2
    field: str

    @property
    def key(self) -> tuple[str, ...]:
        """What it is a piece of: all that the event says but the piece."""
        return (self.event.type, *(f"{name}={value}" for name, value in self.event.data.items() if name != self.field))

    @property
    def text(self) -> str:
        """The piece."""
        return str(self.event.data[self.field])

    def frame(self, text: str, position: str) -> Frame:
        """Another piece of the same, at another place."""
        return encode(replace(self.event, data={**self.event.data, self.field: text}), position)


def encode(event: Event2, position: str) -> Frame:
    """The frame of an event that is in its reader's dialect already. In: `position`, what its `id:` line tells."""
    return Frame(position, _data(position, to_json(event.wire())), b"", event.type in URGENT, _piece(event))


def _data(position: str, body: bytes) -> bytes:
    return b"id: " + place(position).encode() + b"\ndata: " + body + b"\n\n"


def _piece(event: Event2) -> Piece2 | None:
    if not event.type.endswith(".delta"):
        return None
    return Piece2(event, "text" if event.type == "session.compaction.delta" else "delta")


@dataclass(slots=True)
class Entry2:
    """One published event. `id` is its place; `frames`, in the dialects that somebody has needed so far."""

    id: str
    event: Event2
    frames: dict[str, Frame | None] = field(default_factory=dict[str, Frame | None])
    size: int = 0

    def frame(self, dialect: Dialect) -> Frame | None:
        """The frame in a dialect, None if that has no such event."""
        if dialect.name not in self.frames:
            said = dialect.event(self.event)
            self.frames[dialect.name] = None if said is None else encode(said, self.id)
        return self.frames[dialect.name]


class SecondHub:
    """All `/api/event` streams of the server. Used from one event loop.

    `begins` is called when somebody reads and nobody did: what is published from then on is all that happens.
    """

    def __init__(self, clock: Clock, ids: Ids, *, bounds: HubBounds = SECOND_BOUNDS, bursts: Bursts | None = None) -> None:
        self._bursts = bursts or Bursts()
        self._bursts.to(self._hand_over)
        self._burst: list[Entry2] = []
        self._clock = clock
        self._ids = ids
        self.begins: Callable[[], None] = lambda: None
        self._bounds = bounds
        self._ring = self._new_ring()
        self._readers: dict[Reader, int] = {}
        self._wanted_until = 0
        self._counts: Counter[str] = Counter()
        self._is_closed = False
        self.turnstile = Turnstile()

    def _new_ring(self) -> Ring[Entry2]:
        return Ring(self._ids.moment(), frames=self._bounds.ring_frames, size=self._bounds.ring_bytes)

    @property
    def wanted(self) -> bool:
        """Whether events are to be published."""
        return bool(self._readers) or self._clock.now_ms() < self._wanted_until

    def stats(self) -> HubStats:
        """For metrics and health."""
        counts = self._counts
        return HubStats(len(self._readers), counts["published"], counts["dropped"], counts["replayed"], counts["replay_missed"])

    def publish(self, event: Event2) -> None:
        """Hand an event to all readers. Never waits. After `close` it does nothing."""
        if self._is_closed:
            return
        entry = Entry2(self._ids.moment(), event)
        self._counts["published"] += 1
        frames = [frame for reader in self._readers if (frame := entry.frame(reader.kind.dialect)) is not None]
        entry.size = sum(len(frame.plain) for frame in entry.frames.values() if frame is not None) or _size_of(event)
        self._ring.add(entry)
        if frames:
            self._burst.append(entry)
            self._bursts.came(urgent=any(frame.urgent for frame in frames))

    def _hand_over(self) -> None:
        """To each reader the burst in its dialect; formed once for each."""
        burst, self._burst = self._burst, []
        formed: dict[str, list[Batch]] = {}
        for reader in tuple(self._readers) if burst else ():
            dialect = reader.kind.dialect
            made = formed.get(dialect.name)
            if made is None:
                frames = [frame for entry in burst if (frame := entry.frame(dialect)) is not None]
                made = formed[dialect.name] = batches(compact(frames) if dialect.joins else frames, reader.kind.form)
            for batch in made:
                reader.put(batch)

    def subscribe(self, dialect: Dialect, last_event_id: str | None = None, client: Client = ("", "")) -> Reader:
        """A new reader of a client. Its owner must hand it to `stream`, or `close` it.

        In: `last_event_id`, the last frame or event that it saw. Out: first `server.connected`, whose place is that of the
        event before the ones that follow; then what was missed, if that is still known; then live.
        """
        self._bursts.deliver()
        if not self.wanted:
            self._ring = self._new_ring()  # what happened meanwhile is not in the old one
            self.begins()
        missed = self._missed(last_event_id) if last_event_id else None
        position = self._ring.last if missed is None or last_event_id is None else self._place(last_event_id)
        connected = to_json({"id": self._ids.new("event"), "type": "server.connected", "data": {}})
        kind = Kind2(dialect, client)
        first = [Frame(position, _data(position, connected), b"", urgent=True), self._beat(kind)]
        first += [frame for entry in missed or () if (frame := entry.frame(dialect)) is not None]
        reader = Subscription(kind, first, bounds=self._bounds.reader, beat=self._beat, closed=self._left, joins=dialect.joins)
        self._readers[reader] = self._clock.now_ms()
        if self._is_closed:
            reader.end()
        return reader

    def hold(self, dialect: Dialect, client: Client) -> list[Reader]:
        """Keep back what is published from now on from this client's readers, until their `go_on`."""
        self._bursts.deliver()
        found = [reader for reader in self._readers if reader.kind.dialect is dialect and reader.kind.client == client]
        for reader in found:
            reader.hold()
        return found

    def tell(self, event: Event2, readers: Iterable[Reader]) -> None:
        """Send an event to these readers alone; it is in no replay."""
        self._bursts.deliver()
        for reader in readers:
            said = reader.kind.dialect.event(event)
            if said is not None:
                for batch in batches((encode(said, self._ring.last),), reader.kind.form):
                    reader.put(batch)

    def close(self) -> None:
        """End all streams after what waits. For the server's shutdown; again is fine."""
        self._bursts.deliver()
        self._is_closed = True
        for reader in tuple(self._readers):
            reader.end()

    def _place(self, said: str) -> str:
        """A place in the ring by what a client says: the `id:` of a frame, or the id of an event."""
        found = next((entry.id for entry in self._ring.entries() if entry.event.id == said), None)
        return found or event_at(said)

    def _missed(self, said: str) -> list[Entry2] | None:
        found = self._ring.after(self._place(said))
        if found is None:
            self._counts["replay_missed"] += 1
            log.info("replay.missed", wire=2, last_event_id=said[:40])
            return None
        self._counts["replayed"] += len(found)
        return found

    def _beat(self, _kind: Kind2) -> Frame:
        return Frame(self._ring.last, HEARTBEAT, b"", urgent=True)

    def _left(self, reader: Reader) -> None:
        """Called by a subscription that is over, at least once."""
        since = self._readers.pop(reader, None)
        if since is None:
            return
        self._wanted_until = self._clock.now_ms() + int(KEEP_S * 1000)
        if reader.state is State.DROPPED:
            self._counts["dropped"] += 1
            frames, size = reader.pending
            log.warning("subscriber.dropped", wire=2, frames=frames, bytes=size, age_ms=self._clock.now_ms() - since)


def _size_of(event: Event2) -> int:
    """About, for an event that nobody has been sent."""
    return len(to_json(event.data))
