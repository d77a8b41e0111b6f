"""The index of all sessions, loaded or not, and the only writer of their rows in the store."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog

from shim.agents.spares.agent_room import RunningAgent
from shim.lib.errors import SessionNotFound, StoreError
from shim.sessions.index.session_entry import ListedRecord, SessionEntry, listed_entry, words_in_json
from shim.sessions.session.actor import SessionActor
from shim.store.base import Store
from universal.permissions import Rule, inherit, rules_from_json
from universal.session.model import Session
from universal.session.values import Fields, SessionRecord

log = structlog.get_logger()

SORT_FROM = 1000
"""Moved sessions from which on all are sorted anew, instead of each moved by itself."""


class SessionIndex:
    """The sessions of this data directory by id, also those of other servers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: dict[str, SessionEntry] = {}
        self.find: Callable[[str], SessionEntry | None] = self._entries.get
        """Returns a session's entry, or None."""
        self._newest_first: list[SessionRecord] = []
        self._unsaved: set[str] = set()

    async def load(self) -> None:
        rows = (await self._store.sessions())[::-1]
        while rows:
            row = rows.pop()  # rows and entries are not all in memory at once
            entry = self._entries[row.id] = listed_entry(row)
            entry.listed = entry.record
        self._newest_first = sorted([entry.record for entry in self._entries.values()], key=_place)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._entries

    def __iter__(self) -> Iterator[SessionEntry]:
        return iter(tuple(self._entries.values()))

    def add(self, entry: SessionEntry) -> None:
        before = self._entries.get(entry.record.id)
        if before is not None:
            self._unlist(before)
        self._entries[entry.record.id] = entry

    def remove(self, session_id: str) -> None:
        """Remove a deleted session. An unknown id is ignored."""
        entry = self._entries.pop(session_id, None)
        if entry is not None:
            self._unlist(entry)

    # --- one session ---------------------------------------------------------------------------------------

    def get(self, session_id: str) -> SessionEntry:
        """A session's entry. Raises SessionNotFound."""
        entry = self._entries.get(session_id)
        if entry is None:
            raise SessionNotFound(session_id)
        return entry

    def record(self, session_id: str) -> SessionRecord:
        """A session's record. Raises SessionNotFound."""
        return self.get(session_id).current_record

    def find_record(self, session_id: str) -> SessionRecord | None:
        """A session's record, or None."""
        entry = self._entries.get(session_id)
        return None if entry is None else entry.current_record

    def facts(self, session_id: str) -> Fields:
        """The facts of a session that only OpenCode 2 shows (`SessionState.facts`). Raises SessionNotFound."""
        entry = self.get(session_id)
        return entry.state.facts if entry.state is not None else entry.facts

    def agent_of(self, session_id: str) -> str:
        """The name of the agent that the session used last. Raises SessionNotFound."""
        entry = self.get(session_id)
        return entry.state.session.agent if entry.state is not None else entry.agent

    def native_id(self, session_id: str) -> str | None:
        """The agent's id of the conversation, or None. Raises SessionNotFound."""
        native = self.get(session_id).native.get(self.agent_of(session_id))
        return native.id if native is not None else None

    def is_ended(self, session_id: str) -> bool:
        """Whether its last agent's process ended by itself, or the session was terminated. Raises SessionNotFound."""
        entry = self.get(session_id)
        return entry.ended if entry.state is None else entry.state.ended is not None

    # --- several -------------------------------------------------------------------------------------------

    def records(self) -> Iterable[SessionRecord]:
        """The records of all sessions, in no order."""
        return (entry.current_record for entry in self._entries.values())

    def newest_first(self, words: str = "") -> Sequence[SessionRecord]:
        """The records of all sessions: the last changed first, of these the last created first, of these by id.

        In: `words`, for a caller that wants only records that have them in a text: some without them are left out.
        """
        moved = [
            entry
            for entry in self._entries.values()  # without calls: there may be 100,000
            if entry.listed is not (entry.record if entry.state is None else entry.state.session.record)
        ]
        if len(moved) >= SORT_FROM:
            for entry in moved:
                entry.listed = entry.current_record
            self._newest_first = sorted(self.records(), key=_place)
        else:
            for entry in moved:
                self._unlist(entry)
                entry.listed = entry.current_record
                insort(self._newest_first, entry.listed, key=_place)
        if not words:
            return tuple(self._newest_first)
        looked_for = words_in_json(words)
        return [record for record in self._newest_first if not isinstance(record, ListedRecord) or record.may_contain(looked_for)]

    def _unlist(self, entry: SessionEntry) -> None:
        if entry.listed is not None:
            del self._newest_first[bisect_left(self._newest_first, _place(entry.listed), key=_place)]
            entry.listed = None

    def children(self, session_id: str) -> list[SessionRecord]:
        """The records of the child sessions, oldest first."""
        children = (record for record in self.records() if record.parent_id == session_id)
        return sorted(children, key=lambda record: record.created_ms)

    def line(self, session_id: str) -> list[SessionEntry]:
        """A session and all its parents, the nearest first; without those that are not known."""
        line: dict[str, SessionEntry] = {}
        entry = self.find(session_id)
        while entry is not None and entry.record.id not in line:
            line[entry.record.id] = entry
            entry = self.find(entry.record.parent_id) if entry.record.parent_id else None
        return list(line.values())

    def rules(self, session_id: str) -> tuple[Rule, ...]:
        """The rules of a session with those of its parents. Those of a subagent are for its card alone."""
        rules: tuple[Rule, ...] = ()
        for entry in self.line(session_id):
            record = entry.current_record
            if record.permission and not entry.subagent:
                rules = inherit(rules_from_json(list(record.permission)), rules)
        return rules

    def with_all_below(self, session_id: str) -> list[str]:
        """A session and its descendants, parents first, each once, because an imported session may name itself as its parent."""
        children: dict[str, list[str]] = {}
        for record in self.records():
            children.setdefault(record.parent_id or "", []).append(record.id)
        family = {session_id: None}
        waiting = [session_id]
        while waiting:
            below = [id_ for id_ in children.get(waiting.pop(), ()) if id_ not in family]
            family.update(dict.fromkeys(below))
            waiting += below
        return list(family)

    def busy(self) -> list[Session]:
        sessions = (entry.state.session for entry in self._entries.values() if entry.state is not None)
        return [session for session in sessions if session.is_busy]

    def lost_since(self, ms: int) -> list[Session]:
        """Sessions whose turn or prompt was found lost with its server, or was taken up, since this time."""
        lost = [entry for entry in self._entries.values() if entry.lost_at_ms is not None and entry.lost_at_ms >= ms]
        return [entry.state.session for entry in lost if entry.state is not None]

    def actors(self) -> list[SessionActor]:
        """The actors, each once. A subagent has its parent's."""
        actors = (entry.actor for entry in self._entries.values() if entry.actor is not None)
        return list(dict.fromkeys(actors))

    def running_agents(self) -> list[RunningAgent]:
        entries = [entry for entry in self._entries.values() if entry.actor is not None and entry.state is entry.actor.main]
        return [
            RunningAgent(entry.record.id, entry.is_at_work, entry.actor.last_active_ms, entry.actor.reap)
            for entry in entries
            if entry.actor is not None and entry.actor.process.is_alive
        ]

    def directories_at_work(self) -> set[str]:
        """Directories in which an agent's process runs."""
        return {actor.directory for actor in self.actors() if actor.process.is_alive}

    # --- rows ----------------------------------------------------------------------------------------------

    def save(self, entry: SessionEntry) -> None:
        """Write a session's row. If the store does not take it, `retry` writes it."""
        row = entry.to_row()
        try:
            self._store.save_session(row)
        except StoreError as error:  # perhaps in the middle of a turn's end, which must go on
            log.error("store.save_failed", session_id=row.id, error=str(error))
            self._unsaved.add(row.id)

    def retry(self) -> None:
        """Write again the events and rows that the store did not take."""
        for entry in self._entries.values():
            if entry.state is not None:
                entry.state.journal.retry()
        unsaved, self._unsaved = self._unsaved, set()
        for session_id in unsaved & self._entries.keys():
            self.save(self._entries[session_id])


def _place(record: SessionRecord) -> tuple[int, int, str]:
    """The place in the order. Ids of OpenCode descend in time: of two of one millisecond the newer one comes first."""
    return -record.updated_ms, -record.created_ms, record.id
