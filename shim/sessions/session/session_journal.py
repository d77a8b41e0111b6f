"""The journal of one session: events are stamped, numbered and queued for the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from shim.lib.clock import Clock, rfc3339
from shim.lib.errors import SessionElsewhere, StoreError
from shim.lib.ids import Ids
from shim.lib.tasks import DOER, doer
from shim.store.base import Store
from shim.store.servers import ServerRef
from universal.codec import Fact
from universal.events import EVENT_DATA, EventData, EventType, Source, UniversalEvent

log = structlog.get_logger()

ANSWERS = frozenset({EventType.PERMISSION_RESOLVED, EventType.QUESTION_RESOLVED})
"""Events of agents that a person may have made."""

UNSAVED_LIMIT = 10_000
"""Events of one session that may wait in memory, while the store takes no more, before its turn is stopped."""
RETRY_EVENTS = 256
"""Events of those that are queued together. A store that is still full encodes no more of them for each new event."""


class SessionJournal:
    """The only writer of a session's journal.

    State: `sequence` and `event_id` of the last event; `native_session_id`, which new events carry; `is_closed`, after which
    nothing is written, since the session was deleted, or another server has taken it: `lost_to`.
    """

    def __init__(self, session_id: str, *, store: Store, clock: Clock, ids: Ids) -> None:
        self._session_id = session_id
        self._store = store
        self._clock = clock
        self._ids = ids
        self._burst: list[UniversalEvent] | None = None
        self._unsaved: list[UniversalEvent] = []
        self._failure = ""
        self.overflow: str | None = None
        """Why the store takes no events, if more than UNSAVED_LIMIT wait for it, else None."""
        self.sequence = 0
        self.event_id = ""
        self.native_session_id: str | None = None
        self.is_closed = False
        self.lost_to: ServerRef | None = None
        self.doers: dict[str, str] = {}
        """Who has answered a request, by its id, or has stopped the turn, until that is recorded."""
        self.on_queue: Callable[[], None] | None = None
        """Called before events are queued for the store, unless all are pieces of text (`write_pieces`), or if it takes none."""
        self._has_pieces_alone = True

    def write(
        self, type_: EventType, data: EventData, at_ms: int, *, source: Source, raw: Any, by: str | None = None
    ) -> UniversalEvent:
        """Stamp an event and queue it for the store. Raises TypeError if the payload does not belong to the event type.

        In: `by`, whose doing it is, if it is not for them that this task works.
        """
        if not isinstance(data, EVENT_DATA[type_]):
            raise TypeError(f"{type_} carries {EVENT_DATA[type_].__name__}, not {type(data).__name__}")
        if DOER.get() is not None and by is None and (source is Source.DAEMON or type_ in ANSWERS):
            by = doer()
        self.sequence += 1
        event = UniversalEvent.from_fields(
            {
                "event_id": self._ids.events(1, at_ms)[0],
                "sequence": self.sequence,
                "time": rfc3339(at_ms),
                "session_id": self._session_id,
                "native_session_id": self.native_session_id,
                "source": source,
                "synthetic": source is Source.DAEMON,
                "by": by,
                "type": type_,
                "data": data,
                "raw": raw,
            }
        )
        self.event_id = event.event_id
        self._has_pieces_alone = False
        if self._burst is not None:
            self._burst.append(event)
        else:
            self._queue((event,))
        return event

    def write_pieces(self, facts: Sequence[Fact], at_ms: int) -> list[UniversalEvent]:
        """Stamp pieces of text of the agent, all with one time, and queue them for the store."""
        time, session_id, native_session_id = rfc3339(at_ms), self._session_id, self.native_session_id
        ids = self._ids.events(len(facts), at_ms)
        stamped: list[dict[str, Any]] = []
        for sequence, (event_id, fact) in enumerate(zip(ids, facts, strict=True), self.sequence + 1):
            stamped.append(
                {
                    "event_id": event_id,
                    "sequence": sequence,
                    "time": time,
                    "session_id": session_id,
                    "native_session_id": native_session_id,
                    "source": Source.AGENT,
                    "synthetic": False,
                    "by": None,
                    "type": EventType.ITEM_DELTA,
                    "data": fact.data,
                    "raw": fact.raw,
                }
            )
        events = UniversalEvent.all_from_fields(stamped)
        self.sequence, self.event_id = events[-1].sequence, events[-1].event_id
        if self._burst is not None:
            self._burst += events
        else:
            self._queue(events)
        return events

    def copy(self, event: UniversalEvent) -> UniversalEvent:
        """Write an event of another session's journal into this one, at its own time."""
        self.sequence += 1
        identity = {
            "event_id": self._ids.new("event"),
            "sequence": self.sequence,
            "session_id": self._session_id,
            "native_session_id": None,
        }
        event = event.model_copy(update=identity)
        self.event_id = event.event_id
        self._has_pieces_alone = False
        self._queue((event,))
        return event

    def load(self, event: UniversalEvent) -> None:
        """Note an event that is in the journal already."""
        self.sequence, self.event_id = event.sequence, event.event_id
        self.native_session_id = event.native_session_id or self.native_session_id

    def __enter__(self) -> None:
        """Begin a burst: all events of the block are queued together, at its end. The block must not await."""
        if self._burst is None:  # else the inner burst ends the outer one
            self._burst = []

    def __exit__(self, *error: object) -> None:
        events, self._burst = self._burst, None
        if events:
            self._queue(events)

    def release(self) -> None:
        """Queue the events of a running burst, because the session's row must not be ahead of its journal."""
        if self._burst:
            events, self._burst = self._burst, []
            self._queue(events)

    def retry(self) -> None:
        """Queue again the events that the store did not take, as many as it takes now."""
        made_up = 0
        if self._unsaved and self.on_queue is not None:
            self.on_queue()
        while (some := self._unsaved[:RETRY_EVENTS]) and not self.is_closed:
            try:
                self._store.append(some)
            except StoreError as error:
                self._failure = str(error)
                self._note_overflow()
                return
            del self._unsaved[: len(some)]
            made_up += len(some)
        if made_up:
            log.info("store.append_made_up", session_id=self._session_id, events=made_up)
        self._unsaved = []
        self._note_overflow()

    def _note_overflow(self) -> None:
        self.overflow = self._failure if len(self._unsaved) > UNSAVED_LIMIT else None

    async def flush(self) -> None:
        """Wait until all events are stored. Raises StoreError, and SessionElsewhere if another server has taken the session."""
        if self.lost_to is not None:
            raise SessionElsewhere(self._session_id, self.lost_to)
        self.retry()
        if self._unsaved:
            raise StoreError(self._failure)
        await self._store.flush(self._session_id)

    @property
    def is_behind(self) -> bool:
        """Whether events wait here that the store does not have."""
        return bool(self._unsaved or self._burst)

    def _queue(self, events: Sequence[UniversalEvent]) -> None:
        """Queue events for the store.

        Events that the store does not take wait here, without raw payloads, and go first next time, because a journal has no
        holes. The store reports the failure at the next flush; the turn goes on meanwhile.
        """
        if self.is_closed:
            return
        if not self._has_pieces_alone and self.on_queue is not None:
            self.on_queue()
        self._has_pieces_alone = True
        if not self._unsaved:
            try:
                self._store.append(events)
            except StoreError as error:
                if self.on_queue is not None:
                    self.on_queue()
                log.error("store.append_failed", session_id=self._session_id, sequence=events[0].sequence, error=str(error))
                self._unsaved, self._failure = [event.model_copy(update={"raw": None}) for event in events], str(error)
                self._note_overflow()
            return
        self._unsaved += [event.model_copy(update={"raw": None}) for event in events]
        self.retry()
