"""Gives the events of OpenCode 1 to its hub: of each change of a session and of the host."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from shim.faces.opencode1.events import OpenCodeEvent
from shim.faces.opencode1.host import render_host
from shim.faces.opencode1.render import render
from shim.host.changes import HostChange
from shim.stream.hub import Hub
from universal.session.changes import Change
from universal.session.model import Session


class EventPublisher:
    """An observer of `ChangeFeed` and `HostFeed`."""

    def __init__(self, hub: Hub[OpenCodeEvent]) -> None:
        self._hub = hub

    def session_changed(self, changes: Sequence[Change], session: Session, at_ms: int, is_resent: bool) -> None:
        """These changes were just made in this session."""
        for event in render(changes, session, at_ms, is_resent=is_resent):
            self._hub.publish(event)

    def host_changed(self, change: HostChange, directory: str, project_id: str | None) -> None:
        """Something beside the sessions has changed."""
        self._hub.publish(render_host(change, directory, project_id))

    def burst(self) -> AbstractContextManager[None]:
        """What is published within goes out in one go, at its end."""
        return self._hub.burst()
