"""The state of one session on the OpenCode 1.x face: what GET answers are read from.

Wire values in it are never changed in place: an update puts a new dict in the old one's place, so that events
that were already given out stay what they were. Only text that still streams lives in `Message.streaming`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shim.opencode.build import Wire, status_idle
from shim.projection.diffs import FileChange
from shim.projection.opencode1.tools import ToolView


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
    output: list[str] = field(default_factory=list[str])
    child_session_id: str | None = None
    refused: str | None = None
    """What a person's refusal makes of its error; None as long as nobody has refused."""


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

    @property
    def id(self) -> str:
        """The session's id."""
        return str(self.info["id"])

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        return self.status["type"] != "idle"
