"""Finds the open permission requests and questions of all sessions, and gives them the answers of clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from shim.lib.errors import PermissionNotFound, QuestionNotFound, SessionElsewhere
from shim.sessions.feed import SessionChanges
from shim.sessions.index.session_index import SessionIndex
from shim.sessions.permissions.grants import Grants
from shim.sessions.permissions.unattended_policy import unattended_policy_of_session
from shim.sessions.session.actor import SessionActor
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.session_state import SessionState
from shim.store.servers import ServerRef
from universal.codec import PermissionReply, QuestionReply
from universal.permissions import DECISIONS
from universal.session.changes import RequestClosed, RequestOpened
from universal.session.model import Session
from universal.session.values import PermissionRequest, QuestionRequest
from universal.unattended_policy import UnattendedPolicy

CLOSED_LIMIT = 100
"""Maximum closed requests of which clients that come back are told."""


class SessionRequests:
    """The open requests of all sessions. It follows the changes of sessions, so that a request is found without a search.

    In: `find_remote`, the last read state of another server's session; `find_owner`, the other living server that has one.
    """

    def __init__(
        self,
        index: SessionIndex,
        grants: Grants,
        deps: SessionDeps,
        find_remote: Callable[[str], SessionState | None],
        find_owner: Callable[[str], ServerRef | None],
    ) -> None:
        self._index = index
        self._grants = grants
        self._deps = deps
        self._find_remote, self._find_owner = find_remote, find_owner
        self._open: dict[str, str] = {}
        """Request id -> session id, in the order of the requests."""
        self._closed: deque[tuple[int, Session, RequestClosed]] = deque(maxlen=CLOSED_LIMIT)
        """The last closed requests, and when."""
        deps.changes.observe(self._follow, (RequestOpened, RequestClosed))

    def _follow(self, published: SessionChanges) -> None:
        for change in published.changes:
            if isinstance(change, RequestOpened):
                self._open[change.request.id] = published.session.id
            elif isinstance(change, RequestClosed):
                self._open.pop(change.request.id, None)
                self._closed.append((published.at_ms, published.session, change))

    def closed_since(self, ms: int) -> list[tuple[Session, RequestClosed]]:
        """The requests that were closed since this time, oldest first; of many the last."""
        return [(session, change) for at_ms, session, change in self._closed if at_ms >= ms]

    def note(self, session: Session) -> None:
        """Note the open requests of another server's session that was read."""
        for request_id in (*session.permissions, *session.questions):
            self._open[request_id] = session.id

    def session_of(self, request_id: str) -> str | None:
        """The id of the session that waits for the answer to a request, or None."""
        return self._open.get(request_id)

    def _states(self) -> Iterator[SessionState]:
        """The sessions that wait for an answer, each once, also of other servers."""
        for session_id in dict.fromkeys(self._open.values()):
            entry = self._index.find(session_id)
            state = None if entry is None else entry.state or self._find_remote(session_id)
            if state is not None:
                yield state

    def _sessions(self, directory: str | None) -> Iterator[Session]:
        sessions = (state.session for state in self._states())
        return (session for session in sessions if directory is None or session.record.directory == directory)

    def permissions(self, directory: str | None = None) -> list[tuple[Session, PermissionRequest]]:
        """Open permission requests with their sessions, oldest first. `directory`: of this one only."""
        requests = [(session, request) for session in self._sessions(directory) for request in session.permissions.values()]
        return sorted(requests, key=lambda pair: pair[1].id)

    def questions(self, directory: str | None = None) -> list[tuple[Session, QuestionRequest]]:
        """Open questions with their sessions, oldest first. `directory`: of this one only."""
        requests = [(session, request) for session in self._sessions(directory) for request in session.questions.values()]
        return sorted(requests, key=lambda pair: pair[1].id)

    def reply_permission(self, request_id: str, reply: str, message: str | None = None) -> None:
        """Answer a permission: `once`, `always` or `reject`. Raises PermissionNotFound, SessionElsewhere."""
        state, actor = self._owner_of(request_id)
        request = state.session.permissions.get(request_id) if state is not None else None
        if state is None or actor is None or request is None:
            raise PermissionNotFound(request_id)
        if reply == "always":
            self._grants.allow(state.session.record.directory, request.access)
        state.note_doer(request_id)
        actor.reply_permission(PermissionReply(request_id, DECISIONS[reply], message))

    def reply_question(self, request_id: str, answers: list[list[str]] | None) -> None:
        """Answer a question with labels for each part, or refuse with None. Raises QuestionNotFound, SessionElsewhere."""
        state, actor = self._owner_of(request_id)
        if state is None or actor is None or request_id not in state.session.questions:
            raise QuestionNotFound(request_id)
        state.note_doer(request_id)
        actor.reply_question(QuestionReply(request_id, answers))

    def _owner_of(self, request_id: str) -> tuple[SessionState | None, SessionActor | None]:
        """The session that waits for an answer, and the actor that takes it. Raises SessionElsewhere."""
        session_id = self._open.get(request_id, "")
        if (owner := self._find_owner(session_id)) is not None:
            raise SessionElsewhere(session_id, owner)
        entry = self._index.find(session_id)
        return (entry.state, entry.actor) if entry is not None else (None, None)

    def unattended_policy(self, session_id: str) -> UnattendedPolicy:
        """The policy for unanswered requests of a session. Raises SessionNotFound."""
        entry = self._index.get(session_id)
        if entry.actor is not None:
            return entry.actor.unattended_policy
        return unattended_policy_of_session(entry.current_record) or self._deps.unattended_policy

    def waiting_since_ms(self, session_id: str) -> int | None:
        """When the oldest open request of a session and its subagents was made, or None."""
        entry = self._index.find(session_id)
        if entry is None or entry.actor is None:
            return None
        return entry.actor.requests.waiting_since_ms(entry.state if entry.subagent else None)

    def open_asks(self) -> tuple[int, int | None]:
        """Number of open requests, and when the oldest was made."""
        entries = (self._index.find(state.id) for state in self._states())
        actors = dict.fromkeys(entry.actor for entry in entries if entry is not None and entry.actor is not None)
        since = [at for actor in actors if (at := actor.requests.waiting_since_ms()) is not None]
        return sum(actor.requests.open_asks for actor in actors), min(since, default=None)
