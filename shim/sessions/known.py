"""A session that exists, loaded or not: what its row keeps, and the way there and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from shim.opencode.build import Wire
from shim.sessions.accepted import NativeSession
from shim.store.base import SessionRow
from universal.jsonvalue import obj, text

if TYPE_CHECKING:
    from shim.sessions.actor import SessionActor
    from shim.sessions.branch import Branch


@dataclass(slots=True)
class Known:
    """Its row's data, and what is loaded of it. `facts` are those of `Branch.facts`."""

    info: Wire
    agent: str
    native: dict[str, NativeSession]
    busy: bool = False
    branch: Branch | None = None
    actor: SessionActor | None = None
    subagent: bool = False
    ended: bool = False
    facts: Wire = field(default_factory=dict[str, object])

    def row(self) -> SessionRow:
        """What is kept of it."""
        info = self.info
        native = {name: asdict(n) for name, n in self.native.items()}
        data: Wire = {"info": info, "agent": self.agent, "native": native, "busy": self.busy, "subagent": self.subagent}
        data |= {"ended": self.ended, "facts": self.facts}
        time = info["time"]
        return SessionRow(
            info["id"], info["directory"], info["projectID"], info.get("parentID"), time["created"], time["updated"], data
        )


def from_row(row: SessionRow) -> Known:
    """What was kept."""
    data = row.data
    native = {
        name: NativeSession(text(n.get("id")), bool(n.get("started")), text(n.get("resume_at")) or None)
        for name, n in ((name, obj(n)) for name, n in obj(data.get("native")).items())
    }
    known = Known(dict(obj(data.get("info"))), text(data.get("agent")), native, bool(data.get("busy")))
    known.subagent, known.ended = bool(data.get("subagent")), bool(data.get("ended"))
    known.facts = dict(obj(data.get("facts")))
    return known
