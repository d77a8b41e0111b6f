"""The store in memory, without persistence. It is the reference for other stores, and useful for trials."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shim.lib.errors import StoreError
from shim.store.base import Checkpoint
from shim.store.ownership import Ownership
from shim.store.rows import EventRow, JsonText, SessionRow, dump, event_of, event_rows, follow, is_cut, load
from universal.events import UniversalEvent


class MemoryStore:
    """A `Store` in memory. It refuses the same calls as the store on disk."""

    def __init__(self) -> None:
        self._open = False
        self._sessions: dict[str, tuple[SessionRow, str]] = {}
        self._events: dict[str, list[UniversalEvent]] = {}
        self._values: dict[tuple[str, str], str] = {}
        self._checkpoints: dict[str, Checkpoint] = {}
        self._pages: dict[str, dict[int, bytes]] = {}
        self._ownership = Ownership()

    @property
    def ownership(self) -> Ownership:
        """The sole ownership, because no other server sees this store."""
        return self._ownership

    def announce(self, url: str) -> None:
        """Does nothing: there are no other servers."""

    async def open(self) -> None:
        """Open the store. Raises StoreError if it is open already."""
        if self._open:
            raise StoreError("The store is open already.")
        self._open = True

    async def close(self) -> None:
        """Close the store. May be called again."""
        self._open = False

    def append(self, events: Sequence[UniversalEvent]) -> None:
        """Add to the journals. Raises StoreError, and adds nothing, if a sequence is not the next one."""
        self._check_open()
        follow({event.session_id: len(self._events.get(event.session_id, ())) for event in events}, events)
        rows = event_rows(events)  # values that a disk could not hold are refused here too
        for event, row in zip(events, rows, strict=True):
            if row.raw is not None and is_cut(row.raw):
                event = event_of(row)
            self._events.setdefault(event.session_id, []).append(event)

    def save_session(self, row: SessionRow) -> None:
        self._check_open()
        self._sessions[row.id] = (row._replace(data={}), dump(dict(row.data), f"session {row.id}"))

    def delete_session(self, session_id: str) -> None:
        """Remove a session, its journal and its checkpoint. An unknown id is ignored."""
        self._check_open()
        self._sessions.pop(session_id, None)
        self._events.pop(session_id, None)
        self._checkpoints.pop(session_id, None)
        self._pages.pop(session_id, None)

    def save_checkpoint(
        self, session_id: str, checkpoint: Checkpoint, pages: Mapping[int, bytes], dropped: Collection[int] = ()
    ) -> None:
        self._check_open()
        old = self._pages.get(session_id, {})
        self._pages[session_id] = {number: body for number, body in old.items() if number not in dropped} | dict(pages)
        self._checkpoints[session_id] = checkpoint

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        """The newest checkpoint, or None."""
        self._check_open()
        found = self._checkpoints.get(session_id)
        return None if found is None else replace(found, pages=frozenset(self._pages[session_id]))

    def checkpoint_page(self, session_id: str, number: int) -> bytes | None:
        """A page of the checkpoint, or None."""
        self._check_open()
        return self._pages.get(session_id, {}).get(number)

    def set_value(self, namespace: str, key: str, value: Any) -> None:
        """Set a small value; None removes it."""
        self._check_open()
        if value is None:
            self._values.pop((namespace, key), None)
        else:
            self._values[namespace, key] = dump(value, f"value {namespace}/{key}")

    def room(self) -> None:
        """None: there is always room."""

    async def flush(self, session_id: str | None = None) -> None:
        self._check_open()

    async def require_writable(self, session_id: str) -> None:
        self._check_open()

    async def sessions(self) -> list[SessionRow]:
        self._check_open()
        return [row._replace(data=JsonText(data, row.id)) for row, data in self._sessions.values()]

    async def events(self, session_id: str, after: int = 0, limit: int | None = None) -> list[UniversalEvent]:
        """The journal from `after` on, at most `limit` events."""
        self._check_open()
        events = self._events.get(session_id, [])[max(after, 0) :]
        return events if limit is None else events[: max(limit, 0)]

    async def rows(self, session_id: str, after: int = 0, limit: int | None = None, *, with_raw: bool = True) -> list[EventRow]:
        rows = event_rows(await self.events(session_id, after, limit))
        return rows if with_raw else [row._replace(raw=None) for row in rows]

    async def brief(self, session_id: str, after: int, limit: int) -> list[EventRow]:
        return await self.rows(session_id, after, limit, with_raw=False)

    def last_sequence(self, session_id: str) -> int:
        self._check_open()
        return len(self._events.get(session_id, []))

    async def values(self, namespace: str) -> dict[str, Any]:
        self._check_open()
        return {key: load(text, f"value {space}/{key}") for (space, key), text in self._values.items() if space == namespace}

    async def namespaces(self) -> list[str]:
        self._check_open()
        return list({space for space, _ in self._values})

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError("The store is not open. This is a bug of the server.")
