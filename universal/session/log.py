"""The events of a session's log: typed, each with an id and a number. Pure.

An event carries the new entry as it was then, so it stays true when it is rendered later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from universal.permissions import Decision
from universal.session import entries, values


class LogEvent:
    """An event of a log."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SessionBegan(LogEvent):
    """The session exists."""

    record: values.SessionRecord
    fork: values.ForkSource | None = None


@dataclass(frozen=True, slots=True)
class TitleChanged(LogEvent):
    """The session has another title."""

    record: values.SessionRecord


@dataclass(frozen=True, slots=True)
class MetadataChanged(LogEvent):
    """The session has other metadata."""

    record: values.SessionRecord


@dataclass(frozen=True, slots=True)
class RulesChanged(LogEvent):
    """The session has other permission rules."""

    record: values.SessionRecord


@dataclass(frozen=True, slots=True)
class SessionArchived(LogEvent):
    """The session was put into the archive."""


@dataclass(frozen=True, slots=True)
class SessionUnarchived(LogEvent):
    """The session was taken out of the archive."""


@dataclass(frozen=True, slots=True)
class SessionViewed(LogEvent):
    """A person has seen the end of the turn that was over at `idle_ms`."""

    idle_ms: int


@dataclass(frozen=True, slots=True)
class EntryAdded(LogEvent):
    """An entry was added that needs no event type of its own."""

    entry: entries.ModeEntry | entries.ModelEntry | entries.MovedEntry | entries.SkillEntry | entries.NoteEntry


@dataclass(frozen=True, slots=True)
class InstructionsChanged(LogEvent):
    """Instructions have changed. `entry` is None for the first ones of a session, which are no message."""

    delta: values.Fields | None
    entry: entries.InstructionsEntry | None


@dataclass(frozen=True, slots=True)
class PromptAccepted(LogEvent):
    """A prompt was accepted and waits in the inbox."""

    prompt: entries.PendingPrompt


@dataclass(frozen=True, slots=True)
class PromptDelivered(LogEvent):
    """An agent was given a prompt. `is_again`: after an undo of what came before it."""

    prompt: entries.PendingPrompt
    is_again: bool = False


@dataclass(frozen=True, slots=True)
class PromptWithdrawn(LogEvent):
    """A prompt that waited will never be delivered."""

    prompt_id: str


@dataclass(frozen=True, slots=True)
class DeliveryChanged(LogEvent):
    """The delivery of a waiting prompt has changed."""

    prompt_id: str
    delivery: Literal["steer", "queue"]


@dataclass(frozen=True, slots=True)
class TurnBegan(LogEvent):
    """A turn runs."""


@dataclass(frozen=True, slots=True)
class TurnOver(LogEvent):
    """A turn has ended."""

    entry: entries.EndEntry


@dataclass(frozen=True, slots=True)
class StatusEmitted(LogEvent):
    """The session's status has changed. Follows the event that changed it."""

    status: values.Status


@dataclass(frozen=True, slots=True)
class WentIdle(LogEvent):
    """The session is idle. No event of the turn follows."""


@dataclass(frozen=True, slots=True)
class UsageChanged(LogEvent):
    """What the session has cost so far."""

    usage: values.Usage
    cost: float


@dataclass(frozen=True, slots=True)
class StepBegan(LogEvent):
    """A step of the model begins, or goes on after a retry; the model was asked at `started_ms`."""

    entry: entries.StepEntry
    started_ms: int


@dataclass(frozen=True, slots=True)
class StepStreamed(LogEvent):
    """The model's output of a step is complete; its tools may still run."""

    step_id: str


@dataclass(frozen=True, slots=True)
class StepEnded(LogEvent):
    """A step has ended without a failure."""

    entry: entries.StepEntry


@dataclass(frozen=True, slots=True)
class StepFailed(LogEvent):
    """A step has failed. `is_paid`: it cost something."""

    entry: entries.StepEntry
    is_paid: bool = False


@dataclass(frozen=True, slots=True)
class RetryScheduled(LogEvent):
    """The model is asked again later; `entry.retry` says when."""

    entry: entries.StepEntry


@dataclass(frozen=True, slots=True)
class TextBegan(LogEvent):
    """A text or a thought begins."""

    step_id: str
    piece: entries.TextPiece


@dataclass(frozen=True, slots=True)
class TextEnded(LogEvent):
    """A text or a thought is complete."""

    step_id: str
    piece: entries.TextPiece
    text: str


@dataclass(frozen=True, slots=True)
class CallBegan(LogEvent):
    """The model begins to call a tool."""

    step_id: str
    piece: entries.CallPiece


@dataclass(frozen=True, slots=True)
class CallInputGrew(LogEvent):
    """A piece of a call's arguments, in the agent's own words."""

    step_id: str
    call_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class CallInputEnded(LogEvent):
    """The arguments of a call are complete."""

    step_id: str
    piece: entries.CallPiece
    call: values.ToolCall


@dataclass(frozen=True, slots=True)
class CallRan(LogEvent):
    """A tool runs."""

    step_id: str
    piece: entries.CallPiece
    call: values.ToolCall


@dataclass(frozen=True, slots=True)
class CallProgressed(LogEvent):
    """A running tool reports progress."""

    step_id: str
    piece: entries.CallPiece
    call: values.ToolCall


@dataclass(frozen=True, slots=True)
class CallSucceeded(LogEvent):
    """A tool is done."""

    entry: entries.StepEntry
    piece: entries.CallPiece
    call: values.ToolCall


@dataclass(frozen=True, slots=True)
class CallFailed(LogEvent):
    """A tool has failed, was refused or was interrupted."""

    step_id: str
    piece: entries.CallPiece
    call: values.ToolCall


@dataclass(frozen=True, slots=True)
class CompactionBegan(LogEvent):
    """The agent begins to compact its conversation."""

    entry: entries.CompactionEntry


@dataclass(frozen=True, slots=True)
class CompactionEnded(LogEvent):
    """The compaction is complete: the summary replaces the conversation."""

    entry: entries.CompactionEntry
    summary: str


@dataclass(frozen=True, slots=True)
class CompactionFailed(LogEvent):
    """The compaction has failed; the conversation is unchanged."""

    entry: entries.CompactionEntry


@dataclass(frozen=True, slots=True)
class ShellBegan(LogEvent):
    """A person's command runs."""

    entry: entries.ShellEntry


@dataclass(frozen=True, slots=True)
class ShellEnded(LogEvent):
    """A person's command is done."""

    entry: entries.ShellEntry
    call: values.ToolCall


@dataclass(frozen=True, slots=True)
class UndoStaged(LogEvent):
    """An undo was staged and can still be taken back."""

    undo: entries.StagedUndo


@dataclass(frozen=True, slots=True)
class UndoCleared(LogEvent):
    """An undo was taken back."""


@dataclass(frozen=True, slots=True)
class UndoCommitted(LogEvent):
    """Entries from this one on were removed, by a final undo or with a removed message."""

    entry_id: str


@dataclass(frozen=True, slots=True)
class ContentChanged(LogEvent):
    """A person has rewritten a step, or removed it: then it has no content."""

    entry: entries.StepEntry


@dataclass(frozen=True, slots=True)
class PermissionAsked(LogEvent):
    """A person is asked for a permission."""

    request: values.PermissionRequest


@dataclass(frozen=True, slots=True)
class PermissionAnswered(LogEvent):
    """A permission was given, refused or withdrawn."""

    request: values.PermissionRequest
    answer: Decision


@dataclass(frozen=True, slots=True)
class QuestionAsked(LogEvent):
    """A person is asked something."""

    request: values.QuestionRequest


@dataclass(frozen=True, slots=True)
class QuestionClosed(LogEvent):
    """A question was answered, dismissed or withdrawn."""

    question: entries.ClosedQuestion


LIVE_ONLY = frozenset(
    {
        *(StatusEmitted, WentIdle, UsageChanged, CallInputGrew, CallProgressed),
        *(PermissionAsked, PermissionAnswered, QuestionAsked, QuestionClosed),
    }
)
"""Events that have no number: whoever was not there reads the session instead. Pieces of text are no events of the log: they are
the change `TextGrew`."""


@dataclass(frozen=True, slots=True)
class LogAppended:
    """A change of the session: an event of its log.

    id          without the prefix of its kind
    number      its place among the durable events, from 0; None: it is live only
    created_ms  when it happened
    """

    id: str
    number: int | None
    created_ms: int
    event: LogEvent
