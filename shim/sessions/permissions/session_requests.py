"""Answers permission requests and questions of all sessions for clients."""

from __future__ import annotations

from shim.errors import PermissionNotFound, QuestionNotFound
from shim.sessions.actor import SessionActor
from shim.sessions.dependencies import SessionDeps
from shim.sessions.permissions.grants import Grants
from shim.sessions.permissions.open_requests import OpenRequests
from shim.sessions.permissions.requests import unattended_policy_of_session
from shim.sessions.session_index import SessionIndex
from shim.sessions.session_state import SessionState
from universal.codec import PermissionReply, QuestionReply
from universal.permissions import DECISIONS
from universal.unattended_policy import UnattendedPolicy


class SessionRequests:
    """Finds requests by their ids, and gives answers to their sessions."""

    def __init__(self, index: SessionIndex, open_requests: OpenRequests, grants: Grants, deps: SessionDeps) -> None:
        self._index = index
        self._open = open_requests
        self._grants = grants
        self._deps = deps
        self.permissions = open_requests.permissions
        self.questions = open_requests.questions

    def reply_permission(self, request_id: str, reply: str, message: str | None = None) -> None:
        """Answer a permission: `once`, `always` or `reject`. Raises PermissionNotFound."""
        state, actor = self._owner_of(request_id)
        request = state.session.permissions.get(request_id) if state is not None else None
        if state is None or actor is None or request is None:
            raise PermissionNotFound(request_id)
        if reply == "always":
            self._grants.allow(state.session.record.directory, request.access.permission, list(request.access.always))
        actor.reply_permission(PermissionReply(request_id, DECISIONS[reply], message))

    def reply_question(self, request_id: str, answers: list[list[str]] | None) -> None:
        """Answer a question with labels for each part, or refuse with None. Raises QuestionNotFound."""
        state, actor = self._owner_of(request_id)
        if state is None or actor is None or request_id not in state.session.questions:
            raise QuestionNotFound(request_id)
        actor.reply_question(QuestionReply(request_id, answers))

    def _owner_of(self, request_id: str) -> tuple[SessionState | None, SessionActor | None]:
        """The session that waits for an answer, and the actor that takes it."""
        state = self._open.state_of(request_id)
        entry = self._index.find(state.id) if state is not None else None
        return state, entry.actor if entry is not None else None

    def unattended_policy(self, session_id: str) -> UnattendedPolicy:
        """The policy for unanswered requests of a session. Raises SessionNotFound."""
        entry = self._index.get(session_id)
        if entry.actor is not None:
            return entry.actor.unattended_policy
        return unattended_policy_of_session(entry.current_record) or self._deps.unattended

    def waiting_since_ms(self, session_id: str) -> int | None:
        """When the oldest open request of a session and its subagents was made, or None."""
        entry = self._index.find(session_id)
        if entry is None or entry.actor is None:
            return None
        return entry.actor.waiting_since_ms(entry.state if entry.subagent else None)

    def open_asks(self) -> tuple[int, int | None]:
        """Number of open requests, and when the oldest was made."""
        entries = (self._index.find(state.id) for state in self._open.states())
        actors = dict.fromkeys(entry.actor for entry in entries if entry is not None and entry.actor is not None)
        since = [at for actor in actors if (at := actor.waiting_since_ms()) is not None]
        return sum(actor.open_asks for actor in actors), min(since, default=None)
