"""Reads a session's log: its durable events in OpenCode 2's form. Source: `SessionLogItem` of 2.0.21.

The log is not stored. The journal is replayed for each reader from its first event, so the log is always complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, NotRequired, TypeAlias, TypedDict

from shim.faces.opencode2.events import Event, EventJson
from shim.faces.opencode2.render import log_event
from shim.lib.clock import from_rfc3339
from shim.sessions.feed import Feed, Follower, wait_for_store
from shim.store.base import Store
from universal.events import UniversalEvent
from universal.session.log import LogAppended
from universal.session.reducer import Reducer, reducer_of

LOG_SYNCED = "log.synced"


class LogSynced(TypedDict):
    """The item that says that the reader has all entries of before. `seq`: the last one's number."""

    type: Literal["log.synced"]
    aggregateID: str
    seq: NotRequired[int]


LogItem: TypeAlias = EventJson | LogSynced


class Log:
    """The items after the number `after`, then a mark that says that they are complete, then (`follow`) new ones.

    An item is (number, JSON value). In: `translate`, which converts an event to the reader's dialect, or returns None.
    """

    def __init__(
        self,
        feed: Feed,
        store: Store,
        session_id: str,
        *,
        after: int,
        follow: bool,
        translate: Callable[[Event], Event | None],
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._after = after
        self._follow = follow
        self._translate = translate
        self._reducer: Reducer | None = None
        self._synced = False
        self._last: int | None = None
        self._follower = Follower(feed, session_id, self._read, 0, wait_for_store(store, session_id))

    async def _read(self, after: int, limit: int) -> Sequence[UniversalEvent]:
        return await self._store.events(self._session_id, after, limit)

    @property
    def over(self) -> bool:
        """True if no item will follow."""
        return self._follower.over if self._follow else self._synced

    async def take(self, until: float | None = None) -> Sequence[tuple[int, LogItem]]:
        """Wait for the next items. Returns none at the loop time `until`, and when the log is `over`. Raises StoreError."""
        while True:
            now = asyncio.get_running_loop().time()
            events = await self._follower.take(until if self._synced else now)
            items = [item for event in events for item in self._items(event)]
            caught_up = not events or self._follower.position >= self._store.last_sequence(self._session_id)
            if not self._synced and caught_up:
                self._synced = True
                synced: LogSynced = {"type": LOG_SYNCED, "aggregateID": self._session_id}
                if self._last is not None:
                    synced["seq"] = self._last
                items.append((self._last or 0, synced))
            if items or not events:
                return items

    def close(self) -> None:
        """Release the log. May be called again."""
        self._follower.close()

    def _items(self, event: UniversalEvent) -> list[tuple[int, LogItem]]:
        if self._reducer is None:
            self._reducer = reducer_of(event)
        items: list[tuple[int, LogItem]] = []
        for change in self._reducer.apply(event, from_rfc3339(event.time)):
            if not isinstance(change, LogAppended) or change.number is None:
                continue
            self._last = change.number
            if change.number > self._after:
                translated = self._translate(log_event(change, self._reducer.session))
                items += [] if translated is None or translated.seq is None else [(change.number, translated.log())]
        return items
