"""The interface of a store: sessions, their journals and checkpoints, and small values. The journal is the truth.

Writes are queued in order and return at once. `flush` waits until all queued writes are on disk. A store never loses a flushed
event, also after `kill -9`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from shim.store.ownership import Ownership
from shim.store.rows import EventRow, RowPlace, SessionRow
from universal.events import UniversalEvent

TERMINALS = "terminals"
"""A namespace: terminal that outlives its server -> what the next one must know of it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a session after the event `sequence` of its journal, in the form of `shim.sessions.history.checkpoints`.

    The store does not read it. `pages` are the numbers of its pages.
    """

    sequence: int
    head: bytes
    pages: frozenset[int] = frozenset()


class Store(Protocol):
    """Sessions and their journals, and small values (`namespace`, `key`) such as discovered catalogues.

    Raises: StoreError, with what happened and what to do.
    """

    @property
    def ownership(self) -> Ownership: ...

    def announce(self, url: str) -> None:
        """Tell other servers on the store where this server listens."""
        ...

    async def open(self) -> None:
        """Open or create the store, and migrate it. Refuses a data directory that an older server uses."""
        ...

    async def close(self) -> None: ...

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
        """Queue the session's checkpoint in place of the one before: its head, its new pages, and the removal of `dropped` ones.

        It is written completely or not at all, and not before the events that were queued earlier.
        """
        ...

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        """The session's newest checkpoint with the numbers of its existing pages, or None."""
        ...

    def checkpoint_page(self, session_id: str, number: int) -> bytes | None:
        """A page that was written before the newest checkpoint was read, or None if it is gone.

        Blocks for one look-up on this machine's disk, never for the network, and may be called in any thread. Raises StoreError.
        """
        ...

    def set_value(self, namespace: str, key: str, value: Any) -> None:
        """Queue a small JSON value; None removes it."""
        ...

    def room(self) -> Awaitable[None] | None:
        """None if the store has room, else an awaitable, to await before more output of an agent is read. Neither raises: a
        failing store reports that at `flush`, and is not waited for here.
        """
        ...

    async def flush(self, session_id: str | None = None) -> None:
        """Wait until everything queued so far is durable, or at least all of one session.

        Raises StoreError if it could not be written, and SessionElsewhere if another server has taken the session meanwhile.
        """
        ...

    async def require_writable(self, session_id: str) -> None:
        """Raise what `flush` would, as far as the store knows that it cannot write this session.

        A write that failed is tried again first. Writes that have not failed are not waited for on this machine's disk.
        """
        ...

    async def sessions(self) -> list[SessionRow]:
        """All rows, in no order."""
        ...

    async def events(self, session_id: str, after: int = 0, limit: int | None = None) -> list[UniversalEvent]:
        """The journal of a session: events with `sequence` > `after`, ascending, raw payloads included."""
        ...

    async def rows(self, session_id: str, after: int = 0, limit: int | None = None, *, with_raw: bool = True) -> list[EventRow]:
        """The journal as stored texts, for the wire (`rows.wire_of`) or for `rows.event_of`. `with_raw`: with raw payloads."""
        ...

    async def brief(self, session_id: str, after: int, limit: int) -> list[EventRow]:
        """The journal without raw payloads, and with the pieces of each run joined (`shim.store.runs`), for a rebuild.
        About `limit` rows; the last one's sequence is the next `after`.
        """
        ...

    def last_sequence(self, session_id: str) -> int:
        """Number of events in its journal, including queued ones; 0 for an unknown session."""
        ...

    async def values(self, namespace: str) -> dict[str, Any]: ...

    async def namespaces(self) -> list[str]:
        """The namespaces that have values, in no order."""
        ...


@runtime_checkable
class OrderedStore(Store, Protocol):
    """A store that knows the order of the rows of all its journals."""

    async def newest(self, is_enough: Callable[[str], bool], limit: int) -> list[RowPlace]:
        """The rows of all journals, the newest first, up to one whose id `is_enough`, or to `limit` events."""
        ...
