"""The ownership of sessions among servers that share a store.

A session belongs to the server that created it or loaded it first, until that server ends. Only its owner writes its journal and
its row; other servers show the stored state. Implementations differ in how servers find each other: `shim.store.sqlite` uses
locks on files of the shared data directory (docs/adr/0027), `shim.cluster.nats` keys that expire (docs/adr/0031).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shim.store.rows import SessionRow
from shim.store.servers import ServerRef


@dataclass(frozen=True, slots=True)
class SessionChange:
    """A change of a session by another server since the last look, or its deletion by any.

    row       None for a deleted session
    sequence  the last event of which the row tells; 0 for servers of one data directory
    """

    session_id: str
    owner: ServerRef
    row: SessionRow | None
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class LostSession:
    """A session of this server that another one has taken. This server's writes to it are refused.

    stored  the last event that this server has written; what the journal has behind it is of others
    """

    session_id: str
    owner: ServerRef
    stored: int


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A small value that another server has set; None: removed."""

    namespace: str
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Look:
    """Changes since the last look, and sessions that were taken. `ended`: ids of servers that have ended, each reported once.

    values  small values of other servers; only those of a cluster tell them
    back    sessions of servers that live, though they did not at the last look: they were paused or cut off for a while
    """

    changes: tuple[SessionChange, ...] = ()
    ended: tuple[str, ...] = ()
    lost: tuple[LostSession, ...] = ()
    values: tuple[ValueChange, ...] = ()
    back: tuple[tuple[str, ServerRef], ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimedSession:
    """The session belongs to this server now. `row`: its stored row, or None."""

    row: SessionRow | None


class Ownership:
    """The ownership of sessions. As it is, that of a server that shares its sessions with no other.

    All methods raise StoreError if the store cannot be read or written.
    """

    server_id: str = ""
    sessions_move: bool = False
    """Whether a session may go from one living server to another. In a cluster; not with one data directory."""

    def size_of(self, session_id: str) -> int | None:
        """About how many bytes the journal of a session takes. None if they are not counted."""
        return None

    def is_shared(self) -> bool:
        """Whether other servers were alive at the last look."""
        return False

    async def claim(self, session_id: str) -> ClaimedSession | ServerRef:
        """Claim a session for this server, or return the living server that owns it. May be repeated.

        Raises SessionNotFound in a cluster, for a session that was deleted or is not stored.
        """
        return ClaimedSession(None)

    async def release(self, session_id: str) -> None:
        """Give a session of this server to whoever claims it next, after all its writes. Raises SessionElsewhere.

        Where sessions do not move, nothing happens: the session goes to another server when this one ends.
        """

    def confirm_loss(self, session_id: str) -> None:
        """Note that nothing here works on a session any more that another server has taken. Until then, flushes of it fail."""

    async def owners(self) -> dict[str, ServerRef]:
        """Session -> the other living server that owns it."""
        return {}

    async def refresh(self, session_id: str) -> None:
        """Update the store's `last_sequence` for another server's journal."""

    async def look(self) -> Look:
        """The changes by other servers since the last look."""
        return Look()

    def dead(self) -> tuple[str, ...]:
        """Ids of servers that were dead at this server's start, and may have left processes behind."""
        return ()

    def forget(self, server_id: str) -> None:
        """Forget a dead server, of which nothing is left."""
