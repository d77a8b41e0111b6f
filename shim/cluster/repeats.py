"""Keeps from a client the events that it has seen at another server, while this server has not come so far.

    is_repeat   whether the client has seen the event that is being published
    position    what the client has seen, of both servers, for its next `Last-Event-ID`

Of a message of a journal that is shown here later, the client has seen all events if its number is not after the client's
position, but of the sessions of its position as they say. Bounded: a place for each session that is behind, and what the
positions of the client can name.

What an owner has shown and not stored may be lost with it: then others stand in its place, of a later epoch. A client that has
seen what is void is cut off: it comes again, and reads everything anew (`replays.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic

from shim.cluster.peers import Growth
from shim.cluster.places import EXCEPTIONS, Places, Progress, Viewpoint, encode_viewpoint, hash_of
from shim.stream.positions import SEPARATOR, local_part


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

    def end(self, tag: str, sequence: int) -> None:
        """An event was published."""
        if (limit := self._limits.get(tag)) is not None and sequence >= limit:
            del self._limits[tag]
        if (progress := self._unshown.get(tag)) is not None and sequence >= progress.last:
            del self._unshown[tag]

    def forget(self, tag: str) -> None:
        """The session is not published here any more."""
        self._limits.pop(tag, None)
