"""Reads from the journals what a client has missed that was cut off at another server, as changes that a face can render.

    prepare   waits until this server has shown what the client has seen, at most WAIT_S
    gaps      which events of which sessions it has missed, in the step of the event loop in which it becomes a reader here
    changes   the changes of these events, from a copy of the session as it was before the first of them

Later events come to the client by themselves, from the hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from time import perf_counter

import structlog

from shim.errors import StoreError
from shim.sessions.feed import ChangeFeed, SessionChanges
from shim.sessions.journal_loader import PAGE, SLICE_S, join_deltas, load_journal
from shim.sessions.other_servers import OtherServers
from shim.sessions.places import Places, Progress, Viewpoint, decode_viewpoint
from shim.sessions.session_index import SessionIndex
from shim.sessions.session_state import SessionState
from shim.store.base import Store
from shim.store.peers import Growth, Peers
from shim.store.rows import event_of

log = structlog.get_logger()

WAIT_S = 1.0
"""Maximum seconds to wait until this server has shown what the client has seen at another one. Events that the client has seen
and that were not stored before their server died never come."""
POLL_S = 0.02
"""Seconds between two looks at that."""
FETCHED = 8_192
"""Maximum messages of before this server's start that are read from the store."""
MISSED_EVENTS = 4_096
"""Maximum events of all journals that are sent again."""


class ReplayTooLong(Exception):
    """The client has missed too much. It reads the state anew."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The events of a session that a client has missed, from `start` to `end`.

    count  so many events of its face that `start` has made it has seen
    """

    session_id: str
    agent: str
    start: int
    count: int
    end: int


class Replays:
    """What clients of other servers have missed.

    In: `new_state` makes an empty state that publishes nothing.
    """

    def __init__(
        self,
        store: Store,
        index: SessionIndex,
        others: OtherServers,
        places: Places,
        peers: Peers,
        new_state: Callable[[str, str], SessionState],
    ) -> None:
        self._store = store
        self._index = index
        self._others = others
        self._places = places
        self._peers = peers
        self._new_state = new_state

    async def prepare(self, last_event_id: str) -> Viewpoint | None:
        """Decode what a client has seen, and wait until this server has shown it. None if it must read the state anew."""
        viewpoint = decode_viewpoint(last_event_id)
        if viewpoint is None or not await self._remembers(viewpoint):
            return None
        loop = asyncio.get_running_loop()
        until = loop.time() + WAIT_S
        while not self._has_shown(viewpoint) and loop.time() < until:  # noqa: ASYNC110 - three parts do that, one of them hot
            await asyncio.sleep(POLL_S)
        if any(growth.session_id not in self._index for growth in self._places.after(viewpoint.position)):
            await self._others.look_now()
        is_known = all(progress.may_be_lost or self._places.session_of(progress.tag) for progress in viewpoint.sessions)
        return viewpoint if is_known and self._places.position >= viewpoint.position else None

    async def _remembers(self, viewpoint: Viewpoint) -> bool:
        """Whether all messages after what the client has seen are remembered. Reads some from the store if they are not."""
        places = self._places
        if viewpoint.position >= places.since:
            return True
        if places.since - viewpoint.position > FETCHED:
            return False
        since = places.since
        try:
            growths = await self._peers.growths(viewpoint.position, since)
        except StoreError as error:
            log.warning("replay.not_read", error=str(error))
            return False
        if places.since == since:  # no other client has made it read them meanwhile
            places.remember_before(growths, viewpoint.position)
        return viewpoint.position >= places.since

    def _has_shown(self, viewpoint: Viewpoint) -> bool:
        if self._places.position < viewpoint.position or not self._places.has_shown(viewpoint.position):
            return False
        sessions = ((self._places.session_of(progress.tag), progress.last) for progress in viewpoint.sessions)
        return all(session_id is not None and self._last_published(session_id, 0) >= last for session_id, last in sessions)

    def _last_published(self, session_id: str, otherwise: int) -> int:
        """The last event of a session that readers of this server have got; later ones come to them by themselves."""
        shown = self._others.last_published(session_id)
        return shown if shown is not None else self._places.last_of(session_id) or otherwise

    def gaps(self, viewpoint: Viewpoint, is_wanted: Callable[[str], bool]) -> list[Gap]:
        """What a client has missed that becomes a reader now. In: whether it gets events of a directory. Raises ReplayTooLong."""
        written: dict[str, list[Growth]] = {}
        for growth in self._places.after(viewpoint.position):
            written.setdefault(growth.session_id, []).append(growth)
        progress = {self._places.session_of(session.tag): session for session in viewpoint.sessions}
        gaps: list[Gap] = []
        for session_id in dict.fromkeys((*progress, *written, *self._places.exception_ids())):
            entry = None if session_id is None else self._index.find(session_id)
            if session_id is None or entry is None or not is_wanted(entry.current_record.directory):
                continue
            start, count = _begin(progress.get(session_id), written.get(session_id, []), self._places.first_after(session_id))
            end = self._last_published(session_id, start - 1)
            if start <= end:
                gaps.append(Gap(session_id, self._index.agent_of(session_id), start, count, end))
        if sum(gap.end - gap.start + 1 for gap in gaps) > MISSED_EVENTS:
            raise ReplayTooLong
        return gaps

    async def changes(self, gap: Gap) -> AsyncGenerator[SessionChanges]:
        """The changes of the missed events, in order. Raises StoreError."""
        state = self._new_state(gap.session_id, gap.agent)
        await load_journal(state, self._store, until=gap.start - 1)
        found: list[SessionChanges] = []
        feed = ChangeFeed()
        feed.observe(found.append)
        pause_at = perf_counter() + SLICE_S
        while state.sequence < gap.end:
            rows = await self._store.brief(gap.session_id, state.sequence, min(PAGE, gap.end - state.sequence))
            if not rows:
                return  # the session was deleted
            whole = 1 if gap.count and state.sequence < gap.start else 0  # of which a part was seen: it is joined with none
            for event in (*map(event_of, rows[:whole]), *join_deltas(rows[whole:])):
                state.show(event, feed)
                for change in found:  # rendered before the next event changes the session
                    yield change
                found.clear()
                if perf_counter() > pause_at:
                    await asyncio.sleep(0)
                    pause_at = perf_counter() + SLICE_S


def _begin(progress: Progress | None, written: list[Growth], shown: int | None) -> tuple[int, int]:
    """The first missed event, and how many events of its face were seen.

    In: the messages that were written since; the first event that is shown here and of which no word has come.

    Events that a server has shown and not stored are not in the journal if another owner has written others in their place.
    """
    if progress is None:
        first = next((growth.first for growth in written if growth.has_events), shown)
        return (1 << 62, 0) if first is None else (first, 0)
    if progress.may_be_lost:
        replaced = next((growth.first for growth in written if growth.epoch > progress.epoch), None)
        if replaced is not None and replaced <= progress.next:
            return replaced, 0
    return progress.next, progress.count
