"""One event of the OpenCode 1 wire, before it is encoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from shim.stream.frame import normal_scope

FACE = "opencode1"
"""By which the hub knows this face."""


class Sync(NamedTuple):
    """A lasting event's place in its session's history: `seq` counts from 0, without gaps; `id` is the same in each replay."""

    session_id: str
    seq: int
    id: str


@dataclass(frozen=True, slots=True)
class OpenCodeEvent:
    """One event of the OpenCode 1.x wire.

    directory  whose `/event` stream gets it; None: every stream (`server.*`)
    project    project id, beside `directory` on `/global/event`
    urgent     flush at once (permission, question, idle, error): do not gather
    sync       its place in the session's history of lasting events, if it is one of them
    legacy     for clients of 1.1 and older: makes the event they get instead (None: they get nothing). It is called
               while publishing, and only when such a client is connected. Absent: they get the same event.
    """

    type: str
    properties: dict[str, Any]
    directory: str | None = None
    project: str | None = None
    urgent: bool = False
    legacy: Callable[[], OpenCodeEvent | None] | None = None
    sync: Sync | None = None

    @property
    def face(self) -> str:
        """As `StreamEvent.face`."""
        return FACE

    @property
    def scope(self) -> str | None:
        """As `StreamEvent.scope`."""
        return None if self.directory is None else normal_scope(self.directory)

    @property
    def subject(self) -> tuple[str, str] | None:
        """As `StreamEvent.subject`: the type and the id of a request, which is a property of its events."""
        id_ = self.properties.get("id")
        return (self.type, id_) if isinstance(id_, str) else None

    @property
    def event_id(self) -> None:
        """As `StreamEvent.event_id`: it gets one when it is published."""
        return
