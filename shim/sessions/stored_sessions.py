"""Sessions of other servers: what is asked of them, and how they are read from the store when somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from shim.lib.errors import SessionElsewhere
from shim.sessions.history.journal_loader import load_journal
from shim.sessions.index.session_entry import SessionEntry
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.session_state import SessionState
from shim.store.servers import ServerRef
from universal.session.model import Session

KEPT = 64
"""Number of sessions of other servers whose last read state is kept in memory, beside those with a running turn."""


NewState: TypeAlias = Callable[[str, str], SessionState]
"""Makes an empty state that publishes nothing itself, of a session (id) of an agent."""


@dataclass(slots=True)
class Reading:
    """A session of another server, as it was last read."""

    state: SessionState
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_idle(self) -> bool:
        """Whether no turn runs, and nothing is being read."""
        return not self.state.machine.busy and not self.lock.locked()


ReadingT = TypeVar("ReadingT", bound=Reading)


class StoredSessions(Generic[ReadingT]):
    """The sessions of other servers, from the view of this one. Rows and owners are `OtherServers`' matter.

    As it is here, servers share a data directory: they are silent, and only their rows tell that something is new.
    `shim.cluster.remote_sessions` is told more. In: `make`, which makes a reading of an empty state.
    """

    def __init__(
        self,
        deps: SessionDeps,
        new_state: NewState,
        on_read: Callable[[Session], None],
        make: Callable[[SessionState], ReadingT],
    ) -> None:
        self._deps = deps
        self._new_state = new_state
        self._on_read = on_read
        self._make = make
        self._ownership = deps.store.ownership
        self._remotes: dict[str, ReadingT] = {}

    async def start(self, look_soon: Callable[[], None]) -> None:
        """Hear from now on what other servers tell. In: `look_soon`, called when there is something new to look at."""

    async def close(self) -> None:
        """Stop reading. Nothing to do here: who asks awaits what is read."""

    def find(self, session_id: str) -> SessionState | None:
        """The state of a session as it was last read, or None."""
        remote = self._remotes.get(session_id)
        return None if remote is None else remote.state

    async def state(self, entry: SessionEntry) -> SessionState:
        """The stored state of a session as it is now. Nothing is written. Raises StoreError."""
        remote = self._get(entry)
        async with remote.lock:
            if remote.state.stored.is_damaged:  # its server has written other pages in the meantime
                self._renew(entry, remote)
            await self._ownership.refresh(entry.record.id)
            await self._advance(entry, remote)
        return remote.state

    def _renew(self, entry: SessionEntry, remote: ReadingT) -> None:
        """Begin at the first event again."""
        remote.state = self._new_state(entry.record.id, entry.agent)

    async def _advance(self, entry: SessionEntry, remote: ReadingT) -> None:
        before = remote.state.sequence
        await load_journal(remote.state, self._deps.store, until=None)
        if remote.state.sequence != before:
            self._on_read(remote.state.session)

    def with_turn(self) -> list[str]:
        """Ids of the sessions that are followed and in which a turn runs, as far as they were read."""
        return []

    def with_requests(self) -> list[str]:
        """Ids of the sessions that had open requests when they were last read."""
        sessions = (remote.state.session for remote in self._remotes.values())
        return [session.id for session in sessions if session.permissions or session.questions]

    def note_new(self, entry: SessionEntry, sequence: int) -> bool:
        """Note a session that was not known. Out: whether clients must be told of it.

        In: `sequence`, the last event of which its row tells.
        """
        self.forget(entry.record.id)
        return True

    def note_row(self, entry: SessionEntry, sequence: int) -> bool:
        """Note that the row of a session has changed. Out: whether clients must be told what is in it."""
        return True

    async def finish(self, entry: SessionEntry) -> None:
        """Show what is left of a session that this server has just claimed, before it goes on with it. Raises StoreError."""

    def stop(self, session_id: str) -> None:
        """Stop reading a session that is ours now. What clients here have seen of it is still known."""
        self._drop(session_id)

    def note_release(self, session_id: str, sequence: int) -> None:
        """Note that a session is not ours any more. In: its last event, which clients here have seen."""

    def take_up(self, entry: SessionEntry, stored: int) -> None:
        """Go on with a session that another server has taken from this one, if a client listens.

        In: `stored`, the last event that this server has written. Clients here have seen no later ones, or read all again.
        """

    def forget(self, session_id: str) -> None:
        """Forget a session that is gone or that nobody listens to, and what clients here have seen of it."""
        self._drop(session_id)

    async def tidy(self) -> None:
        """Drop what nobody needs, after a look. Raises StoreError."""

    async def delete(self, session_id: str, owner: ServerRef) -> None:
        """Let the owner of a session delete it. Raises SessionElsewhere if servers do nothing for each other, and StoreError."""
        raise SessionElsewhere(session_id, owner)

    def _drop(self, session_id: str) -> ReadingT | None:
        return self._remotes.pop(session_id, None)

    def _get(self, entry: SessionEntry) -> ReadingT:
        session_id = entry.record.id
        remote = self._remotes.pop(session_id, None) or self._make(self._new_state(session_id, entry.agent))
        self._remotes[session_id] = remote
        idle = [id_ for id_, other in self._remotes.items() if id_ != session_id and other.is_idle]
        for id_ in idle[: max(0, len(self._remotes) - KEPT)]:
            self.stop(id_)
        return remote


Remotes: TypeAlias = StoredSessions[Any]
MakeRemotes: TypeAlias = Callable[[SessionDeps, SessionIndex, NewState, Callable[[Session], None]], Remotes]
"""Makes the remotes. The last argument is called with a session that was read anew."""


def stored_sessions(
    deps: SessionDeps, index: SessionIndex, new_state: NewState, on_read: Callable[[Session], None]
) -> StoredSessions[Reading]:
    """The `Remotes` of a server without a cluster."""
    return StoredSessions(deps, new_state, on_read, Reading)
