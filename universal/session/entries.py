"""A session's timeline: what happened in it, in order, and what is under way.

Entries refer to messages and parts by id and hold only what these do not say, so that a text is kept once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeAlias

from universal.lib.diffs import FileDiff
from universal.session import values
from universal.session.pages import PagedDict
from universal.session.user_prompt import NO_DETAILS, PromptDetails
from universal.session.values import IDLE

Outcome: TypeAlias = Literal["succeeded", "failed", "interrupted"]
"""How a turn ended."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The model gave no answer and is asked again at `at_ms`. `attempt` counts all attempts."""

    attempt: int
    at_ms: int
    message: str


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A text or a thought of a step. `ordinal` counts for each kind.

    created_ms  None after a person has rewritten the message
    is_ended    it is complete, as far as clients were told
    text        what had been said when it ended early, because the model went on; None: all of the part
    """

    part_id: str
    is_thought: bool
    ordinal: int
    created_ms: int | None
    ended_ms: int | None = None
    is_ended: bool = False
    text: str | None = None


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A tool call of a step.

    tool      its name when it was first seen: a result may change it
    ran_ms    when its arguments were complete; None before that
    input     the arguments with which it ran, if its result has changed them
    progress  its progress reports while it runs
    refused   the person's words, if it failed because the person refused it
    """

    call_id: str
    part_id: str
    tool: str
    created_ms: int
    ran_ms: int | None = None
    completed_ms: int | None = None
    input: values.Fields | None = None
    progress: values.Fields | None = None
    refused: str | None = None


Piece: TypeAlias = TextPiece | CallPiece


@dataclass(frozen=True, slots=True)
class StepEntry:
    """One step of the model. `message_id` is empty for a step that a retry announced and that did not come.

    snapshot, end_snapshot  hashes of the files before and after it
    streamed_ms             when its first piece came
    finish                  why it ended, if it did not fail
    cost, usage             as they were when it ended; None for a failed step that cost nothing
    files                   paths that it changed
    retry                   the next try, while one is due
    """

    id: str
    message_id: str
    created_ms: int
    mode: str
    model: values.ModelRef
    directory: str
    content: tuple[Piece, ...] = ()
    snapshot: str | None = None
    streamed_ms: int | None = None
    completed_ms: int | None = None
    finish: str | None = None
    failure: values.Failure | None = None
    cost: float | None = None
    usage: values.Usage | None = None
    end_snapshot: str | None = None
    files: tuple[str, ...] = ()
    retry: Retry | None = None


@dataclass(frozen=True, slots=True)
class PendingPrompt:
    """An accepted prompt that no agent has yet. `number`: of its acceptance in the log.

    details  what its sender said beside its parts; its kind and delivery are only in `kind` and `delivery`
    """

    id: str
    kind: Literal["user", "synthetic", "compaction"]
    delivery: Literal["steer", "queue"]
    accepted_ms: int
    number: int = 0
    details: PromptDetails = NO_DETAILS


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """A prompt that an agent got at `created_ms`."""

    id: str
    created_ms: int
    prompt: PendingPrompt


@dataclass(frozen=True, slots=True)
class CompactionEntry:
    """The agent has compacted its conversation. `prompt_id` is the prompt that asked for it."""

    id: str
    message_id: str
    created_ms: int
    is_auto: bool
    prompt_id: str | None = None
    status: Literal["running", "completed", "failed"] = "running"
    failure: values.Failure | None = None


@dataclass(frozen=True, slots=True)
class ShellEntry:
    """A shell command that the person ran."""

    id: str
    message_id: str
    call_id: str
    created_ms: int
    command: str
    directory: str
    status: Literal["running", "exited", "killed"] = "running"
    exit: int | None = None
    completed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ModeEntry:
    """Another mode was chosen."""

    id: str
    created_ms: int
    mode: str
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """Another model was chosen."""

    id: str
    created_ms: int
    model: values.ModelRef
    previous: values.ModelRef | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session works: its directory, its project, and its path within the project."""

    directory: str
    project_id: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class MovedEntry:
    """The session moved to another place."""

    id: str
    created_ms: int
    place: Place
    previous: Place


@dataclass(frozen=True, slots=True)
class SkillEntry:
    """A skill was put into the conversation."""

    id: str
    created_ms: int
    skill_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class NoteEntry:
    """A text was put into the conversation without asking an agent to answer it."""

    id: str
    created_ms: int
    text: str
    description: str | None = None
    metadata: values.Fields | None = None


@dataclass(frozen=True, slots=True)
class InstructionsEntry:
    """The agent got new instructions with a prompt."""

    id: str
    created_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class EndEntry:
    """A turn ended. `failure`: why it failed; None if no reason is known."""

    id: str
    created_ms: int
    outcome: Outcome
    failure: values.Failure | None = None


Entry: TypeAlias = (
    StepEntry
    | PromptEntry
    | CompactionEntry
    | ShellEntry
    | ModeEntry
    | ModelEntry
    | MovedEntry
    | SkillEntry
    | NoteEntry
    | InstructionsEntry
    | EndEntry
)


class Entries(PagedDict[Entry]):
    """The entries of a timeline by id, in order; old ones are packed (`universal.session.pages`)."""

    __slots__ = ()

    LOOSE: ClassVar[int] = 192
    PAGE_SIZE: ClassVar[int] = 128
    IS_FROZEN: ClassVar[bool] = True

    def _time_of(self, value: Entry) -> int:
        return value.created_ms


@dataclass(frozen=True, slots=True)
class StagedUndo:
    """An undo that can be taken back, with the diffs of what it has undone."""

    revert: values.Revert
    diffs: tuple[FileDiff, ...]


@dataclass(frozen=True, slots=True)
class ClosedQuestion:
    """A question that is no longer open. `answers` are None if it was dismissed or withdrawn."""

    request: values.QuestionRequest
    answers: tuple[tuple[str, ...], ...] | None = None


@dataclass(slots=True)
class Timeline:
    """What happened in a session, in order, and what is under way. Changed by `universal.session.timeline` alone.

    entries      by id, in order
    inbox        prompts that wait, by id, in order
    ids          id of a message -> id of its entry, where the two differ
    hidden       messages that exist and whose entries an undo has cut off
    wishes       prompts that ask for a compaction -> number of their acceptance in the log
    shells       messages of a person's commands -> their entry, "" until the command begins
    questions    those that are closed, by id
    record       the session's record as last emitted
    mode, model  the last choice, else those of the first step
    usage, cost  of all steps so far
    open         messages whose step has not ended
    held         messages whose step has ended, and whose end is not yet emitted
    promised     the entry of a step that a retry announced
    cancelled    the last cancelled prompt
    items        item of a call -> its call id
    status       the last emitted status
    asked_ms     when the model last got something to answer
    number       number of durable events of the log so far
    last_id, last_tail, companions  value and tail of the last event's id, and how many events share it
    highest_id   the highest value in an id of a message or part
    """

    entries: Entries = field(default_factory=Entries)
    inbox: dict[str, PendingPrompt] = field(default_factory=dict[str, PendingPrompt])
    ids: dict[str, str] = field(default_factory=dict[str, str])
    hidden: set[str] = field(default_factory=set[str])
    wishes: dict[str, int] = field(default_factory=dict[str, int])
    shells: dict[str, str] = field(default_factory=dict[str, str])
    questions: dict[str, ClosedQuestion] = field(default_factory=dict[str, ClosedQuestion])
    record: values.SessionRecord | None = None
    fork: values.ForkSource | None = None
    mode: str | None = None
    model: values.ModelRef | None = None
    usage: values.Usage = field(default_factory=values.Usage)
    cost: float = 0
    outcome: Outcome | None = None
    idle_ms: int | None = None
    viewed_ms: int | None = None
    staged: StagedUndo | None = None
    is_running: bool = False
    open: list[str] = field(default_factory=list[str])
    held: list[str] = field(default_factory=list[str])
    promised: str = ""
    cancelled: str = ""
    items: dict[str, str] = field(default_factory=dict[str, str])
    status: values.Status = IDLE
    failure: values.Failure | None = None
    asked_ms: int = 0
    number: int = 0
    last_id: int = 0
    last_tail: int = 0
    companions: int = 0
    highest_id: int = -1

    def entry_of(self, message_id: str) -> Entry | None:
        """The entry that shows a message."""
        return self.entries.get(self.ids.get(message_id, message_id))

    def copy(self) -> Timeline:
        """A copy of the timeline's readable state as it is now."""
        return replace(
            self, entries=self.entries.copy(), inbox=dict(self.inbox), ids=dict(self.ids), questions=dict(self.questions)
        )
