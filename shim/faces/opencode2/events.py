"""One event of OpenCode 2's wire, in the form of `v2_0` (2.1.2), and which types are durable. Pure.

`VERSIONS` is the table: a type that has a row is durable (it has a place in its session's log), with the version of its payload's
shape; all others are live only. Source: `opencode-v2-events.json` (2.1.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Wire: TypeAlias = dict[str, Any]
FACE = "opencode2"
"""By which the hub knows this face."""

VERSIONS: dict[str, int] = {
    "session.created": 1,
    "session.agent.selected": 1,
    "session.model.selected": 1,
    "session.moved": 1,
    "session.renamed": 1,
    "session.metadata.updated": 1,
    "session.permissions": 1,
    "session.viewed": 1,
    "session.archived": 1,
    "session.unarchived": 1,
    "session.deleted": 2,
    "session.forked": 2,
    "session.inbox.enqueued": 1,
    "session.inbox.delivered": 1,
    "session.inbox.cancelled": 1,
    "session.inbox.delivery.changed": 1,
    "session.execution.started": 1,
    "session.execution.succeeded": 1,
    "session.execution.failed": 1,
    "session.execution.interrupted": 1,
    "session.instructions.updated": 2,
    "session.synthetic": 1,
    "session.skill.activated": 1,
    "session.shell.started": 1,
    "session.shell.ended": 1,
    "session.step.started": 1,
    "session.step.streamed": 1,
    "session.step.ended": 1,
    "session.step.failed": 1,
    "session.text.started": 1,
    "session.text.ended": 1,
    "session.reasoning.started": 1,
    "session.reasoning.ended": 1,
    "session.tool.input.started": 1,
    "session.tool.input.ended": 1,
    "session.tool.called": 1,
    "session.tool.success": 2,
    "session.tool.failed": 2,
    "session.retry.scheduled": 1,
    "session.compaction.started": 1,
    "session.compaction.ended": 1,
    "session.compaction.failed": 1,
    "session.revert.staged": 1,
    "session.revert.cleared": 1,
    "session.revert.committed": 1,
    "session.message.content.updated": 1,
}

NO_LOCATION = frozenset(
    {
        *("session.execution.started", "session.execution.succeeded"),
        *("session.execution.failed", "session.execution.interrupted"),
        "session.usage.updated",
    }
)
"""Native tells these without a directory (as `server.connected`): clients go by `data.sessionID`."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    created    epoch ms
    session    whose it is: the `aggregateID` of a durable one; None: of no session
    seq        its place in the session's log, from 0; None: live only
    version    of the payload's shape, if durable
    directory  `location.directory`; None: told without a location
    note       for dialects, what the data does not say; not on the wire
    beside     the same: fields that the event of a dialect has
    """

    id: str
    created: int
    type: str
    data: Wire
    session: str | None = None
    seq: int | None = None
    version: int | None = None
    directory: str | None = None
    note: str = ""
    beside: Wire | None = None

    @property
    def face(self) -> str:
        """As `StreamEvent.face`."""
        return FACE

    @property
    def scope(self) -> None:
        """As `StreamEvent.scope`: one stream carries all directories."""
        return

    @property
    def subject(self) -> None:
        """As `StreamEvent.subject`: clients read open requests, the greeting has none."""
        return

    @property
    def event_id(self) -> str:
        """As `StreamEvent.event_id`."""
        return self.id

    def wire(self) -> Wire:
        """As it goes over `/api/event`: `{id, created, type, durable?, location?, data}`."""
        envelope: Wire = {"id": self.id, "created": self.created, "type": self.type}
        if self.seq is not None:
            envelope["durable"] = {"aggregateID": self.session, "seq": self.seq, "version": self.version}
        if self.directory is not None:
            envelope["location"] = {"directory": self.directory}
        envelope["data"] = self.data
        return envelope

    def log(self) -> Wire:
        """As the session's log has it: `{id, created, type, durable, data}`. Only for durable ones."""
        return {key: value for key, value in self.wire().items() if key != "location"}
