"""The universal event: an envelope and one typed payload per event type.

`EVENT_DATA` is the table from type to payload model; everything else is derived from it.
Times are RFC3339 in the envelope. `sequence` starts at 1 for each session, without gaps.
`synthetic` is true exactly when `source` is `daemon`; `raw` is the agent's own payload (always kept,
shown only on request).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self, TypeAlias

from pydantic import Field, model_validator

from universal.items import Frozen, Item, Json
from universal.lib.jsonvalue import obj


class EventType(StrEnum):
    """All event types of the schema."""

    SESSION_STARTED = "session.started"
    SESSION_ENDED = "session.ended"
    TURN_STARTED = "turn.started"
    TURN_ENDED = "turn.ended"
    ITEM_STARTED = "item.started"
    ITEM_DELTA = "item.delta"
    ITEM_COMPLETED = "item.completed"
    ERROR = "error"
    PERMISSION_REQUESTED = "permission.requested"
    PERMISSION_RESOLVED = "permission.resolved"
    QUESTION_REQUESTED = "question.requested"
    QUESTION_RESOLVED = "question.resolved"
    UNPARSED = "agent.unparsed"


class Source(StrEnum):
    """Who made an event."""

    AGENT = "agent"
    DAEMON = "daemon"


class SessionStartedData(Frozen):
    """`metadata` for a subagent: parent_session_id, parent_item_id, call_id, title, agent, prompt."""

    metadata: dict[str, Json] | None = None


class StderrOutput(Frozen):
    """stderr of a process: `head` 20 lines and `tail` 50, or all of it in `head`."""

    head: str | None = None
    tail: str | None = None
    truncated: bool = False
    total_lines: int | None = None


class SessionEndedData(Frozen):
    """The agent's process of this session is gone for good."""

    reason: Literal["completed", "error", "terminated"]
    terminated_by: Literal["agent", "daemon"]
    message: str | None = None
    exit_code: int | None = None
    stderr: StderrOutput | None = None


class TurnData(Frozen):
    """A turn. `metadata` of the start: origin ("user" | "agent"); of the end: reason ("completed" |
    "aborted" | "error" | "agent_exited"), error {message, code?, details?}, usage, cost (USD of the turn)."""

    phase: Literal["started", "ended"]
    turn_id: str
    metadata: dict[str, Json] | None = None


class ItemData(Frozen):
    """An item in its current state (`item.started`) or its final state (`item.completed`)."""

    item: Item


class ItemDeltaData(Frozen):
    """A piece of text for one part of an item.

    `part_index` is the part's place in the finished item's `content`; `part_type` what it is.
    """

    item_id: str
    native_item_id: str | None = None
    delta: str
    part_index: int = 0
    part_type: Literal["text", "reasoning", "tool_input", "tool_output"] = "text"


def delta_data(
    item_id: str,
    native_item_id: str | None,
    delta: str,
    part_index: int = 0,
    part_type: Literal["text", "reasoning", "tool_input", "tool_output"] = "text",
) -> ItemDeltaData:
    """Create `ItemDeltaData` without validation, since there are thousands of deltas and pyright checks the callers."""
    return ItemDeltaData.from_fields(
        {
            "item_id": item_id,
            "native_item_id": native_item_id,
            "delta": delta,
            "part_index": part_index,
            "part_type": part_type,
        }
    )


class ErrorData(Frozen):
    """A runtime error. `details` may hold status_code, is_retryable, hint (what the person can do), resets_at (s since 1970)."""

    message: str
    code: str | None = None
    details: dict[str, Json] | None = None


class PermissionData(Frozen):
    """`metadata`: tool, call_id, input, title, description, diff?, message? (of a rejection); and, for permission rules:

    paths     every file that the call touches, where `input` does not name them by the keys of OpenCode's tools: all files of a
              patch, targets of moves included; absolute, or relative to the session's directory
    commands  the shell lines that it runs, where `input.command` is not all of them
    reads     files that the shell line reads, as the agent tells them
    confined  true if the server itself refuses the call's own paths outside of the project: nobody needs to be asked about them
    opaque    true if what it does is known only from a title or not at all: never allowed automatically
    """

    permission_id: str
    action: str
    status: Literal["requested", "accept", "accept_for_session", "reject"]
    metadata: dict[str, Json] | None = None


class QuestionOption(Frozen):
    """One answer to choose."""

    label: str
    description: str = ""


class Question(Frozen):
    """One question of a request; `custom` allows a typed answer, `multiple` several."""

    question: str
    header: str = ""
    options: tuple[QuestionOption, ...] = ()
    multiple: bool = False
    custom: bool = True


class QuestionData(Frozen):
    """`prompt`/`options`/`response` hold the first question; `questions`/`answers` all of them.

    `metadata`: tool, call_id, input.
    """

    question_id: str
    prompt: str
    options: tuple[str, ...]
    status: Literal["requested", "answered", "rejected"]
    response: str | None = None
    questions: tuple[Question, ...] = ()
    answers: tuple[tuple[str, ...], ...] | None = None
    metadata: dict[str, Json] | None = None


class UnparsedData(Frozen):
    """A native payload that no codec rule covers. Treat it as a bug."""

    error: str
    location: str
    raw_hash: str | None = None


EventData: TypeAlias = (
    ItemDeltaData
    | ItemData
    | TurnData
    | SessionStartedData
    | SessionEndedData
    | ErrorData
    | PermissionData
    | QuestionData
    | UnparsedData
)

EVENT_DATA: dict[EventType, type[Frozen]] = {
    EventType.SESSION_STARTED: SessionStartedData,
    EventType.SESSION_ENDED: SessionEndedData,
    EventType.TURN_STARTED: TurnData,
    EventType.TURN_ENDED: TurnData,
    EventType.ITEM_STARTED: ItemData,
    EventType.ITEM_DELTA: ItemDeltaData,
    EventType.ITEM_COMPLETED: ItemData,
    EventType.ERROR: ErrorData,
    EventType.PERMISSION_REQUESTED: PermissionData,
    EventType.PERMISSION_RESOLVED: PermissionData,
    EventType.QUESTION_REQUESTED: QuestionData,
    EventType.QUESTION_RESOLVED: QuestionData,
    EventType.UNPARSED: UnparsedData,
}


def _is_absent(by: str | None) -> bool:
    return by is None


class UniversalEvent(Frozen):
    """One event of one session, as stored in the journal and sent to readers.

    `by`: the named person whose doing it is; absent for the owner of the password, the agent and the server itself.
    """

    event_id: str
    sequence: int
    time: str
    session_id: str
    native_session_id: str | None = None
    source: Source
    synthetic: bool
    by: str | None = Field(default=None, exclude_if=_is_absent)
    type: EventType
    data: (
        ItemDeltaData  # the most frequent first: they are tried in this order
        | ItemData
        | TurnData
        | SessionStartedData
        | SessionEndedData
        | ErrorData
        | PermissionData
        | QuestionData
        | UnparsedData
    )
    raw: Json = None

    @model_validator(mode="before")
    @classmethod
    def _data_by_type(cls, value: Json) -> Json:
        """Choose the payload's model by `type` when JSON is read. It is never guessed from the keys."""
        fields = obj(value)
        if isinstance(fields.get("data"), dict):
            model = EVENT_DATA[EventType(fields["type"])]
            return {**fields, "data": model.model_validate(fields["data"])}
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.synthetic != (self.source is Source.DAEMON):
            raise ValueError("synthetic is true exactly when source is daemon")
        if not isinstance(self.data, EVENT_DATA[self.type]):
            raise ValueError(f"{self.type} carries {EVENT_DATA[self.type].__name__}")  # noqa: TRY004 - pydantic reports ValueError
        return self
