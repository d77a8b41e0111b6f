"""The entry of a session, loaded or not, and its conversion from and to the store's row."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from shim.sessions.session.actor import SessionActor
from shim.sessions.session.native_sessions import NativeSession, native_sessions_of
from shim.sessions.session.session_state import SessionState
from shim.store.rows import SessionRow
from universal.lib.jsonvalue import obj, text
from universal.session import importer
from universal.session.record_json import record_json, record_of
from universal.session.values import SessionRecord

DELEGATED = "delegated"
"""Key of the fact that an agent has started a session. Clients cannot change facts."""


@dataclass(slots=True)
class SessionEntry:
    """The data of a session's row, and its loaded state.

    facts         those of `SessionState.facts`
    row_sequence  the last event of which the row tells, of a session of another server of a cluster
    lost_at_ms    when a turn or prompt of it was found lost with its server
    listed        the record whose place in the index's order is the entry's; the index's own
    """

    record: SessionRecord
    agent: str
    native: dict[str, NativeSession]
    busy: bool = False
    state: SessionState | None = None
    actor: SessionActor | None = None
    subagent: bool = False
    ended: bool = False
    facts: dict[str, Any] = field(default_factory=dict[str, object])
    row_sequence: int = 0
    lost_at_ms: int | None = None
    listed: SessionRecord | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def current_record(self) -> SessionRecord:
        return self.state.session.record if self.state is not None else self.record

    @property
    def is_at_work(self) -> bool:
        """Whether a turn runs here, in the session or in one of its subagents."""
        if self.state is None:
            return False
        return self.state.machine.busy or (self.actor is not None and self.actor.children.is_busy)

    @property
    def is_delegated(self) -> bool:
        """Whether the agent of the session above has started it (`shim.sessions.delegation`)."""
        return (self.state.facts if self.state is not None else self.facts).get(DELEGATED) is True

    @property
    def mode(self) -> str:
        """The mode in force: that of its agent's process, else of its last prompt."""
        live = self.actor.process.mode if self.actor is not None and self.actor.alive else ""
        return live or self.current_record.mode or ""

    def update_from(self, stored: SessionEntry) -> None:
        """Take over the values of a row. The session must not be loaded. Does not change `row_sequence`."""
        self.record, self.agent, self.native = stored.record, stored.agent, stored.native
        self.busy, self.subagent, self.ended, self.facts = stored.busy, stored.subagent, stored.ended, stored.facts

    def to_row(self) -> SessionRow:
        record = self.record
        data: dict[str, Any] = {
            "record": record_json(record),
            "agent": self.agent,
            "native": dict(zip(self.native, map(asdict, self.native.values()), strict=True)),
            "busy": self.busy,
            "subagent": self.subagent,
        }
        data |= {"ended": self.ended, "facts": self.facts}
        times = record.created_ms, record.updated_ms
        return SessionRow(record.id, record.directory, record.project_id, record.parent_id, *times, data)


def entry_from_row(row: SessionRow) -> SessionEntry:
    """Convert the store's row to an entry."""
    data = row.data
    native = native_sessions_of(data.get("native"))
    record = record_of(data["record"]) if "record" in data else importer.session(obj(data.get("info")))
    entry = SessionEntry(record, text(data.get("agent")), native, bool(data.get("busy")))
    entry.subagent, entry.ended = bool(data.get("subagent")), bool(data.get("ended"))
    entry.facts = dict(obj(data.get("facts")))
    return entry
