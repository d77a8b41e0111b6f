"""Which server a session belongs to, where several use the same sessions.

A session belongs to the server that has made it or loaded it first, until that server ends. Only its owner writes its journal
and its row; the others show what is stored. How servers find out about each other is up to the implementation: by locks on files
where they share a data directory (`shim.store.sqlite`, docs/adr/0027).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shim.store.base import SessionRow
from shim.store.servers import ServerRef


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What another server has stored of a session since the last look. `row` is None for one that it has deleted."""

    session_id: str
    owner: ServerRef
    row: SessionRow | None


@dataclass(frozen=True, slots=True)
class Look:
    """What has happened since the last look. `ended`: ids of servers that live no more, each told once."""

    changes: tuple[SessionChange, ...] = ()
    ended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimedSession:
    """The session belongs to this server now. `row` is what is stored of it, None if nothing is."""

    row: SessionRow | None


class Ownership(Protocol):
    """Raises StoreError when the store cannot be read or written."""

    @property
    def server_id(self) -> str:
        """This server's id."""
        ...

    def is_shared(self) -> bool:
        """Whether other servers lived at the last look."""
        ...

    async def claim(self, session_id: str) -> ClaimedSession | ServerRef:
        """Make a session this server's own, or say which living server has it. Again is fine."""
        ...

    async def owners(self) -> dict[str, ServerRef]:
        """The sessions that belong to other living servers."""
        ...

    async def refresh(self, session_id: str) -> None:
        """Let `last_sequence` of the store say how far another server's journal has come."""
        ...

    async def look(self) -> Look:
        """What other servers have done since the last look."""
        ...

    def dead(self) -> tuple[str, ...]:
        """Ids of servers that were dead when this one came, and may have left processes behind."""
        ...

    def forget(self, server_id: str) -> None:
        """Nothing of a dead server is left."""
        ...


class SoleOwner:
    """The ownership of a server that shares its sessions with nobody."""

    server_id = ""

    def is_shared(self) -> bool:
        """Nobody else is there."""
        return False

    async def claim(self, session_id: str) -> ClaimedSession | ServerRef:
        """Every session is this server's."""
        return ClaimedSession(None)

    async def owners(self) -> dict[str, ServerRef]:
        """Nobody else has any."""
        return {}

    async def refresh(self, session_id: str) -> None:
        """Nobody else writes."""

    async def look(self) -> Look:
        """Nothing happens."""
        return Look()

    def dead(self) -> tuple[str, ...]:
        """There was nobody before."""
        return ()

    def forget(self, server_id: str) -> None:
        """There is nothing to forget."""
