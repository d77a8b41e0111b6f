"""A session as OpenCode 1's JSON, to compare it with what clients were sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shim.faces.opencode1 import read
from shim.sessions.index.manager import SessionManager
from universal.session import model
from universal.session.model import Session

Wire = dict[str, Any]


class Message:
    """One message: its `info`, its parts by id in order, and who knows it."""

    def __init__(self, message: model.Message, session_id: str) -> None:
        self.typed = message
        self._session_id = session_id

    @property
    def info(self) -> Wire:
        """`Message`."""
        return read.info(self.typed.info, self._session_id)

    @property
    def parts(self) -> dict[str, Wire]:
        """Parts by id, in order; texts that stream are empty."""
        return {id_: read.part(part, self._session_id, self.typed.info.id) for id_, part in self.typed.parts.items()}

    @property
    def known_by(self) -> set[str]:
        """Agents that have it in their own conversation."""
        return self.typed.known_by

    @property
    def is_complete(self) -> bool:
        """Whether the model has said all."""
        return self.typed.is_said

    def part(self, part_id: str) -> Wire:
        """A part as it is now, streamed text included."""
        return read.part(self.typed.part(part_id), self._session_id, self.typed.info.id)

    def wire(self) -> Wire:
        """`{info, parts}` as GET gives it."""
        return read.message(self.typed, self._session_id)

    def text(self) -> str:
        """What was said, without thinking and tools."""
        return self.typed.text()


class Messages(Mapping[str, Message]):
    """The messages of a session, by id."""

    def __init__(self, session: model.Session) -> None:
        self._session = session

    def __getitem__(self, key: str) -> Message:
        return Message(self._session.messages[key], self._session.id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._session.messages)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._session.messages)

    def __len__(self) -> int:
        return len(self._session.messages)


class Conversation:
    """Everything that a client can read of one session."""

    def __init__(self, session: model.Session) -> None:
        self.typed = session

    @property
    def info(self) -> Wire:
        """`Session`."""
        return read.session(self.typed.record)

    @property
    def messages(self) -> Messages:
        """By id, in order."""
        return Messages(self.typed)

    @property
    def todos(self) -> list[Wire]:
        """`Todo`s."""
        return [read.todo(todo) for todo in self.typed.todos]

    @property
    def diffs(self) -> list[Wire]:
        """`SnapshotFileDiff`s."""
        return [diff.to_json() for diff in self.typed.diffs]

    @property
    def permissions(self) -> dict[str, Wire]:
        """Open `PermissionRequest`s by id."""
        return {id_: read.request(one, self.id) for id_, one in self.typed.permissions.items()}

    @property
    def questions(self) -> dict[str, Wire]:
        """Open `QuestionRequest`s by id."""
        return {id_: read.request(one, self.id) for id_, one in self.typed.questions.items()}

    @property
    def status(self) -> Wire:
        """`SessionStatus`."""
        return read.status(self.typed.status)

    @property
    def trees(self) -> model.Snapshots:
        """Snapshots of files."""
        return self.typed.snapshots

    @property
    def mcp(self) -> dict[str, Mapping[str, object]]:
        """Agent -> its MCP servers."""
        return dict(self.typed.mcp)

    @property
    def elsewhere(self) -> frozenset[str]:
        """Messages of before the session was moved."""
        return self.typed.elsewhere

    @property
    def id(self) -> str:
        """The session's id."""
        return self.typed.id

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        return self.typed.is_busy

    def oldest_first(self) -> Sequence[Message]:
        """Messages as clients sort them."""
        return [Message(one, self.id) for one in self.typed.oldest_first()]

    def newest_first(self) -> Iterator[Message]:
        """The same from the other end."""
        return (Message(one, self.id) for one in self.typed.newest_first())

    def last_user(self) -> str | None:
        """The id of the newest message of the person's."""
        return self.typed.last_user()


def view(session: Session) -> Conversation:
    """What GET answers are made of."""
    return Conversation(session)


def permissions(manager: SessionManager, directory: str | None = None) -> list[Wire]:
    """`GET /permission`."""
    return [read.request(request, session.id) for session, request in manager.requests.permissions(directory)]


def questions(manager: SessionManager, directory: str | None = None) -> list[Wire]:
    """`GET /question`."""
    return [read.request(request, session.id) for session, request in manager.requests.questions(directory)]


def statuses(manager: SessionManager) -> dict[str, Wire]:
    """`GET /session/status`."""
    return {session_id: read.status(status) for session_id, status in manager.statuses().items()}


def children(manager: SessionManager, session_id: str) -> list[Wire]:
    """`GET /session/ID/children`."""
    return [read.session(record) for record in manager.index.children(session_id)]


def info(manager: SessionManager, session_id: str) -> Wire:
    """`GET /session/ID`."""
    return read.session(manager.index.record(session_id))
