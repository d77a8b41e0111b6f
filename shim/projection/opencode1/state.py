"""The state of one session on the OpenCode 1.x face: what GET answers are read from.

Wire values in it are never changed in place: an update puts a new dict in the old one's place, so that events
that were already given out stay what they were. Only text that still streams lives in `Message.streaming`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from shim.opencode.build import Wire, status_idle
from shim.projection.diffs import FileChange
from shim.projection.opencode1.tools import ToolView
from universal.codec import COMPACT

HANDOVER: dict[str, object] = {"handover": True}
"""Metadata of the text part by which a person is told that another agent took over. No agent is sent it."""

START_FAILED = "agent_start_failed"
"""Code of the error of a prompt whose agent did not start."""
NOT_BEGUN = "choice_unknown"
"""Code of the error of a prompt that nobody could be given, since its agent or model does not exist: no message says so, as by
native, and what the turn has answered before has not failed."""
START_ERRORS = frozenset({NOT_BEGUN, START_FAILED})
"""Codes of errors of prompts that no agent was given."""

RUNNING_CHARS = 30_000
"""Of the output of a tool that runs; its result has more. As much as native shows."""
CUT = "...\n\n"
"""Above what is left of it."""


@dataclass(slots=True)
class Message:
    """One message: its `info`, its parts by id in order, and what is not on the wire.

    known      agents that have this message in their own conversation (see `shim.sessions.context`)
    streaming  text so far of parts that still grow
    open_tools call ids without a result; done: the step is over but for these; finished: nothing more comes
    """

    info: Wire
    parts: dict[str, Wire] = field(default_factory=dict[str, Wire])
    known: set[str] = field(default_factory=set[str])
    streaming: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    text_parts: dict[int, str] = field(default_factory=dict[int, str])
    open_tools: set[str] = field(default_factory=set[str])
    had_tools: bool = False
    done: bool = False
    finished: bool = False
    finish: str | None = None

    def part(self, part_id: str) -> Wire:
        """A part as it is now, streamed text included."""
        part = self.parts[part_id]
        chunks = self.streaming.get(part_id)
        return part if chunks is None else {**part, "text": "".join(chunks)}

    def wire(self) -> Wire:
        """`{info, parts}` as GET gives it."""
        return {"info": self.info, "parts": [self.part(id_) for id_ in self.parts]}

    def text(self) -> str:
        """What was said, without thinking and tools."""
        return "\n".join(
            str(self.part(id_)["text"]) for id_, p in self.parts.items() if p["type"] == "text" and not p.get("synthetic")
        )


@dataclass(slots=True)
class ToolState:
    """A tool call from its first sight to its result."""

    message_id: str
    part_id: str
    call_id: str
    native_name: str
    view: ToolView
    status: Literal["pending", "running", "ended"] = "pending"
    started_ms: int = 0
    output: str = ""
    """What a running call has written, at most its last RUNNING_CHARS."""
    child_session_id: str | None = None
    refused: str | None = None
    """What a person's refusal makes of its error; None as long as nobody has refused."""

    def wrote(self, text: str) -> None:
        """More of its output. Each piece tells clients all that is kept, so that is little."""
        self.output += text
        if len(self.output) > RUNNING_CHARS:
            self.output = CUT + self.output[-RUNNING_CHARS:]


@dataclass(slots=True)
class Trees:
    """What is known of snapshots. All are names of trees (see `shim.host.snapshot`), None as long as there is none.

    first   before the session's first turn           base   before the prompt that is being answered
    last    the newest one                            after  right after the files were put back by an undo
    on      snapshots are taken in this turn          used_tools  a tool was called since `base`
    diffs   the session's diffs from before an undo, for the redo
    """

    first: str | None = None
    base: str | None = None
    last: str | None = None
    after: str | None = None
    on: bool = False
    used_tools: bool = False
    diffs: list[Wire] | None = None


@dataclass(slots=True)
class Conversation:
    """Everything that a client can read of one session."""

    info: Wire
    messages: dict[str, Message] = field(default_factory=dict[str, Message])
    todos: list[Wire] = field(default_factory=list[Wire])
    diffs: list[Wire] = field(default_factory=list[Wire])
    permissions: dict[str, Wire] = field(default_factory=dict[str, Wire])
    questions: dict[str, Wire] = field(default_factory=dict[str, Wire])
    status: Wire = field(default_factory=status_idle)
    tools: dict[str, ToolState] = field(default_factory=dict[str, ToolState])
    all_changes: list[FileChange] = field(default_factory=list[FileChange])
    trees: Trees = field(default_factory=Trees)
    mcp: dict[str, Wire] = field(default_factory=dict[str, Wire])
    """Agent -> its MCP servers as it told them last: {name: {status, error?}}."""

    elsewhere: frozenset[str] = frozenset()
    """Messages of the time before the session was moved: their snapshots and files are those of another directory."""

    in_order: bool = True
    """Whether `messages` are as clients sort them, by time; not when the clock was put back."""

    def add(self, message: Message) -> None:
        """A new message, the last one; or another in the place of one with its id."""
        last = next(reversed(self.messages.values()), message)
        self.in_order = self.in_order and last.info["time"]["created"] <= message.info["time"]["created"]
        self.messages[message.info["id"]] = message

    def oldest_first(self) -> Sequence[Message]:
        """Messages as clients sort them: by time, then as they came."""
        found = list(self.messages.values())
        return found if self.in_order else sorted(found, key=lambda m: m.info["time"]["created"])

    def newest_first(self) -> Iterator[Message]:
        """The same from the other end; without a look at all of them, if they are in order."""
        return reversed(self.messages.values() if self.in_order else self.oldest_first())

    @property
    def id(self) -> str:
        """The session's id."""
        return str(self.info["id"])

    def last_user(self) -> str | None:
        """The id of the newest message of the person's."""
        return next((id_ for id_, m in reversed(self.messages.items()) if m.info["role"] == "user"), None)

    def is_wish_to_compact(self, message_id: str | None) -> bool:
        """Whether this user message is the person's wish for a compaction, by `summarize` or as the agent's command."""
        message = self.messages.get(message_id or "")
        parts = message.parts.values() if message is not None else ()
        return any(p["type"] == "compaction" or str(p.get("text", "")).startswith(COMPACT) for p in parts)

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        return self.status["type"] != "idle"
