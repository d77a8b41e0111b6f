"""The entry of a session, loaded or not, and its conversion from and to the store's row."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from shim.store.base import SessionRow
from universal.jsonvalue import obj, text
from universal.session import importer
from universal.session.model import SessionRecord
from universal.session.record_json import record_json, record_of

if TYPE_CHECKING:
    from shim.sessions.actor import SessionActor
    from shim.sessions.session_state import SessionState


@dataclass(slots=True)
class NativeSession:
    """An agent's conversation. `started`: the agent has answered in it.

    `resume_at`: the message after which everything was undone, and where the next start resumes.
    """

    id: str
    started: bool = False
    resume_at: str | None = None


def note_native_session(sessions: dict[str, NativeSession], agent: str, id_: str, *, started: bool) -> bool:
    """Store an agent's conversation id, and whether the agent has answered in it. True if something changed."""
    native = sessions.get(agent)
    if native is None or native.id != id_:
        sessions[agent] = NativeSession(id_, started)
        return True
    if started and (not native.started or native.resume_at):
        native.started, native.resume_at = True, None  # the conversation has continued there
        return True
    return False


@dataclass(slots=True)
class SessionEntry:
    """The data of a session's row, and its loaded state. `facts`: those of `SessionState.facts`."""

    record: SessionRecord
    agent: str
    native: dict[str, NativeSession]
    busy: bool = False
    state: SessionState | None = None
    actor: SessionActor | None = None
    subagent: bool = False
    ended: bool = False
    facts: dict[str, Any] = field(default_factory=dict[str, object])

    @property
    def current_record(self) -> SessionRecord:
        """The present record."""
        return self.state.session.record if self.state is not None else self.record

    def update_from(self, stored: SessionEntry) -> None:
        """Take over the stored values. The session must not be loaded."""
        self.record, self.agent, self.native = stored.record, stored.agent, stored.native
        self.busy, self.subagent, self.ended, self.facts = stored.busy, stored.subagent, stored.ended, stored.facts

    def to_row(self) -> SessionRow:
        """Convert the entry to the store's row."""
        record = self.record
        native = {name: asdict(n) for name, n in self.native.items()}
        data: dict[str, Any] = {
            "record": record_json(record),
            "agent": self.agent,
            "native": native,
            "busy": self.busy,
            "subagent": self.subagent,
        }
        data |= {"ended": self.ended, "facts": self.facts}
        times = record.created_ms, record.updated_ms
        return SessionRow(record.id, record.directory, record.project_id, record.parent_id, *times, data)


def entry_from_row(row: SessionRow) -> SessionEntry:
    """Convert the store's row to an entry."""
    data = row.data
    native = {
        name: NativeSession(text(n.get("id")), bool(n.get("started")), text(n.get("resume_at")) or None)
        for name, n in ((name, obj(n)) for name, n in obj(data.get("native")).items())
    }
    record = record_of(data["record"]) if "record" in data else importer.session(obj(data.get("info")))
    entry = SessionEntry(record, text(data.get("agent")), native, bool(data.get("busy")))
    entry.subagent, entry.ended = bool(data.get("subagent")), bool(data.get("ended"))
    entry.facts = dict(obj(data.get("facts")))
    return entry
