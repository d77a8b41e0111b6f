"""The model of a session: record, messages with parts, timeline, open requests and status.

`Session` and `Message` are changed by the reducer alone (`universal.session.reducer`). All that they hold is frozen
(`universal.session.values`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from universal.codec import COMPACT
from universal.lib.diffs import FileChange, FileDiff
from universal.session.entries import Timeline
from universal.session.messages import Message, Messages
from universal.session.values import (
    IDLE,
    CompactionMark,
    Fields,
    PermissionRequest,
    QuestionRequest,
    SessionRecord,
    Status,
    Text,
    Todo,
    ToolCall,
)


@dataclass(slots=True)
class Snapshots:
    """The session's snapshots of files. All are names of trees; None as long as there is none.

    first     before the session's first turn
    base      before the prompt that is being answered
    last      the newest one
    restored  right after an undo has put files back
    is_on     snapshots are taken in this turn
    is_due    a tool was called since `base`
    diffs     the session's diffs before an undo, for the redo
    """

    first: str | None = None
    base: str | None = None
    last: str | None = None
    restored: str | None = None
    is_on: bool = False
    is_due: bool = False
    diffs: tuple[FileDiff, ...] | None = None


@dataclass(slots=True)
class Session:
    """Everything that a client can read of one session.

    agent       the agent that answers, or answered last
    calls       call id -> the message and part that show it
    changes     changes of files that tools reported, of all turns since the session was moved last
    mcp         agent -> its MCP servers as it reported them last: {name: {status, error?}}
    elsewhere   messages of before the session was moved: their snapshots and files belong to another directory
    in_order    whether `messages` are in order of time; not when the clock was put back
    timeline    the conversation in the order in which it happened, with choices and ends of turns
    """

    record: SessionRecord
    agent: str
    is_begun: bool = False
    messages: Messages = field(default_factory=Messages)
    todos: tuple[Todo, ...] = ()
    diffs: tuple[FileDiff, ...] = ()
    permissions: dict[str, PermissionRequest] = field(default_factory=dict[str, PermissionRequest])
    questions: dict[str, QuestionRequest] = field(default_factory=dict[str, QuestionRequest])
    status: Status = IDLE
    calls: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    changes: list[FileChange] = field(default_factory=list[FileChange])
    snapshots: Snapshots = field(default_factory=Snapshots)
    mcp: dict[str, Fields] = field(default_factory=dict[str, Fields])
    elsewhere: frozenset[str] = frozenset()
    in_order: bool = True
    timeline: Timeline = field(default_factory=Timeline)

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def is_busy(self) -> bool:
        return self.status.type != "idle"

    def copy(self) -> Session:
        """A copy of what clients can read of the session, as it is now."""
        messages = self.messages.copy()
        permissions, questions = dict(self.permissions), dict(self.questions)
        return replace(self, messages=messages, permissions=permissions, questions=questions, timeline=self.timeline.copy())

    def add(self, message: Message) -> None:
        """Append a message, or replace the one that has its id."""
        last = self.messages.newest or message
        self.in_order = self.in_order and last.info.created_ms <= message.info.created_ms
        self.messages[message.info.id] = message

    def oldest_first(self) -> Iterable[Message]:
        """Messages as clients sort them, by time, then as they came; to be read only."""
        return self.messages.values() if self.in_order else filter(None, map(self.messages.peek, self.ids_by_time()))

    def ids_by_time(self) -> Sequence[str]:
        """The ids of the same messages in the same order."""
        if self.in_order:
            return list(self.messages)
        return [id_ for id_, _ in sorted(self.messages.times(), key=lambda row: row[1])]

    def newest_first(self) -> Iterator[Message]:
        """The messages newest first. Does not visit all of them if they are in order of time."""
        if self.in_order:
            return reversed(self.messages.values())
        return filter(None, map(self.messages.peek, reversed(self.ids_by_time())))

    def ids_newest_first(self) -> Iterator[str]:
        """The ids of the same messages in the same order."""
        return reversed(self.messages) if self.in_order else reversed(self.ids_by_time())

    def last_user(self) -> str | None:
        """The id of the newest prompt."""
        return next((id_ for id_, message in self.messages.newest_first() if message.is_user), None)

    def call(self, call_id: str) -> ToolCall | None:
        """The current state of a tool call."""
        message_id, part_id = self.calls.get(call_id, ("", ""))
        message = self.messages.peek(message_id)
        part = message.parts.get(part_id) if message is not None else None
        return part if isinstance(part, ToolCall) else None

    def is_wish_to_compact(self, message_id: str | None) -> bool:
        """Whether this prompt asks for a compaction, by its own request or as the agent's command."""
        message = self.messages.peek(message_id or "")
        parts = message.parts.values() if message is not None else ()
        return any(isinstance(p, CompactionMark) or (isinstance(p, Text) and p.text.startswith(COMPACT)) for p in parts)
