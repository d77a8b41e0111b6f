"""Limits the number of event streams of all faces together."""

from __future__ import annotations

from shim.http.services import Services
from shim.lib.errors import LimitReached


def need_room(services: Services) -> None:
    """Raise LimitReached if one more stream would exceed the limit."""
    limit = services.settings.max_streams
    followers = services.universal.sessions.manager.deps.feed.listeners if services.universal is not None else 0
    if services.hub.stats().readers + followers >= limit:
        raise LimitReached("max_streams", limit, "Too many event streams are open: close some.")
