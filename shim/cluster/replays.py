"""Reads from the journals what a client has missed that was cut off at another server, as changes that a face can render.

    prepare   waits until this server has shown what the client has seen, at most WAIT_S
    gaps      which events of which sessions it has missed, in the step of the event loop in which it becomes a reader here
    repeats   in the same step: what it has seen and this server has not shown yet
    changes   the changes of these events, from a copy of the session as it was before the first of them

Later events come to the client by themselves, from the hub, without the repeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import monotonic, perf_counter

import structlog

from shim.cluster.peers import Growth, Peers
from shim.cluster.places import EXCEPTIONS, STORED, Places, Progress, Viewpoint, decode_viewpoint, encode_viewpoint, hash_of
from shim.cluster.remote_sessions import RemoteSessions
from shim.lib.errors import StoreError, StoreUnavailable
from shim.sessions.feed import ChangeFeed, SessionChanges
from shim.sessions.history.journal_loader import PAGE, SLICE_S, join_deltas, load_journal
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.session.session_state import SessionState
from shim.store.base import Store
from shim.store.rows import event_of
from shim.stream.encoder import SEPARATOR, local_part
from shim.stream.streams import MustReadAll

log = structlog.get_logger()

WAIT_S = 1.0
"""Maximum seconds to wait until this server has shown what the client has seen at another one. What it has not shown by then is
kept from the client when it comes. Events that were not stored before their server died never come."""
ANEW_S = 5.0
"""Maximum seconds to wait until this server has shown all that is stored, before a client reads everything anew here."""
WORD_S = 0.1
"""Seconds after which messages of journals are read of which no word has come."""
KEEP_S = 15.0
"""Seconds in which a server that was paused, cut off or started finds out what it has not shown: longer than a lease."""
POLL_S = 0.02
"""Seconds between two looks at that."""
FETCHED = 8_192
"""Maximum messages of before this server's start that are read from the store."""
MISSED_EVENTS = 4_096
"""Maximum events of all journals that are sent again."""
NEVER = 1 << 62
"""The sequence of no event."""


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

    In: `look_now` looks at what other servers have done; `new_state` makes an empty state that publishes nothing.
    """

    def __init__(
        self,
        store: Store,
        index: SessionIndex,
        remotes: RemoteSessions,
        look_now: Callable[[], Awaitable[None]],
        places: Places,
        peers: Peers,
        new_state: Callable[[str, str], SessionState],
    ) -> None:
        self._store = store
        self._index = index
        self._remotes = remotes
        self._look_now = look_now
        self._places = places
        self._peers = peers
        self._new_state = new_state

    async def prepare(self, last_event_id: str) -> Viewpoint | None:
        """Decode what a client has seen, and wait until this server has shown it. None if it must read the state anew."""
        viewpoint = decode_viewpoint(last_event_id)
        if viewpoint is None or not await self._remembers(viewpoint):
            return None
        await self._catch_up(viewpoint, WAIT_S)
        places = self._places
        if any(growth.session_id not in self._index for growth in places.after(viewpoint.position)):
            await self._look_now()
        self._learn({progress.tag for progress in viewpoint.sessions if places.session_of(progress.tag) is None})
        is_behind = places.position < viewpoint.position
        is_known = all(progress.may_be_lost or places.session_of(progress.tag) for progress in viewpoint.sessions)
        return viewpoint if is_known or is_behind else None

    def _learn(self, tags: set[str]) -> None:
        """Find the sessions of these tags of which no message was noted: since this server's start nothing was stored of them."""
        for session_id in (entry.record.id for entry in self._index) if tags else ():
            if hash_of(session_id) in tags:
                self._places.learn(session_id)

    async def catch_up(self, last_event_id: str) -> None:
        """Wait until this server has shown all that is stored and that the client has seen, since it reads all anew here.

        Else it would get the end of a turn again that it has seen. Raises StoreUnavailable if this server stays behind; but not
        for sessions that it cannot read, nor for what is never stored, because its owner is lost or the session is deleted.
        """
        newest = await self._peers.newest()
        seen = (decode_viewpoint(last_event_id) or Viewpoint(0)).sessions
        await self._catch_up(Viewpoint(newest, tuple(progress for progress in seen if not self._is_lost(progress))), ANEW_S)
        unshown = [session_id for session_id in self._places.unshown(newest) if not self._remotes.is_failing(session_id)]
        if self._places.position < newest or unshown or any(map(self._is_unstored, seen)):
            raise StoreUnavailable(
                "This server has not read yet what the others have stored, or what this client has seen is not stored yet. Try"
                " again, or at another server."
            )

    def _is_unstored(self, progress: Progress) -> bool:
        """Whether what a client has seen of a session of a server that lives is still to be stored."""
        session_id = self._places.session_of(progress.tag)
        if session_id is None or session_id not in self._index or self._is_lost(progress):
            return False
        return self._store.last_sequence(session_id) < progress.last

    async def _catch_up(self, viewpoint: Viewpoint, limit_s: float) -> None:
        """Wait until all messages were noted of which this server knows, and shown what the client has seen."""
        places, loop = self._places, asyncio.get_running_loop()
        newest = max(viewpoint.position, places.newest)
        begin, is_read = loop.time(), False
        while loop.time() < begin + limit_s:
            if places.position >= newest and self._has_shown(viewpoint):
                return
            if not is_read and places.position < newest and loop.time() >= begin + WORD_S:
                is_read = True
                await self._read_words(newest, begin + limit_s)
            else:
                await asyncio.sleep(POLL_S)

    async def _read_words(self, newest: int, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._remotes.read_words(newest)
        except (StoreError, TimeoutError) as error:
            log.warning("replay.words_not_read", error=repr(error))

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
        shown = self._remotes.last_published(session_id)
        if shown is None and session_id not in self._index:  # no look has shown it, so its events are still to come
            shown = self._places.last_shown(session_id)
        return shown if shown is not None else self._places.last_of(session_id) or otherwise

    def gaps(self, viewpoint: Viewpoint, is_wanted: Callable[[str], bool]) -> list[Gap]:
        """What a client has missed that becomes a reader now. In: whether it gets events of a directory. Raises MustReadAll."""
        written: dict[str, list[Growth]] = {}
        for growth in self._places.after(viewpoint.position):
            written.setdefault(growth.session_id, []).append(growth)
        progress = {self._places.session_of(session.tag): session for session in viewpoint.sessions}
        gaps: list[Gap] = []
        for session_id in dict.fromkeys((*progress, *written, *self._places.exception_ids())):
            entry = None if session_id is None else self._index.find(session_id)
            if session_id is None or entry is None or not is_wanted(entry.current_record.directory):
                continue
            seen = progress.get(session_id)
            if seen is not None:
                seen = self._without_doubt(seen, session_id)
                start, count = seen.next, seen.count
            else:
                start, count = _first_of(written.get(session_id, []), self._places.first_after(session_id)), 0
            end = self._last_published(session_id, start - 1)
            if self._remotes.last_published(session_id) is None:  # perhaps all of it is from before this server's start
                end = max(end, entry.row_sequence)
            if start <= end:
                if seen is None and not self._follows(session_id, start, viewpoint.position):
                    raise MustReadAll(f"no word of the events of {session_id} before {start}")
                self._remotes.note_replayed(session_id, end)
                gaps.append(Gap(session_id, self._index.agent_of(session_id), start, count, end))
        if (count := sum(gap.end - gap.start + 1 for gap in gaps)) > MISSED_EVENTS:
            raise MustReadAll(f"{count} events")
        return gaps

    def _is_lost(self, progress: Progress) -> bool:
        """Whether what a client has seen of a session will never be shown here."""
        session_id = self._places.session_of(progress.tag)
        try:
            return progress.is_void if session_id is None else self._without_doubt(progress, session_id).is_void
        except MustReadAll:
            return True

    def _without_doubt(self, progress: Progress, session_id: str) -> Progress:
        """What a client has seen of a session; as of the journal, if its owner has stored all of it before it was lost.

        Raises MustReadAll if a part is void: another owner has written others in the place of events that were never stored.
        """
        replaced = self._places.first_since(session_id, progress.epoch) if progress.may_be_lost else None
        if progress.may_be_lost and replaced is None and self._peers.is_orphan(session_id):
            replaced = self._store.last_sequence(session_id) + 1  # its next owner writes there
        if progress.is_void or (replaced is not None and replaced <= progress.last):
            raise MustReadAll(f"what it has seen of {session_id} was lost")
        return progress if replaced is None else replace(progress, epoch=STORED)

    def _follows(self, session_id: str, first: int, position: int) -> bool:
        """Whether no event of a session before `first` is missing after a position, because no word of it has come."""
        hole = self._places.hole()
        return hole is None or hole[1] <= position or first == self._places.last_until(session_id, position) + 1

    async def attend(self) -> None:
        """Hear at once what other servers write, because a client comes."""
        await self._remotes.attend()

    async def freshen_requests(self) -> None:
        """Let the open requests of other servers' sessions be as they are now."""
        await self._remotes.freshen_requests()

    def is_current(self, session_id: str) -> bool:
        """Whether a client that comes now may be shown what was read of a session."""
        return not self._remotes.is_stale(session_id)

    def repeats(self, viewpoint: Viewpoint, gaps: Sequence[Gap], is_wanted: Callable[[str], bool]) -> Repeats | None:
        """What the client has seen and this server has not shown. None if there is nothing. In: `gaps`, as they are now.

        Raises MustReadAll.
        """
        missed = {hash_of(gap.session_id): gap for gap in gaps}
        unshown: list[Progress] = []
        for progress in viewpoint.sessions:
            session_id = self._places.session_of(progress.tag)
            entry = None if session_id is None else self._index.find(session_id)
            if progress.tag in missed or (entry is not None and not is_wanted(entry.current_record.directory)):
                continue  # what comes after the gap is new
            rest = progress if session_id is None else self._without_doubt(progress, session_id)
            is_taken = entry is not None and entry.state is not None and self._is_taken(entry.record.id, progress)
            if session_id is None or is_taken or self._last_published(session_id, 0) < rest.last:
                unshown.append(rest)
        sent = [Progress(tag, gap.end + 1, 0, STORED) for tag, gap in missed.items()]
        repeats = Repeats(self._places, viewpoint, unshown, sent, KEEP_S)
        return None if repeats.is_over else repeats

    def _is_taken(self, session_id: str, progress: Progress) -> bool:
        """Whether the client has seen events of a later owner of a session that is still loaded here."""
        return progress.may_be_lost and progress.epoch > self._peers.epoch_of(session_id)

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
                    await asyncio.sleep(0)  # other requests go on
                    pause_at = perf_counter() + SLICE_S


def _first_of(written: Sequence[Growth], shown: int | None) -> int:
    """The first missed event of a session of which the client has seen all up to its position, or one that never comes.

    In: the messages that were written since; the first event that is shown here and of which no word has come.
    """
    first = next((growth.first for growth in written if growth.has_events), shown)
    return NEVER if first is None else first


# --- repeats ---------------------------------------------------------------------------------------------

# Keeps from a client the events that it has seen at another server, while this server has not come so far.
#
#     is_repeat   whether the client has seen the event that is being published
#     position    what the client has seen, of both servers, for its next `Last-Event-ID`
#
# Of a message of a journal that is shown here later, the client has seen all events if its number is not after the client's
# position, but of the sessions of its position as they say. Bounded: a place for each session that is behind, and what the
# positions of the client can name.
#
# What an owner has shown and not stored may be lost with it: then others stand in its place, of a later epoch. A client that has
# seen what is void is cut off: it comes again, and reads everything anew (`replays.py`).


class Repeats:
    """What a client has seen that this server has not shown yet.

    In: `viewpoint`, what it has seen elsewhere; `unshown`, those of its sessions of which this server has shown less; `sent`, how
    far the sessions are of which it gets missed events here; `keep_s`, seconds in which this server may learn that it is behind.
    """

    def __init__(
        self,
        places: Places,
        viewpoint: Viewpoint,
        unshown: Iterable[Progress],
        sent: Iterable[Progress] = (),
        keep_s: float = 0.0,
    ) -> None:
        self._places = places
        self._until = monotonic() + keep_s
        self._viewpoint = viewpoint
        self._unshown = {progress.tag: progress for progress in unshown}
        self._named = {progress.tag for progress in viewpoint.sessions}
        self._limits: dict[str, int] = {}
        """Sessions that the position does not name -> the last event that the client has seen."""
        for session_id, last in places.unshown(viewpoint.position).items():
            if (tag := hash_of(session_id)) not in self._named:
                self._limits[tag] = last
        self._seen = {progress.tag: progress for progress in (*viewpoint.sessions, *sent)}
        """What differs from all messages up to the client's position."""
        self._is_over = self._is_void = False
        self._drop: Callable[[], object] | None = None
        places.watch(self)

    @property
    def is_over(self) -> bool:
        """Whether this server has shown all that the client has seen. It stays so."""
        if not self._is_over and not self._unshown and self._has_caught_up and monotonic() >= self._until:
            self._is_over = True
            self.close()
        return self._is_over

    @property
    def _has_caught_up(self) -> bool:
        return not self._limits and self._places.position >= self._viewpoint.position

    def is_behind(self, session_id: str) -> bool:
        """Whether the client may have seen more of a session than this server has shown."""
        tag = hash_of(session_id)
        return tag in self._unshown or tag in self._limits or self._places.position < self._viewpoint.position

    def close(self) -> None:
        """Forget it. May be called again."""
        self._places.unwatch(self)

    def bind(self, drop: Callable[[], object]) -> None:
        """Break the client's connection off with `drop`, if what it has seen was lost."""
        self._drop = drop

    def _void(self) -> None:
        if not self._is_void and self._drop is not None:
            asyncio.get_running_loop().call_soon(self._drop)
        self._is_void = True

    # --- for the hub -------------------------------------------------------------------------------------------------

    def is_repeat(self) -> bool:
        """Whether the client has seen the event that is being published. If not, it gets it."""
        event = self._places.current
        if self._is_void:
            return True
        if event is None or self._is_over:
            return False
        progress = self._unshown.get(event.tag)
        if progress is not None and progress.may_be_lost and event.epoch > progress.epoch:
            if event.sequence <= progress.last:
                self._void()
                return True
            del self._unshown[event.tag]
            progress = None
        if progress is not None and (event.sequence, event.number) < (progress.next, progress.count):
            return True
        if event.sequence <= self._limits.get(event.tag, 0):
            return True
        fresh = Progress(event.tag, event.sequence, event.number + 1, event.epoch)
        if event.tag in self._unshown:
            self._unshown[event.tag] = fresh
        if event.tag in self._seen or len(self._seen) <= EXCEPTIONS:  # more cannot be told to other servers
            self._seen[event.tag] = fresh
        return False

    def seams(self, tag: str) -> set[int]:
        """The events of a session after which no piece of text may be joined with one before."""
        found: set[int] = set()
        if (limit := self._limits.get(tag)) is not None:
            found.add(limit)
        if (progress := self._unshown.get(tag)) is not None:
            found |= {progress.next - 1, progress.last}
        return found

    def position(self, position: str) -> str:
        """What the client has seen, at this place in the stream of this server."""
        if self.is_over:
            return position
        if self._has_caught_up:
            return self._places.with_sessions(position, self._unshown)
        seen = Viewpoint(self._viewpoint.position, tuple(self._seen.values()))
        return local_part(position) + SEPARATOR + encode_viewpoint(seen)

    # --- as `Watcher` ------------------------------------------------------------------------------------------------

    def note(self, growth: Growth, tag: str, shown: int | None) -> None:
        """Take up what a message says: events that the client has seen, or others in the place of lost ones."""
        progress = self._unshown.get(tag)
        if progress is not None and progress.may_be_lost and growth.epoch > progress.epoch and growth.first <= progress.last:
            self._void()
        is_awaited = growth.has_events and shown is not None and shown < growth.last
        if is_awaited and growth.position <= self._viewpoint.position and tag not in self._named:
            self._limits[tag] = max(growth.last, self._limits.get(tag, 0))

    def orphans(self, is_orphan: Callable[[str], bool]) -> None:
        """Cut the client off if it has seen events that are not stored, and whose server lives no more."""
        sessions = ((progress, self._places.session_of(tag)) for tag, progress in self._unshown.items() if progress.may_be_lost)
        if any(session_id is not None and is_orphan(session_id) for _, session_id in sessions):
            self._void()

    def end(self, tag: str, sequence: int) -> None:
        """An event was published."""
        if (limit := self._limits.get(tag)) is not None and sequence >= limit:
            del self._limits[tag]
        if (progress := self._unshown.get(tag)) is not None and sequence >= progress.last:
            del self._unshown[tag]

    def forget(self, tag: str) -> None:
        """The session is not published here any more."""
        self._limits.pop(tag, None)
