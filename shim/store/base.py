"""What the server needs of a store. The journal of universal events is the truth; the rest is beside it.

Writes are queued and come back at once, in order; `flush` waits until all that was queued is on disk. A store
never loses an event that was flushed, also after `kill -9`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from shim.store.rows import EventRow
from universal.events import UniversalEvent

if TYPE_CHECKING:
    from shim.store.ownership import Ownership


@dataclass(frozen=True, slots=True)
class SessionRow:
    """What is kept of a session beside its journal. `data` is the session's own JSON (title, agent, ...)."""

    id: str
    directory: str
    project_id: str
    parent_id: str | None
    created_ms: int
    updated_ms: int
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A session as it was after the event `sequence` of its journal, in the form of `shim.sessions.checkpoints`.

    The store does not look into it. `pages` are the numbers of its pages.
    """

    sequence: int
    head: bytes
    pages: frozenset[int] = frozenset()


class Store(Protocol):
    """Sessions and their journals, and small values (`namespace`, `key`) such as discovered catalogues.

    Raises: StoreError, with what happened and what to do.
    """

    @property
    def ownership(self) -> Ownership:
        """Which of the sessions are this server's."""
        ...

    def announce(self, url: str) -> None:
        """Tell others who use the store where this server listens."""
        ...

    async def open(self) -> None:
        """Open or make it; migrate. Refuses a data directory that an older server holds."""
        ...

    async def close(self) -> None:
        """Flush and close."""
        ...

    def append(self, events: Sequence[UniversalEvent]) -> None:
        """Queue events for the journal, in order."""
        ...

    def save_session(self, row: SessionRow) -> None:
        """Queue an insert or update."""
        ...

    def delete_session(self, session_id: str) -> None:
        """Queue the removal of a session, its journal and its checkpoint."""
        ...

    def save_checkpoint(
        self, session_id: str, checkpoint: Checkpoint, pages: Mapping[int, bytes], dropped: Collection[int] = ()
    ) -> None:
        """Queue the session's checkpoint, in place of the one before: its head, its new pages, and the removal of `dropped` ones.

        All of it is on disk or nothing, and not before the events that were queued before it.
        """
        ...

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        """The session's newest checkpoint with the numbers of the pages that are there; None if there is none."""
        ...

    def checkpoint_page(self, session_id: str, number: int) -> bytes | None:
        """A page that was written before the newest checkpoint was read; None if it is gone.

        Blocks for one look-up in the database, and may be called in any thread. Raises StoreError.
        """
        ...

    def set_value(self, namespace: str, key: str, value: Any) -> None:
        """Queue a small JSON value; None removes it."""
        ...

    def room(self) -> Awaitable[None] | None:
        """None if it can take much more; else what to wait for before an agent is asked for more. Neither raises: a store
        that cannot write says so to whoever flushes, and nobody waits for it here.
        """
        ...

    async def flush(self) -> None:
        """Wait until everything queued so far is durable. Raises StoreError if it could not be written."""
        ...

    async def sessions(self) -> list[SessionRow]:
        """All rows, in no order."""
        ...

    async def events(self, session_id: str, after: int = 0, limit: int | None = None) -> list[UniversalEvent]:
        """The journal of a session: events with `sequence` > `after`, ascending, raw payloads included."""
        ...

    async def rows(self, session_id: str, after: int = 0, limit: int | None = None, *, with_raw: bool = True) -> list[EventRow]:
        """The same as stored texts, for the wire (`rows.wire_of`) or for `rows.event_of`; `with_raw`, with raw payloads."""
        ...

    async def brief(self, session_id: str, after: int, limit: int) -> list[EventRow]:
        """The same for who folds texts: without raw payloads, and pieces of text that stand together may be fewer, which add
        up to the same (`shim.store.stretches`). About `limit` rows; the last one's sequence is the next `after`.
        """
        ...

    def last_sequence(self, session_id: str) -> int:
        """How many events its journal has, the queued ones included; 0 for an unknown session."""
        ...

    async def values(self, namespace: str) -> dict[str, Any]:
        """All values of a namespace."""
        ...
