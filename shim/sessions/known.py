"""A session that exists, loaded or not: what its row keeps, and the way there and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from shim.sessions.accepted import NativeSession
from shim.store.base import SessionRow
from universal.jsonvalue import obj, text
from universal.session import importer
from universal.session.model import SessionRecord
from universal.session.stored import record_json, record_of

if TYPE_CHECKING:
    from shim.sessions.actor import SessionActor
    from shim.sessions.branch import Branch


@dataclass(slots=True)
class Known:
    """Its row's data, and what is loaded of it. `facts` are those of `Branch.facts`."""

    record: SessionRecord
    agent: str
    native: dict[str, NativeSession]
    busy: bool = False
    branch: Branch | None = None
    actor: SessionActor | None = None
    subagent: bool = False
    ended: bool = False
    facts: dict[str, Any] = field(default_factory=dict[str, object])

    @property
    def current(self) -> SessionRecord:
        """Its record as it is now."""
        return self.branch.session.record if self.branch is not None else self.record

    def take(self, stored: Known) -> None:
        """Become what is stored, of a session that is not loaded."""
        self.record, self.agent, self.native = stored.record, stored.agent, stored.native
        self.busy, self.subagent, self.ended, self.facts = stored.busy, stored.subagent, stored.ended, stored.facts

    def row(self) -> SessionRow:
        """What is kept of it."""
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


def from_row(row: SessionRow) -> Known:
    """What was kept."""
    data = row.data
    native = {
        name: NativeSession(text(n.get("id")), bool(n.get("started")), text(n.get("resume_at")) or None)
        for name, n in ((name, obj(n)) for name, n in obj(data.get("native")).items())
    }
    record = record_of(data["record"]) if "record" in data else importer.session(obj(data.get("info")))
    known = Known(record, text(data.get("agent")), native, bool(data.get("busy")))
    known.subagent, known.ended = bool(data.get("subagent")), bool(data.get("ended"))
    known.facts = dict(obj(data.get("facts")))
    return known
