"""A session as OpenCode 1's JSON, to compare it with what clients were sent."""

from __future__ import annotations

from typing import Any

from shim.faces.opencode1 import read
from shim.projection.opencode1.state import Conversation
from shim.sessions.manager import SessionManager
from universal.session.model import Session

Wire = dict[str, Any]


def view(session: Session) -> Conversation:
    """What GET answers are made of."""
    return Conversation(session)


def permissions(manager: SessionManager, directory: str | None = None) -> list[Wire]:
    """`GET /permission`."""
    return [read.request(request, session.id) for session, request in manager.permissions(directory)]


def questions(manager: SessionManager, directory: str | None = None) -> list[Wire]:
    """`GET /question`."""
    return [read.request(request, session.id) for session, request in manager.questions(directory)]


def statuses(manager: SessionManager) -> dict[str, Wire]:
    """`GET /session/status`."""
    return {session_id: read.status(status) for session_id, status in manager.statuses().items()}


def children(manager: SessionManager, session_id: str) -> list[Wire]:
    """`GET /session/ID/children`."""
    return [read.session(record) for record in manager.children(session_id)]


def info(manager: SessionManager, session_id: str) -> Wire:
    """`GET /session/ID`."""
    return read.session(manager.record(session_id))
