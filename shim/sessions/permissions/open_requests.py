"""Finds the open permission requests and questions of all sessions by their ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from universal.session.changes import Change, RequestClosed, RequestOpened
from universal.session.model import PermissionRequest, QuestionRequest, Session

if TYPE_CHECKING:
    from shim.sessions.session_state import SessionState


class OpenRequests:
    """An index of open requests: request -> its session, in the order of the requests."""

    def __init__(self) -> None:
        self._states: dict[str, SessionState] = {}

    def note(self, change: Change, state: SessionState) -> None:
        """Follow a change of a session."""
        if isinstance(change, RequestOpened):
            self._states[change.request.id] = state
        elif isinstance(change, RequestClosed):
            self._states.pop(change.request.id, None)

    def state_of(self, request_id: str) -> SessionState | None:
        """The session that waits for this answer."""
        return self._states.get(request_id)

    def states(self) -> list[SessionState]:
        """The sessions that wait for an answer, each once."""
        return list({state.id: state for state in self._states.values()}.values())

    def permissions(self, directory: str | None = None) -> list[tuple[Session, PermissionRequest]]:
        """Open permission requests with their sessions, oldest first; of one directory if given."""
        found = [(session, request) for session in self._sessions(directory) for request in session.permissions.values()]
        return sorted(found, key=lambda pair: pair[1].id)

    def questions(self, directory: str | None = None) -> list[tuple[Session, QuestionRequest]]:
        """Open questions with their sessions, oldest first; of one directory if given."""
        found = [(session, request) for session in self._sessions(directory) for request in session.questions.values()]
        return sorted(found, key=lambda pair: pair[1].id)

    def _sessions(self, directory: str | None) -> Iterable[Session]:
        sessions = (state.session for state in self.states())
        return (session for session in sessions if directory is None or session.record.directory == directory)
