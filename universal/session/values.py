"""The frozen values of a session: its record, parts, the infos of messages, and requests to the person.

A change puts a new value in the old one's place, so a value that was read, or sent, stays what it was.
Times are epoch milliseconds, costs US dollars. `extra` holds fields of imported documents that have no place of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from universal.events import Question
from universal.items import Json
from universal.lib.diffs import FileDiff
from universal.permissions import Access

Fields: TypeAlias = Mapping[str, Json]
"""Fields of a JSON object."""

NO_FIELDS: Fields = {}

OWNER_KEY = "owner"
"""Key of a session's owner in the metadata that OpenCode's clients see."""


def without_owner(metadata: Fields | None) -> Fields | None:
    """A client's metadata without the owner that it was shown, or claims."""
    return {key: value for key, value in metadata.items() if key != OWNER_KEY} if metadata else metadata


HANDOVER: Fields = {"handover": True}
"""Metadata of the text by which a person is told that another agent took over. No agent is sent it."""

CONTEXT_FULL = frozenset(
    {"context_full", "prompt_too_long", "contextWindowExceeded", "context_length_exceeded", "model_context_window_exceeded"}
)
"""Codes of errors that say that the conversation does not fit into the model any more."""

RUNNING_CHARS = 30_000
"""How much of the output of a running tool is kept; its result has more. As much as native OpenCode shows."""
CUT = "...\n\n"
"""Stands before the output of a running tool whose beginning was cut."""

START_FAILED = "agent_start_failed"
"""Error code of a prompt whose agent did not start."""
NOT_BEGUN = "choice_unknown"
"""Error code of a prompt whose agent or model does not exist: no message carries it, and no answer of the turn has failed."""
RETRY_FAILED = "retry_failed"
"""Failure code of a step whose model never answered, though it was asked again."""
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
class ForkSource:
    """The session that this one is a copy of, up to a message. `is_included`: the message is in the copy."""

    session_id: str
    message_id: str
    is_included: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a prompt failed. `details` as in `ErrorData`; `agent` is the agent that failed."""

    message: str
    code: str | None = None
    details: Fields | None = None
    agent: str = ""


NOT_STRUCTURED = "StructuredOutputError"
"""Code of the failure of an answer that is not in the schema of its prompt. `details` has `retries`."""
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
    """The session's status. `attempt`, `message`, `next_ms` belong to `retry`: when the agent asks its model again."""

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
    """The record of a session, without its messages. `mode` is the mode of its last prompt (build, plan ...).

    permission  the session's own rules, as JSON; None where it has none
    share       `{url}` of its public page
    title       the default one, then the beginning of the first prompt, then the agent's; or at any time a person's
    owner       the named person who has begun it, or whose agent has; "" for the owner of the password
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
    owner: str = ""

    @property
    def shown_metadata(self) -> Fields | None:
        """The metadata of clients, with the owner."""
        return {**(self.metadata or {}), OWNER_KEY: self.owner} if self.owner else self.metadata

    def is_named_by(self, prompt: str) -> bool:
        """Whether the title was made of this prompt."""
        return prompt.lstrip().startswith(self.title.removesuffix("…")) and self.title == title_of(prompt)


def title_of(text: str) -> str:
    """A session's title from its first prompt: its first line, at most 50 characters, cut at a word."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) <= 50:
        return line
    cut = line[:50].rsplit(" ", 1)[0]
    return (cut if len(cut) > 20 else line[:49]).rstrip(" ,.;:") + "…"


def is_default_title(title: str) -> bool:
    """Whether a session has this title because it has no prompt. Native OpenCode uses the same words."""
    return title.startswith(("New session - ", "Child session - "))


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
        """The output with `text` appended, cut to its last RUNNING_CHARS, since each piece sends all that is kept."""
        output = self.output + text
        return output if len(output) <= RUNNING_CHARS else CUT + output[-RUNNING_CHARS:]


@dataclass(frozen=True, slots=True)
class OtherPart:
    """A part that is kept field by field without a meaning here (an imported subtask, retry or snapshot)."""

    id: str
    type: str
    fields: Fields


Part: TypeAlias = Text | Reasoning | File | AgentMention | CompactionMark | StepStart | StepFinish | Patch | ToolCall | OtherPart


# --- messages --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UserInfo:
    """The info of a prompt. `diffs`: the changes by its answer; None until the answer is over."""

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


# --- what is asked ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallRef:
    """Where a tool call stands: its message and its id."""

    message_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A request to a person for a permission. `call` is the tool call that needs it."""

    id: str
    access: Access
    call: CallRef | None = None


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """Questions that are put to a person together. `call` is the tool call that asks."""

    id: str
    questions: tuple[Question, ...]
    call: CallRef | None = None
