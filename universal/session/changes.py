"""The typed changes of a session that the reducer returns and faces render. Pure.

A change carries the new value as it was then, so it stays true when it is rendered later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from universal.items import Json
from universal.lib.diffs import FileDiff
from universal.limits import PlanWindow
from universal.permissions import Decision
from universal.session import values
from universal.session.log import LogAppended


@dataclass(frozen=True, slots=True)
class SessionCreated:
    """The session exists."""

    record: values.SessionRecord


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """The session's record has changed."""

    record: values.SessionRecord


@dataclass(frozen=True, slots=True)
class SessionDeleted:
    """The session was deleted. No change follows this one."""

    record: values.SessionRecord


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The session became busy or idle, or waits for a retry."""

    status: values.Status


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn is over. Always the last change of a turn, right after `StatusChanged(IDLE)`."""

    reason: str


@dataclass(frozen=True, slots=True)
class PromptFailed:
    """The prompt that is being answered has failed, or was aborted."""

    failure: values.Failure


@dataclass(frozen=True, slots=True)
class DiffsChanged:
    """The session's file diffs have changed."""

    diffs: tuple[FileDiff, ...]


@dataclass(frozen=True, slots=True)
class TodosChanged:
    """The session's todo list has changed."""

    todos: tuple[values.Todo, ...]


@dataclass(frozen=True, slots=True)
class CommandExecuted:
    """A slash command was carried out; `message_id` is its last answer."""

    name: str
    arguments: str
    message_id: str


@dataclass(frozen=True, slots=True)
class SessionCompacted:
    """The agent has compacted its conversation."""


@dataclass(frozen=True, slots=True)
class ServersReported:
    """The agent has reported the state of its MCP servers."""

    servers: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class LimitsReported:
    """The agent has reported how far the limits of the person's plan are used."""

    windows: Sequence[PlanWindow]


@dataclass(frozen=True, slots=True)
class Notice:
    """Information for the person that no message contains. `title`: the session's, since a client shows notices of many."""

    text: str
    level: Literal["info", "warning"]
    title: str


@dataclass(frozen=True, slots=True)
class FileEdited:
    """A tool has changed a file. The path is as the agent reported it."""

    path: str


@dataclass(frozen=True, slots=True)
class MessageChanged:
    """A message is new, or its `info` has changed."""

    info: values.UserInfo | values.StepInfo


@dataclass(frozen=True, slots=True)
class MessageRemoved:
    """A message was removed."""

    message_id: str


@dataclass(frozen=True, slots=True)
class PartChanged:
    """A part is new, or has changed. `is_empty`: a streaming text that has no words yet."""

    message_id: str
    part: values.Part
    at_ms: int
    is_empty: bool = False


class TextGrew(NamedTuple):
    """A text or a thought has grown by `delta`.

    pieces  how many the part has so far, with this one
    place   where it stands in the session's log (`Timeline.last_id` and `last_tail`); pieces of text are no events of the log
    """

    message_id: str
    part_id: str
    delta: str
    pieces: int = 0
    place: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class PartRemoved:
    """A part was removed."""

    message_id: str
    part_id: str


@dataclass(frozen=True, slots=True)
class RequestOpened:
    """A permission request or a question for the person was opened."""

    request: values.PermissionRequest | values.QuestionRequest


@dataclass(frozen=True, slots=True)
class RequestClosed:
    """A permission request or a question was answered, refused or withdrawn.

    answer   permission: `accept`, `accept_for_session`, `reject`; question: `answered`, `rejected`
    answers  of each question, if answered
    """

    request: values.PermissionRequest | values.QuestionRequest
    answer: Decision | Literal["answered", "rejected"]
    answers: tuple[tuple[str, ...], ...] = ()


Change: TypeAlias = (
    SessionCreated
    | SessionChanged
    | SessionDeleted
    | StatusChanged
    | TurnEnded
    | PromptFailed
    | DiffsChanged
    | TodosChanged
    | CommandExecuted
    | SessionCompacted
    | ServersReported
    | LimitsReported
    | Notice
    | FileEdited
    | MessageChanged
    | MessageRemoved
    | PartChanged
    | TextGrew
    | PartRemoved
    | RequestOpened
    | RequestClosed
    | LogAppended
)
