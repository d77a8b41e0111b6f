"""The hub: every event of the server goes in once, and out to everyone who reads. One event loop, no awaiting.

    publish(event) -> id, frame -> ring (the last 4,096) and each matching subscription
    subscribe(...) -> server.connected, what was missed, what is still open, then live: in one step, so nothing is
                      lost or doubled between them

Producers never wait: a reader that does not read is dropped (`subscription.py`).
Clients of 1.1 and older get another event where the face has one. It can only be made while publishing, so it is made
when such a client is connected, and for as long after it left as it could come back and ask for what it missed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import structlog

from shim.clock import Clock
from shim.ids import Ids
from shim.opencode.events import OpenCodeEvent
from shim.stream.batch import Batch, batches
from shim.stream.burst import Bursts
from shim.stream.frame import Frame, encode, event_at, normal
from shim.stream.oldest import oldest as oldest_form
from shim.stream.ring import Entry, Ring
from shim.stream.subscription import Bounds, Kind, State, Subscription
from shim.stream.turnstile import Turnstile

RING_FRAMES = 4096
"""How many events can be replayed."""
RING_BYTES = 32 * 1024 * 1024
"""The same in bytes, all forms counted: a few large tool outputs shorten the ring instead of filling the memory."""

SETTLE_S = 0.25
"""The longest that `settled` waits for readers that do not read."""

CONNECTED = OpenCodeEvent("server.connected", {}, urgent=True)
HEARTBEAT = OpenCodeEvent("server.heartbeat", {}, urgent=True)

log = structlog.get_logger()


class HubBounds(NamedTuple):
    """The numbers above, as tests may want them smaller."""

    reader: Bounds = Bounds()
    ring_frames: int = RING_FRAMES
    ring_bytes: int = RING_BYTES


DEFAULT_BOUNDS = HubBounds()


class HubStats(NamedTuple):
    """Counts since the start, and the readers of now."""

    readers: int
    published: int
    dropped: int
    replayed: int
    replay_missed: int


class Hub:
    """All event streams of the server. Used from one event loop. `bursts` is shared with other hubs."""

    def __init__(self, clock: Clock, ids: Ids, *, bounds: HubBounds = DEFAULT_BOUNDS, bursts: Bursts | None = None) -> None:
        self.bursts = bursts or Bursts()
        self.bursts.to(self._hand_over)
        self._clock = clock
        self._ids = ids
        self._bounds = bounds
        self._ring: Ring[Entry] = Ring(ids.moment(), frames=bounds.ring_frames, size=bounds.ring_bytes)
        self._readers: dict[Subscription[Kind], int] = {}
        self._legacy_readers = 0
        self._legacy_until: dict[str | None, int] = {}
        self._counts: Counter[str] = Counter()
        self.turnstile = Turnstile()
        self._taps: list[Callable[[OpenCodeEvent], None]] = []
        self._burst: list[Entry] = []
        self._is_closed = False

    def stats(self) -> HubStats:
        """For metrics and health."""
        counts = self._counts
        return HubStats(len(self._readers), self._ring.published, counts["dropped"], counts["replayed"], counts["replay_missed"])

    def tap(self, tap: Callable[[OpenCodeEvent], None], *, on: bool = True) -> None:
        """Call it with every event that is published from now on, or (not `on`) no longer. It must not wait or raise."""
        self._taps = [one for one in self._taps if one != tap] + ([tap] if on else [])

    def publish(self, event: OpenCodeEvent) -> None:
        """Give an event an id and hand it to all who want it. Never waits. After `close` it does nothing."""
        if self._is_closed:
            return
        for tap in self._taps:
            tap(event)
        id_ = self._ids.moment()
        directory = None if event.directory is None else normal(event.directory)
        modern = encode(event, id_, twin=event.sync is not None and any(reader.kind.sync for reader in self._readers))
        made = bool(self._legacy_readers or self._legacy_until) and self._legacy_wanted(directory)
        legacy = self._legacy_frame(event, id_) if made else None
        size = modern.size if legacy is None else modern.size + legacy.size
        entry = Entry(id_, directory, modern, legacy, made, _subject(event), size)
        self._ring.add(entry)
        if self._readers:
            self._burst.append(entry)
            self.bursts.came(urgent=event.urgent)

    def burst(self) -> AbstractContextManager[None]:
        """Gives what the block publishes to the readers in one go, as `Bursts.burst`."""
        return self.bursts.burst()

    def _hand_over(self) -> None:
        """To each reader what it wants of the burst; formed once for all who want the same."""
        burst, self._burst = self._burst, []
        if not burst:
            return
        formed: dict[Kind, list[Batch]] = {}
        for reader in tuple(self._readers):
            made = formed.get(reader.kind)
            if made is None:
                made = formed[reader.kind] = _formed(burst, reader.kind)
            for batch in made:
                reader.put(batch)

    def subscribe(
        self,
        *,
        scope: str | None,
        wrapped: bool,
        legacy: bool = False,
        sync: bool = False,
        oldest: bool = False,
        last_event_id: str | None = None,
        greeting: Sequence[OpenCodeEvent] = (),
    ) -> Subscription[Kind]:
        """A new reader. Its owner must hand it to `stream`, or `close` it.

        In: `sync`, whether lasting events have twins (`/global/event` since 1.14); `oldest`, with `legacy`: a client of 1.0.
        `scope`, the directory whose events it gets, None for all; `last_event_id`, the last frame it saw; `greeting`,
        what is open and must be told again (permissions, questions), read in the same step of the loop.
        Out: first `server.connected`; then what followed `last_event_id`, if that is still known (if not, the client
        reads all anew at `server.connected`, or has to); then the greeting, less what the replay has; then live.
        """
        self.bursts.deliver()
        kind = Kind(None if scope is None else normal(scope), wrapped, legacy, sync, oldest and not wrapped)
        last = event_at(last_event_id) if last_event_id else None
        replay = self._replay(kind, last) if last else None
        # Who is cut off before the replay arrived must be able to ask for it again, so its place is still the old one.
        position = last if replay is not None else self._ring.last
        first = [encode(CONNECTED, self._ids.moment(), position=position, legacy=legacy)]
        first += [frame for entry in replay or () if (frame := entry.legacy if legacy else entry.modern) is not None]
        told = {entry.subject for entry in replay or ()} - {None}
        for event in greeting:
            wanted = kind.wants(None if event.directory is None else normal(event.directory))
            if wanted and _subject(event) not in told and (frame := self._private(event, legacy=legacy)) is not None:
                first.append(frame)
        reader = Subscription(kind, first, bounds=self._bounds.reader, beat=self._beat, closed=self._left)
        self._readers[reader] = self._clock.now_ms()
        self._legacy_readers += legacy
        if self._is_closed:
            reader.end()
        return reader

    def listened(self, directory: str) -> bool:
        """Whether a reader gets this directory's events."""
        return any(reader.kind.wants(normal(directory)) for reader in self._readers)

    async def settled(self, directory: str | None = None, timeout_s: float = SETTLE_S) -> None:
        """Wait until readers of a directory (None: all) have been sent what was published so far, at most `timeout_s`.

        For answers that say that a turn is over: `opencode run --attach` exits at that answer and prints only what it has
        read by then (seen with 1.1.53 and 1.18.33).
        """
        self.bursts.deliver()
        wanted = None if directory is None else normal(directory)
        waits = [
            asyncio.ensure_future(reader.settled()) for reader in self._readers if wanted is None or reader.kind.wants(wanted)
        ]
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout_s)
            for wait in late:
                wait.cancel()

    def end(self, directory: str) -> None:
        """End the streams of one directory after what waits, as OpenCode does when it disposes of an instance."""
        self.bursts.deliver()
        for reader in tuple(self._readers):
            if reader.kind.scope == normal(directory):
                reader.end()

    def close(self) -> None:
        """End all streams after what waits. For the server's shutdown; again is fine."""
        self.bursts.deliver()
        self._is_closed = True
        for reader in tuple(self._readers):
            reader.end()

    def _replay(self, kind: Kind, last_event_id: str) -> list[Entry] | None:
        """What this reader missed, None if that is not known."""
        found = self._ring.after(last_event_id)
        if found is not None:
            found = [entry for entry in found if kind.wants(entry.directory)]
        if found is None or (kind.legacy and not all(entry.legacy_made for entry in found)):
            self._counts["replay_missed"] += 1
            log.info("replay.missed", last_event_id=last_event_id[:40], scope=kind.scope)
            return None
        self._counts["replayed"] += len(found)
        return found

    def _private(self, event: OpenCodeEvent, *, legacy: bool) -> Frame | None:
        """A frame that one reader gets: it is not in the ring, so its place is that of the last one that is."""
        id_ = self._ids.moment()
        return self._legacy_frame(event, id_, self._ring.last) if legacy else encode(event, id_, position=self._ring.last)

    def _legacy_frame(self, event: OpenCodeEvent, id_: str, position: str | None = None) -> Frame | None:
        """The frame for clients of 1.1 and 1.0: of another event if the face has one, None if they get nothing."""
        made = event if event.legacy is None else event.legacy()
        if made is None:
            return None
        return encode(made, id_, position=position, legacy=True, oldest=oldest_form(made, self._clock.now_ms()))

    def _beat(self, kind: Kind) -> Frame:
        return encode(HEARTBEAT, self._ids.moment(), position=self._ring.last, legacy=kind.legacy)

    def _left(self, reader: Subscription[Kind]) -> None:
        """Called by a subscription that is over, at least once."""
        since = self._readers.pop(reader, None)
        if since is None:
            return
        if reader.kind.legacy:
            self._legacy_readers -= 1
            self._legacy_until[reader.kind.scope] = self._ring.published + self._bounds.ring_frames
        if reader.state is State.DROPPED:
            self._counts["dropped"] += 1
            frames, size = reader.pending
            age_ms = self._clock.now_ms() - since
            log.warning("subscriber.dropped", scope=reader.kind.scope, frames=frames, bytes=size, age_ms=age_ms)

    def _legacy_wanted(self, directory: str | None) -> bool:
        if self._legacy_readers and any(reader.kind.legacy and reader.kind.wants(directory) for reader in self._readers):
            return True
        if not self._legacy_until:
            return False
        now = self._ring.published
        self._legacy_until = {scope: until for scope, until in self._legacy_until.items() if until > now}
        return any(directory is None or scope is None or scope == directory for scope in self._legacy_until)


def _formed(burst: Sequence[Entry], kind: Kind) -> list[Batch]:
    """What readers of this kind get of a burst."""
    frames = [entry.legacy if kind.legacy else entry.modern for entry in burst if kind.wants(entry.directory)]
    return batches([frame for frame in frames if frame is not None], kind.form)


def _subject(event: OpenCodeEvent) -> tuple[str, str] | None:
    """What an event is about, if it names a request: its type and the request's id."""
    id_ = event.properties.get("id")
    return (event.type, id_) if isinstance(id_, str) else None
