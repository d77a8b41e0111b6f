"""The event of OpenCode 2, in the form of `v2_0`. Pure.

A type with a row in `_generated.operations.VERSIONS` is durable: it has a place in its session's log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypeAlias, TypedDict

from shim.stream.frame import normal_scope

Wire: TypeAlias = dict[str, Any]
"""JSON that a dialect makes for an older build. The shapes of `v2_0` are in `types`, `host_types` and `event_types`."""
ReadOnlyWire: TypeAlias = Mapping[str, Any]
"""JSON of any shape, which is only read."""
FACE = "opencode2"

NO_LOCATION = frozenset(
    {
        *("session.execution.started", "session.execution.succeeded"),
        *("session.execution.failed", "session.execution.interrupted"),
        "session.usage.updated",
    }
)
"""Types that OpenCode sends without a directory. Clients use their `data.sessionID`."""


class DurablePlace(TypedDict):
    """The place of an event in its session's log."""

    aggregateID: str | None
    seq: int
    version: int | None


class EventLocation(TypedDict):
    """The directory of an event."""

    directory: str


class EventJson(TypedDict):
    """The JSON of an event of any type. The dialect `preview` has no `created`."""

    id: str
    created: NotRequired[int]
    type: str
    durable: NotRequired[DurablePlace]
    location: NotRequired[EventLocation]
    data: NotRequired[ReadOnlyWire]


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    created    epoch milliseconds
    session    id of its session (`aggregateID` of a durable event), or None
    seq        place in the session's log, from 0; None if it is live only
    version    version of the payload's shape, if durable
    directory  of its session; `location.directory`, but for NO_LOCATION
    note       a hint for dialects; not on the wire
    beside     fields that only older dialects have; not on the wire in `v2_0`
    """

    id: str
    created: int
    type: str
    data: ReadOnlyWire
    session: str | None = None
    seq: int | None = None
    version: int | None = None
    directory: str | None = None
    note: str = ""
    beside: ReadOnlyWire | None = None

    @property
    def face(self) -> str:
        return FACE

    @property
    def scope(self) -> str | None:
        """As `StreamEvent.scope`. One stream carries all directories; that of a person with roots only those in them."""
        return self.directory and normal_scope(self.directory)

    @property
    def subject(self) -> None:
        """As `StreamEvent.subject`: clients read open requests, the greeting has none."""
        return

    @property
    def session_id(self) -> str | None:
        return self.session

    @property
    def event_id(self) -> str:
        return self.id

    def wire(self) -> EventJson:
        """The JSON on `/api/event`: `{id, created, type, durable?, location?, data}`."""
        envelope: EventJson = {"id": self.id, "created": self.created, "type": self.type}
        if self.seq is not None:
            envelope["durable"] = {"aggregateID": self.session, "seq": self.seq, "version": self.version}
        if self.directory is not None and self.type not in NO_LOCATION:
            envelope["location"] = {"directory": self.directory}
        envelope["data"] = self.data
        return envelope

    def log(self) -> EventJson:
        """The JSON in the session's log: `{id, created, type, durable, data}`. Only for durable events."""
        envelope = self.wire()
        envelope.pop("location", None)
        return envelope
