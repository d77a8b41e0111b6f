"""An event of the OpenCode 1 wire before its encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from shim.stream.frame import normal_scope

FACE = "opencode1"
"""The name of this face in the hub."""


class Sync(NamedTuple):
    """A lasting event's place in its session's history. `seq` counts from 0 without gaps; `id` is stable across replays."""

    session_id: str
    seq: int
    id: str


class OpenCodeEvent(NamedTuple):
    """An event of the OpenCode 1.x wire.

    directory  the directory whose `/event` stream gets it; None: every stream (`server.*`)
    project    the project id, beside `directory` on `/global/event`
    urgent     flush at once instead of batching (permission, question, idle, error)
    sync       the place in the session's history, if the event is a lasting one
    legacy     creates the event for clients of 1.1 and older (None: they get none). It is called while publishing, and only
               if such a client is connected. If absent, they get the same event
    """

    type: str
    properties: Mapping[str, Any]
    directory: str | None = None
    project: str | None = None
    urgent: bool = False
    legacy: Callable[[], OpenCodeEvent | None] | None = None
    sync: Sync | None = None

    @property
    def scope(self) -> str | None:
        """As `StreamEvent.scope`."""
        return None if self.directory is None else normal_scope(self.directory)

    @property
    def subject(self) -> tuple[str, str] | None:
        """As `StreamEvent.subject`: the type and the id of a request, which is a property of its events."""
        id_ = self.properties.get("id")
        return (self.type, id_) if isinstance(id_, str) else None

    # As in `StreamEvent`. The hub assigns the id when it publishes the event.
    face = FACE
    event_id = None
