"""Renders changes of sessions and of the host as OpenCode 1 events, for the hub."""

from __future__ import annotations

from shim.faces.opencode1 import host
from shim.faces.opencode1.events import FACE, OpenCodeEvent
from shim.faces.opencode1.render import render
from shim.host.changes import HostChanged
from shim.sessions.feed import SessionChanges
from shim.stream.hub import Face


def events_of(change: SessionChanges | HostChanged) -> list[OpenCodeEvent]:
    """Render a change as events."""
    if isinstance(change, SessionChanges):
        return render(change.changes, change.session, change.at_ms, is_resent=change.is_resent)
    return host.events_of(change)


OPENCODE1 = Face(FACE, events_of)
