"""Event streams that go on over the death of their server: what a client has missed is read from the journals.

A position names an event of a journal (`JournalPositions` in `shim.sessions.feed`). The ids of a server's events ascend over all
journals, in the order in which they are shown, and each piece of a run keeps its own (`shim.store.runs`). So a place is found
again after any restart. Pieces of text that came together are one event of a face, at the place of the last.

If the event is not in a journal, its server died before it was stored: then the client must read everything again, as for an
unknown id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import structlog

from shim.lib.errors import StoreError
from shim.lib.ids import Ids
from shim.sessions.feed import ChangeFeed, JournalPositions, ReaderPlace, SessionChanges, digits_of
from shim.sessions.history.journal_loader import SLICE_S, load_journal
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.session.session_state import SessionState
from shim.store.base import OrderedStore
from shim.store.rows import EventRow, RowPlace, event_of
from shim.stream.encoder import Encoder, StreamEvent
from shim.stream.frame import Frame, Scope
from shim.stream.hub import LOGGED_CHARS, Hub, wants
from shim.stream.streams import Greeting, MustReadAll, Streams
from shim.stream.subscription import Subscription
from universal.lib.ids import COUNTER_SPAN, MASK

REPLAY_S = 5.0
"""Maximum seconds in which what a client has missed is read."""
MISSED_EVENTS = 4_096
"""Maximum events of all journals that are sent again."""
NEAR = 1_000 * COUNTER_SPAN
"""Distance of ids that are stored in another order than they were made, at most: a second. They are of one turn of the loop."""

log = structlog.get_logger()


def distance(event_id: str, digits: str) -> int:
    """How much later an event was made than the one of these digits; negative if earlier. Ids wrap (`universal.lib.ids`)."""
    ahead = (int(digits_of(event_id), 16) - int(digits, 16)) & MASK
    return ahead if ahead <= MASK // 2 else ahead - MASK - 1


class _Gap(NamedTuple):
    """Rows of a session that a client may have missed. Of the one `known` it has seen the first events of its face."""

    session_id: str
    first: int
    last: int
    known: int = 0


class _MissedEvent(NamedTuple):
    """A missed event. `at`: how much later than what the client has seen; `subject`: the request that it is about."""

    at: int
    subject: tuple[str, str] | None
    frame: Frame


@dataclass(eq=False)
class JournalStreams(Streams):
    """The `Streams` of a server whose turns outlive it.

    In: `is_ours`, whether no other living server has a session; `new_state` makes an empty state that publishes nothing.
    """

    _store: OrderedStore
    _ids: Ids
    _index: SessionIndex
    _is_ours: Callable[[str], bool]
    _new_state: Callable[[str, str], SessionState]

    async def positions(self) -> JournalPositions:
        """The positions for this server's hub. Raises StoreError."""
        newest = [place.event_id for place in await self._store.newest(lambda event_id: True, 1)]
        return JournalPositions(newest[0] if newest else "")

    async def subscribe(
        self,
        hub: Hub,
        encoder: Encoder[Any],
        *,
        last_event_id: str | None,
        scope: Scope = None,
        greeting: Greeting = lambda is_shown: (),
    ) -> Subscription:
        """Add a reader, also one of a server that has died. As `Hub.subscribe`.

        If it can go on, the `id:` of `server.connected` is the one that it has sent.
        """
        seen = None if last_event_id is None else ReaderPlace.decode(last_event_id)
        if last_event_id is not None and seen is not None and not hub.knows(encoder.face, last_event_id):
            try:
                async with asyncio.timeout(REPLAY_S):
                    return await self._go_on(hub, encoder, seen, last_event_id, scope, greeting)
            except (MustReadAll, StoreError, TimeoutError, ValueError) as error:
                wire = encoder.generation
                log.info("replay.read_all", wire=wire, last_event_id=last_event_id[:LOGGED_CHARS], scope=scope, why=repr(error))
        return await super().subscribe(hub, encoder, last_event_id=last_event_id, scope=scope, greeting=greeting)

    async def _go_on(
        self, hub: Hub, encoder: Encoder[Any], seen: ReaderPlace, last_event_id: str, scope: Scope, greeting: Greeting
    ) -> Subscription:
        """Add a reader that has seen this. Raises MustReadAll, StoreError, and ValueError for ids of another form."""
        gaps = await self._gaps(seen)

        def is_shown(session_id: str) -> bool:  # how a turn has ended, the replay tells
            entry = self._index.find(session_id)
            return session_id not in gaps or (entry is not None and entry.state is not None and entry.state.machine.busy)

        # All in one step of the loop: later events come by themselves.
        until = digits_of(self._ids.moment())
        subscription = hub.subscribe(encoder, scope=scope, position=last_event_id)
        try:
            opening = hub.encode_greeting(subscription, greeting(is_shown))
            missed: list[_MissedEvent] = []
            for gap in (await self._gaps(seen)).values():
                missed += await self._read(hub, encoder, gap, seen, until, subscription.scope)
        except BaseException:  # a client that has gone must not stay a reader
            subscription.close()
            raise
        replayed = {event.subject for event in missed} - {None}
        missed.sort(key=lambda event: event.at)
        subscription.extend_opening(event.frame for event in missed)
        subscription.extend_opening(frame for subject, frame in opening if subject not in replayed)
        return subscription

    async def _gaps(self, seen: ReaderPlace) -> dict[str, _Gap]:
        """Session -> the rows that a client may have missed. Raises MustReadAll, StoreError."""
        near = await self._store.newest(lambda id_: distance(id_, seen.id) < -NEAR, MISSED_EVENTS)
        last = await self._find(seen, near)
        gap = _Gap(last.session_id, last.sequence, last.sequence, last.sequence)
        gaps = {last.session_id: gap if seen.shown else gap._replace(first=last.sequence + 1, known=0)}
        for session_id, first, end, event_id in near:
            if distance(event_id, seen.id) > 0:
                gap = gaps.get(session_id) or _Gap(session_id, first, end)
                begin = gap.first if session_id == last.session_id else min(gap.first, first)
                gaps[session_id] = gap._replace(first=begin, last=max(gap.last, end))
        gaps = {id_: gap for id_, gap in gaps.items() if self._index.find(id_) is not None and self._is_ours(id_)}
        if sum(gap.last - gap.first + 1 for gap in gaps.values()) > MISSED_EVENTS:
            raise MustReadAll("too many events")
        return gaps

    async def _find(self, seen: ReaderPlace, near: Sequence[RowPlace]) -> EventRow:
        """The last event that a client has seen. Raises MustReadAll, StoreError."""
        for place in near:
            if abs(distance(place.event_id, seen.id)) <= NEAR:
                for row in await self._rows(place.session_id, place.first, place.last):
                    if digits_of(row.event_id) == seen.id:
                        return row
        raise MustReadAll("what it has seen is not stored")

    async def _rows(self, session_id: str, first: int, last: int) -> list[EventRow]:
        return await self._store.rows(session_id, first - 1, last - first + 1, with_raw=False)

    async def _read(
        self, hub: Hub, encoder: Encoder[Any], gap: _Gap, seen: ReaderPlace, until: str, scope: Scope
    ) -> list[_MissedEvent]:
        """Read and encode the events of a session after what a client has seen, and before an id."""
        rows = [row for row in await self._rows(gap.session_id, gap.first, gap.last) if distance(row.event_id, until) < 0]
        rows = [row for row in rows if row.sequence == gap.known or distance(row.event_id, seen.id) > 0]
        found: list[_MissedEvent] = []
        async for row, number, event in self._events(hub, encoder.face, gap.session_id, rows):
            if row.sequence == gap.known and number <= seen.shown:
                continue
            id_ = digits_of(row.event_id)
            frame = encoder.encode(event, f"evt_{id_}{number:02x}", ReaderPlace(id_, number).encode())
            if frame is not None and wants(scope, event.scope):
                found.append(_MissedEvent(distance(row.event_id, seen.id), event.subject, frame))
        return found

    async def _events(
        self, hub: Hub, face: str, session_id: str, rows: Sequence[EventRow]
    ) -> AsyncGenerator[tuple[EventRow, int, StreamEvent]]:
        """What a face makes of these events of a session, and its number among those of its event. Raises StoreError."""
        state = self._new_state(session_id, self._index.agent_of(session_id))
        if rows:
            await load_journal(state, self._store, until=rows[0].sequence - 1)
        changes: list[SessionChanges] = []
        feed = ChangeFeed()
        feed.observe(changes.append)
        pause_at = perf_counter() + SLICE_S
        for row in rows:
            state.show(event_of(row, with_raw=False), feed)
            events = [event for change in changes for event in hub.render(face, change)]
            changes.clear()
            for number, event in enumerate(events, 1):
                yield row, number, event
            if perf_counter() > pause_at:
                await asyncio.sleep(0)  # other requests go on
                pause_at = perf_counter() + SLICE_S
