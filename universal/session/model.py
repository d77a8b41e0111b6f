"""What a session is: its record, its messages with their parts, what is asked of the person, its status.

`Session` and `Message` are changed by the reducer alone (`universal.session.reducer`). All other values are frozen: a change
puts a new value in the old one's place, so a value that was read, or sent, stays what it was.
Times are epoch milliseconds, costs US dollars. `extra` holds fields of imported documents that have no place of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from universal.codec import COMPACT
from universal.diffs import FileChange, FileDiff
from universal.events import Question
from universal.items import Json
from universal.permissions import Access

Fields: TypeAlias = Mapping[str, Json]
"""Fields of a JSON object."""

NO_FIELDS: Fields = {}

HANDOVER: Fields = {"handover": True}
"""Metadata of the text by which a person is told that another agent took over. No agent is sent it."""

RUNNING_CHARS = 30_000
"""How much of the output of a running tool is kept; its result has more. As much as native OpenCode shows."""
CUT = "...\n\n"
"""Stands before the output of a running tool whose beginning was cut."""

START_FAILED = "agent_start_failed"
"""Error code of a prompt whose agent did not start."""
NOT_BEGUN = "choice_unknown"
"""Error code of a prompt whose agent or model does not exist: no message carries it, and no answer of the turn has failed."""
START_ERRORS = frozenset({NOT_BEGUN, START_FAILED})
"""Error codes of prompts that no agent was given."""


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model of an agent. `variant` is None where none was named."""

    provider_id: str
    model_id: str
    variant: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. `total` is their sum where the agent has counted a step; a session has none."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int | None = None

    @classmethod
    def of(cls, usage: Mapping[str, Json] | None) -> Usage:
        """The counts of a universal `usage`; zeros when there is none."""
        if not usage:
            return cls()
        names = ("input", "output", "reasoning", "cache_read", "cache_write")
        counts = {name: int(usage.get(name) or 0) for name in names}
        return cls(**counts, total=sum(counts.values()))

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.reasoning + other.reasoning,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a prompt failed. `details` as in `ErrorData`; `agent` is the agent that failed."""

    message: str
    code: str | None = None
    details: Fields | None = None
    agent: str = ""


ABORTED = Failure("Aborted", "aborted")


@dataclass(frozen=True, slots=True)
class Todo:
    """An entry of the session's todo list."""

    content: str
    status: str = "pending"
    priority: str = "medium"
    extra: Fields = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class Status:
    """What the session does. `attempt`, `message`, `next_ms` belong to `retry`: when the agent asks its model again."""

    type: Literal["idle", "busy", "retry"] = "idle"
    attempt: int = 0
    message: str = ""
    next_ms: int = 0


IDLE, BUSY = Status("idle"), Status("busy")


@dataclass(frozen=True, slots=True)
class DiffTotals:
    """Lines added and removed, and how many files changed."""

    additions: int
    deletions: int
    files: int

    @classmethod
    def of(cls, diffs: Sequence[FileDiff]) -> DiffTotals:
        """The totals of these diffs."""
        return cls(sum(d.additions for d in diffs), sum(d.deletions for d in diffs), len(diffs))


@dataclass(frozen=True, slots=True)
class Revert:
    """An undo that can be taken back: from this message (or part of it) on. `snapshot`: the files of before; `diff`: to now."""

    message_id: str
    part_id: str | None = None
    snapshot: str | None = None
    diff: str | None = None


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What a session is, without its messages. `mode` is the mode of its last prompt (build, plan ...).

    permission  the session's own rules, as JSON; None where it has none
    share       `{url}` of its public page
    """

    id: str
    slug: str = ""
    version: str = ""
    project_id: str = "global"
    directory: str = "/"
    path: str | None = None
    title: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    archived_ms: int | None = None
    parent_id: str | None = None
    mode: str | None = None
    model: ModelRef | None = None
    cost: float = 0
    usage: Usage = field(default_factory=Usage)
    permission: tuple[Json, ...] | None = None
    metadata: Fields | None = None
    share: Fields | None = None
    summary: DiffTotals | None = None
    revert: Revert | None = None
    extra: Fields = field(default_factory=dict[str, Json])


# --- parts -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Words of a message. `synthetic`: not the person's or the model's own; `ignored`: shown, but sent to no agent."""

    id: str
    text: str
    start_ms: int | None = None
    end_ms: int | None = None
    synthetic: bool | None = None
    ignored: bool | None = None
    metadata: Fields | None = None
    extra: Fields = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The model's thinking."""

    id: str
    text: str
    start_ms: int | None = None
    end_ms: int | None = None
    metadata: Fields | None = None
    extra: Fields = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class File:
    """An attached file: a `file:`, `data:` or `https:` URL."""

    id: str
    mime: str
    url: str
    filename: str | None = None
    source: Fields | None = None
    extra: Fields = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class AgentMention:
    """`@name` in a prompt: a subagent that is to be called."""

    id: str
    name: str
    source: Fields | None = None
    extra: Fields = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class CompactionMark:
    """A user message that asks for a compaction, or stands for one that the agent began by itself (`auto`)."""

    id: str
    auto: bool
    extra: Fields = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class StepStart:
    """A step of the model begins. `snapshot`: the files of then."""

    id: str
    snapshot: str | None = None
    extra: Fields = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class StepFinish:
    """A step of the model is over."""

    id: str
    reason: str
    cost: float
    usage: Usage
    snapshot: str | None = None
    extra: Fields = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class Patch:
    """Files that a step has changed (absolute paths); `hash` is the snapshot before it."""

    id: str
    hash: str
    files: tuple[str, ...]
    extra: Fields = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call, by the names of `universal.tools`: `tool`, `input`, and when it is over what its card shows.

    name        the agent's own name of the tool
    output      what a running call has written (its last RUNNING_CHARS), then its result
    refused     the words of a person's refusal, which become its error
    child_id    the subagent's session that it has opened
    raw         the arguments as text, of a call that was imported while it was pending
    state_extra fields of an imported call's state
    """

    id: str
    call_id: str
    tool: str
    input: Fields = field(default_factory=dict[str, Json])
    name: str = ""
    status: Literal["pending", "running", "completed", "error"] = "pending"
    start_ms: int = 0
    end_ms: int = 0
    title: str | None = None
    output: str = ""
    metadata: Fields | None = None
    error: str = ""
    attachments: tuple[Part, ...] | None = None
    refused: str | None = None
    child_id: str | None = None
    raw: str = ""
    extra: Fields = field(default_factory=dict[str, Json])
    state_extra: Fields = field(default_factory=dict[str, Json])

    def wrote(self, text: str) -> str:
        """Its output with more of it, cut to the last RUNNING_CHARS: each piece sends all that is kept."""
        output = self.output + text
        return output if len(output) <= RUNNING_CHARS else CUT + output[-RUNNING_CHARS:]


@dataclass(frozen=True, slots=True)
class OtherPart:
    """A part that means nothing to us (a subtask, a retry, a snapshot of another server): kept field by field."""

    id: str
    type: str
    fields: Fields


Part: TypeAlias = Text | Reasoning | File | AgentMention | CompactionMark | StepStart | StepFinish | Patch | ToolCall | OtherPart


# --- messages --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A prompt. `diffs`: what its answer has changed; None until the answer is over."""

    id: str
    created_ms: int
    mode: str
    model: ModelRef
    system: str | None = None
    tools: Fields | None = None
    format: Fields | None = None
    diffs: tuple[FileDiff, ...] | None = None
    extra: Fields = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class StepInfo:
    """One step of the model: an assistant's message. `parent_id` is the prompt that it answers.

    compacts  it is the summary of a compaction
    """

    id: str
    parent_id: str
    created_ms: int
    mode: str
    model: ModelRef
    cwd: str
    root: str
    cost: float = 0
    usage: Usage = field(default_factory=Usage)
    completed_ms: int | None = None
    finish: str | None = None
    error: Failure | None = None
    compacts: bool = False
    extra: Fields = field(default_factory=dict[str, Json])


@dataclass(slots=True)
class Message:
    """One message: its `info`, its parts by id in order, and the reducer's notes.

    known_by    agents that have this message in their own conversation
    streaming   pieces so far of parts that still grow
    text_parts  index of a part of the agent's item -> id of the part
    open_calls  calls without a result
    is_said     the model has said all; only results of its calls are missing
    is_over     nothing more comes
    """

    info: UserInfo | StepInfo
    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    known_by: set[str] = field(default_factory=set[str])
    streaming: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    text_parts: dict[int, str] = field(default_factory=dict[int, str])
    open_calls: set[str] = field(default_factory=set[str])
    had_calls: bool = False
    is_said: bool = False
    is_over: bool = False
    finish: str | None = None

    @property
    def is_user(self) -> bool:
        """Whether the person said it."""
        return isinstance(self.info, UserInfo)

    def part(self, part_id: str) -> Part:
        """A part as it is now, with the text that has streamed. Raises KeyError."""
        part, pieces = self.parts[part_id], self.streaming.get(part_id)
        if pieces is None:
            return part
        words = "".join(pieces)
        if isinstance(part, Text):
            return Text(part.id, words, part.start_ms, part.end_ms, part.synthetic, part.ignored, part.metadata, part.extra)
        if isinstance(part, Reasoning):
            return Reasoning(part.id, words, part.start_ms, part.end_ms, part.metadata, part.extra)
        return part

    def all_parts(self) -> Iterator[Part]:
        """All parts as they are now, in order."""
        return map(self.part, self.parts)

    def text(self) -> str:
        """What was said, without thinking, tools and synthetic texts."""
        return "\n".join(part.text for part in self.all_parts() if isinstance(part, Text) and not part.synthetic)


# --- what is asked ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallRef:
    """Where a tool call stands: its message and its id."""

    message_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A permission that a person is asked for. `call` is the tool call that needs it."""

    id: str
    access: Access
    call: CallRef | None = None


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """Questions that a person is asked together. `call` is the tool call that asks."""

    id: str
    questions: tuple[Question, ...]
    call: CallRef | None = None


@dataclass(slots=True)
class Snapshots:
    """The session's snapshots of files. All are names of trees; None as long as there is none.

    first   before the session's first turn           base     before the prompt that is being answered
    last    the newest one                            restored right after an undo has put files back
    is_on   snapshots are taken in this turn          is_due   a tool was called since `base`
    diffs   the session's diffs of before an undo, for the redo
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
    changes     what tools have told of changed files, of all turns
    mcp         agent -> its MCP servers as it told them last: {name: {status, error?}}
    elsewhere   messages of before the session was moved: their snapshots and files belong to another directory
    in_order    whether `messages` are in order of time; not when the clock was put back
    lasting     how many changes so far are part of the session's history (`universal.session.changes.LASTING`)
    """

    record: SessionRecord
    agent: str
    is_begun: bool = False
    messages: dict[str, Message] = field(default_factory=dict[str, Message])
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
    lasting: int = 0

    @property
    def id(self) -> str:
        """The session's id."""
        return self.record.id

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs."""
        return self.status.type != "idle"

    def add(self, message: Message) -> None:
        """A new message, the last one; or another in the place of one with its id."""
        last = next(reversed(self.messages.values()), message)
        self.in_order = self.in_order and last.info.created_ms <= message.info.created_ms
        self.messages[message.info.id] = message

    def oldest_first(self) -> Sequence[Message]:
        """Messages as clients sort them: by time, then as they came."""
        found = list(self.messages.values())
        return found if self.in_order else sorted(found, key=lambda message: message.info.created_ms)

    def newest_first(self) -> Iterator[Message]:
        """The same from the other end; without a look at all of them if they are in order."""
        return reversed(self.messages.values() if self.in_order else self.oldest_first())

    def last_user(self) -> str | None:
        """The id of the newest prompt."""
        return next((id_ for id_, message in reversed(self.messages.items()) if message.is_user), None)

    def call(self, call_id: str) -> ToolCall | None:
        """A tool call as it is now."""
        message_id, part_id = self.calls.get(call_id, ("", ""))
        message = self.messages.get(message_id)
        part = message.parts.get(part_id) if message is not None else None
        return part if isinstance(part, ToolCall) else None

    def is_wish_to_compact(self, message_id: str | None) -> bool:
        """Whether this prompt asks for a compaction, by its own request or as the agent's command."""
        message = self.messages.get(message_id or "")
        parts = message.parts.values() if message is not None else ()
        return any(isinstance(p, CompactionMark) or (isinstance(p, Text) and p.text.startswith(COMPACT)) for p in parts)
