"""An event of the OpenCode 1 wire before its encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from universal.lib.jsonvalue import obj, text

FACE = "opencode1"


class OpenCodeEvent(NamedTuple):
    """An event of the OpenCode 1.x wire.

    scope    the normalised directory whose `/event` stream gets it; None: every stream (`server.*`)
    project  the project id, beside the directory on `/global/event`
    urgent   flush at once instead of batching (permission, question, idle, error)
    legacy   creates the event for clients of 1.1 and older (None: they get none). It is called while publishing, and only if
             such a client is connected. If absent, they get the same event
    subject  the type and the id of the request that it opens
    """

    type: str
    properties: Mapping[str, Any]
    scope: str | None = None
    project: str | None = None
    urgent: bool = False
    legacy: Callable[[], OpenCodeEvent | None] | None = None
    subject: tuple[str, str] | None = None

    @property
    def session_id(self) -> str | None:
        """As in `StreamEvent`. Its properties name it at one of these places."""
        properties = self.properties
        info, part = obj(properties.get("info")), obj(properties.get("part"))
        of_info = info.get("id") if self.type.startswith("session.") else info.get("sessionID")
        return text(properties.get("sessionID") or part.get("sessionID") or of_info) or None

    # As in `StreamEvent`. The hub assigns the id when it publishes the event.
    face = FACE
    event_id = None
