"""All sessions that exist, loaded or not, and the rows that the store keeps of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import structlog

from shim.errors import SessionNotFound, StoreError
from shim.sessions.actor import SessionActor
from shim.sessions.session_entry import SessionEntry, entry_from_row
from shim.store.base import Store
from universal.session.model import Fields, Session, SessionRecord

log = structlog.get_logger()


class SessionIndex:
    """The sessions of this data directory by their ids, those of other servers too. The only writer of their rows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: dict[str, SessionEntry] = {}
        self._unsaved: set[str] = set()

    async def load(self) -> None:
        """Read all rows."""
        for row in await self._store.sessions():
            self._entries[row.id] = entry_from_row(row)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._entries

    def __iter__(self) -> Iterator[SessionEntry]:
        return iter(tuple(self._entries.values()))

    def add(self, entry: SessionEntry) -> None:
        """A new session."""
        self._entries[entry.record.id] = entry

    def remove(self, session_id: str) -> None:
        """The session is deleted. An unknown id is ignored."""
        self._entries.pop(session_id, None)

    # --- one session ---------------------------------------------------------------------------------------

    def find(self, session_id: str) -> SessionEntry | None:
        """A session, None if there is no such."""
        return self._entries.get(session_id)

    def get(self, session_id: str) -> SessionEntry:
        """A session. Raises SessionNotFound."""
        entry = self._entries.get(session_id)
        if entry is None:
            raise SessionNotFound(session_id)
        return entry

    def record(self, session_id: str) -> SessionRecord:
        """A session's record. Raises SessionNotFound."""
        return self.get(session_id).current_record

    def find_record(self, session_id: str) -> SessionRecord | None:
        """A session's record, None if there is no such session."""
        entry = self._entries.get(session_id)
        return None if entry is None else entry.current_record

    def facts(self, session_id: str) -> Fields:
        """What only OpenCode 2 tells of a session: see `SessionState.facts`. Raises SessionNotFound."""
        entry = self.get(session_id)
        return entry.state.facts if entry.state is not None else entry.facts

    def agent_of(self, session_id: str) -> str:
        """The name of the agent that the session used last. Raises SessionNotFound."""
        entry = self.get(session_id)
        return entry.state.session.agent if entry.state is not None else entry.agent

    def native_id(self, session_id: str) -> str | None:
        """The agent's own id of the conversation, None if it has not told one. Raises SessionNotFound."""
        native = self.get(session_id).native.get(self.agent_of(session_id))
        return native.id if native is not None else None

    def is_ended(self, session_id: str) -> bool:
        """Whether its last agent's process has ended by itself, or we terminated it. Raises SessionNotFound."""
        entry = self.get(session_id)
        return entry.ended if entry.state is None else entry.state.ended is not None

    # --- several -------------------------------------------------------------------------------------------

    def records(self) -> Iterable[SessionRecord]:
        """The records of all sessions, in no order."""
        return (entry.current_record for entry in self._entries.values())

    def children(self, session_id: str) -> list[SessionRecord]:
        """The records of the sessions below this one, oldest first."""
        found = (record for record in self.records() if record.parent_id == session_id)
        return sorted(found, key=lambda record: record.created_ms)

    def with_all_below(self, session_id: str) -> list[str]:
        """A session and all below it, parents first, each once: an imported session may say that it is below itself."""
        children: dict[str, list[str]] = {}
        for record in self.records():
            children.setdefault(record.parent_id or "", []).append(record.id)
        found = {session_id: None}
        left = [session_id]
        while left:
            below = [id_ for id_ in children.get(left.pop(), ()) if id_ not in found]
            found.update(dict.fromkeys(below))
            left += below
        return list(found)

    def busy(self) -> list[Session]:
        """Sessions whose turn runs here."""
        sessions = (entry.state.session for entry in self._entries.values() if entry.state is not None)
        return [session for session in sessions if session.is_busy]

    def actors(self) -> list[SessionActor]:
        """The sessions at work, each once: a subagent's is its parent's."""
        found = (entry.actor for entry in self._entries.values() if entry.actor is not None)
        return list(dict.fromkeys(found))

    def directories_at_work(self) -> set[str]:
        """Directories in which an agent's process runs."""
        return {actor.directory for actor in self.actors() if actor.alive}

    # --- rows ----------------------------------------------------------------------------------------------

    def save(self, entry: SessionEntry) -> None:
        """Write a session's row. What the store cannot take now is written by `retry`."""
        row = entry.to_row()
        try:
            self._store.save_session(row)
        except StoreError as error:  # in the middle of a turn's end, perhaps: that goes on
            log.error("store.save_failed", session_id=row.id, error=str(error))
            self._unsaved.add(row.id)

    def retry(self) -> None:
        """Write again what the store could not take: events and rows."""
        for entry in self._entries.values():
            if entry.state is not None:
                entry.state.journal.retry()
        unsaved, self._unsaved = self._unsaved, set()
        for session_id in unsaved & self._entries.keys():
            self.save(self._entries[session_id])
