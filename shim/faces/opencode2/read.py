"""Reads a session as OpenCode 2's JSON: its `info`, messages, inbox, permissions and forms. Pure; keeps nothing.

A text that still grows is "", because its pieces come on the stream.
Source: recordings `compat_fixtures/opencode2/v2-20260717`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shim.faces.opencode2 import asks, names, prompts, results
from shim.faces.opencode2 import session_info as session_info
from shim.faces.opencode2.events import Wire
from universal.diffs import relative
from universal.jsonvalue import obj, text
from universal.session.entries import (
    CallPiece,
    CompactionEntry,
    EndEntry,
    Entry,
    InstructionsEntry,
    ModeEntry,
    ModelEntry,
    MovedEntry,
    NoteEntry,
    PendingPrompt,
    Place,
    PromptEntry,
    Retry,
    ShellEntry,
    SkillEntry,
    StepEntry,
    TextPiece,
)
from universal.session.model import Session
from universal.session.reducer import DISMISSED, rejection
from universal.session.timeline.asides import summary_of
from universal.session.values import CallRef, PermissionRequest, QuestionRequest, Text, ToolCall
from universal.session.values import Reasoning as Thought

REFUSALS = (rejection(""), DISMISSED)
"""Errors of calls that a person refused without a reason. A reason is told to the model like any error."""
LOST = {"type": "unknown", "message": "The agent ended without a word."}
"""The error of a turn that failed without a reason."""
SHELL = "/bin/sh"
"""The shell of a person's commands. The journal does not hold the real one."""


def info(session: Session) -> Wire:
    """The `SessionInfo` of a session."""
    timeline, record = session.timeline, session.record
    wire = session_info.info_of(record)
    for key in ("agent", "model"):
        wire.pop(key, None)
    wire |= {"agent": timeline.mode} if timeline.mode else {}
    wire |= {"model": names.model_ref(timeline.model)} if timeline.model is not None else {}
    wire |= {"cost": timeline.cost, "tokens": session_info.counts(timeline.usage)}
    wire |= {"outcome": timeline.outcome} if timeline.outcome is not None else {}
    wire |= {"fork": dict(timeline.fork)} if timeline.fork is not None else {}
    if timeline.staged is not None:
        wire["revert"] = revert(session)
    moments = {"idle": timeline.idle_ms, "viewed": timeline.viewed_ms}
    wire["time"] |= {key: at_ms for key, at_ms in moments.items() if at_ms is not None}
    return wire


def revert(session: Session) -> Wire | None:
    """The `revert` of a session: what is staged to be undone."""
    staged = session.timeline.staged
    if staged is None:
        return None
    return session_info.revert_of(staged.revert, message_id(session, staged.revert.message_id), staged.diffs)


def message_id(session: Session, id_: str) -> str:
    """The id in OpenCode 2 of a message of the core."""
    return session.timeline.ids.get(id_, id_)


# --- messages ----------------------------------------------------------------------------------------------------


def messages(session: Session) -> Iterator[Wire]:
    """All messages of a session, oldest first."""
    return (message(entry, session) for entry in session.timeline.entries.values())


def message_at(session: Session, id_: str) -> Wire | None:
    """One message."""
    entry = session.timeline.entries.peek(id_)
    return None if entry is None else message(entry, session)


def message(entry: Entry, session: Session) -> Wire:
    """The `SessionMessageInfo` of an entry."""
    kind, wire = MESSAGES[type(entry)](entry, session)
    time = {"created": entry.created_ms, **wire.pop("time", {})}
    return {"id": entry.id, "time": time, "type": kind, **wire}


def kind_of(entry: Entry) -> str:
    """The type of an entry's message."""
    return entry.prompt.kind if isinstance(entry, PromptEntry) else KINDS[type(entry)]


def _step(entry: StepEntry, session: Session) -> tuple[str, Wire]:
    moments = {"streamed": entry.streamed_ms, "completed": entry.completed_ms}
    wire: Wire = {
        "time": {key: at_ms for key, at_ms in moments.items() if at_ms is not None},
        "agent": entry.mode,
        "model": names.model_ref(entry.model),
        "content": content(entry, session),
    }
    if entry.retry is not None:
        wire["retry"] = retry(entry.retry)
    if entry.finish is not None:
        wire |= names.finish(entry.finish)
    if entry.failure is not None:
        wire |= {"finish": "error", "error": names.error(entry.failure)}
    wire |= step_cost(entry)
    snapshot = {"start": entry.snapshot} if entry.snapshot else {}
    if entry.end_snapshot is not None:
        snapshot |= {"end": entry.end_snapshot, "files": files(entry)}
    return "assistant", wire | ({"snapshot": snapshot} if snapshot else {})


def step_cost(entry: StepEntry) -> Wire:
    """The cost and tokens of a step, if known."""
    return {} if entry.usage is None else {"cost": entry.cost or 0, "tokens": session_info.counts(entry.usage)}


def files(entry: StepEntry) -> list[str]:
    """The files that a step has changed, relative to its directory."""
    return list(dict.fromkeys(relative(name, entry.directory) for name in entry.files))


def retry(value: Retry) -> Wire:
    """The time of the next try, and the reason."""
    error = {"type": "provider.internal", "message": value.message}
    return {"attempt": value.attempt, "at": value.at_ms, "error": error}


def content(entry: StepEntry, session: Session) -> list[Wire]:
    """The texts, reasoning and tool calls of a step."""
    found = session.messages.peek(entry.message_id)
    parts = found.parts if found is not None else {}
    wires: list[Wire] = []
    for piece in entry.content:
        part = parts.get(piece.part_id)
        if isinstance(piece, TextPiece):
            wires.append(_text(piece, part.text if isinstance(part, (Text, Thought)) else ""))
        elif isinstance(part, ToolCall):
            wires.append(_call(piece, part, entry.directory))
    return wires


def _text(piece: TextPiece, whole: str) -> Wire:
    words = "" if not piece.is_ended else whole if piece.text is None else piece.text
    wire: Wire = {"type": "reasoning" if piece.is_thought else "text", "text": words}
    if piece.is_thought and piece.created_ms is not None:
        wire["time"] = {"created": piece.created_ms}
        wire["time"] |= {} if piece.ended_ms is None else {"completed": piece.ended_ms}
    return wire


def _call(piece: CallPiece, call: ToolCall, directory: str) -> Wire:
    moments = {"created": piece.created_ms, "ran": piece.ran_ms, "completed": piece.completed_ms}
    return {
        **{"type": "tool", "id": piece.call_id, "name": names.tool_name(piece.tool), "executed": False},
        "state": _call_state(piece, call, directory),
        "time": {key: at_ms for key, at_ms in moments.items() if at_ms is not None},
    }


def _call_state(piece: CallPiece, call: ToolCall, directory: str) -> Wire:
    if piece.ran_ms is None:
        return {"status": "streaming", "input": ""}
    tool, input_ = names.tool_name(piece.tool), call_input(piece, call)
    if call.status == "completed":
        return {"status": "completed", "input": input_, **call_result(piece, call, directory)}
    if call.status == "error":
        return {"status": "error", "input": input_, **call_failure(piece, call)}
    progress = {} if piece.progress is None else results.progress(tool, obj(call.metadata))
    return {"status": "running", "input": input_, "metadata": progress}


def call_input(piece: CallPiece, call: ToolCall) -> Wire:
    """The arguments of a call."""
    return names.arguments(names.tool_name(piece.tool), call.input if piece.input is None else piece.input)


def call_result(piece: CallPiece, call: ToolCall, directory: str) -> Wire:
    """The result of a successful call."""
    tool = names.tool_name(piece.tool)
    metadata = results.metadata(tool, call_input(piece, call), obj(call.metadata), directory)
    return {"content": results.content(tool, call), **({"metadata": metadata} if metadata else {})}


def call_failure(piece: CallPiece, call: ToolCall) -> Wire:
    """The error of a failed call, and its output until then."""
    metadata = obj(call.metadata)
    is_interrupted = metadata.get("interrupted") is True
    error = names.tool_error(call.error, interrupted=is_interrupted, refused=piece.refused in REFUSALS)
    output = text(metadata.get("output"))
    return {"error": error, **({"content": [{"type": "text", "text": output}]} if output else {})}


def _prompt(entry: PromptEntry, session: Session) -> tuple[str, Wire]:
    return entry.prompt.kind, inbox_item(entry.prompt, session)["payload"]


def _compaction(entry: CompactionEntry, session: Session) -> tuple[str, Wire]:
    wire: Wire = {"reason": compaction_reason(entry), "status": entry.status}
    if entry.failure is not None:
        return "compaction", {**wire, "error": names.error(entry.failure)}
    summary = summary_of(session.messages.peek(entry.message_id)) if entry.status == "completed" else ""
    return "compaction", {**wire, "summary": summary, "recent": ""}


def compaction_reason(entry: CompactionEntry) -> str:
    """Whether a person (`manual`) or the agent (`auto`) started a compaction."""
    return "auto" if entry.is_auto else "manual"


def _shell(entry: ShellEntry, session: Session) -> tuple[str, Wire]:
    wire: Wire = {"shellID": shell_id(entry), "command": entry.command, "status": entry.status}
    wire |= {} if entry.exit is None else {"exit": entry.exit}
    if entry.completed_ms is not None:
        found = session.messages.peek(entry.message_id)
        calls = [part for part in (found.parts.values() if found is not None else ()) if isinstance(part, ToolCall)]
        call = next((call for call in calls if call.call_id == entry.call_id), None)
        wire |= {"time": {"completed": entry.completed_ms}, "output": shell_output(call)}
    return "shell", wire


def shell_id(entry: ShellEntry) -> str:
    """The id of a command's shell."""
    return f"sh_{entry.id.removeprefix('msg_')}"


def shell(entry: ShellEntry) -> Wire:
    """The `ShellInfo` of a person's command."""
    times = {"started": entry.created_ms, **({} if entry.completed_ms is None else {"completed": entry.completed_ms})}
    return {
        **{"id": shell_id(entry), "status": entry.status, "command": entry.command, "cwd": entry.directory},
        **{"shell": SHELL, "file": "", "metadata": {}, "time": times},
        **({} if entry.exit is None else {"exit": entry.exit}),
    }


def shell_output(call: ToolCall | None) -> Wire:
    """The output of a person's command."""
    metadata = obj(call.metadata) if call is not None else {}
    output = (call.output if call is not None and call.status == "completed" else "") or text(metadata.get("output"))
    size = len(output.encode())
    return {"output": output, "cursor": size, "size": size, "truncated": bool(metadata.get("truncated"))}


def _mode(entry: ModeEntry, session: Session) -> tuple[str, Wire]:
    return "agent-switched", switch(entry)


def _model(entry: ModelEntry, session: Session) -> tuple[str, Wire]:
    return "model-switched", switch(entry)


def switch(entry: ModeEntry | ModelEntry) -> Wire:
    """The choice of a switch, and the choice before it."""
    if isinstance(entry, ModeEntry):
        return {"agent": entry.mode, **({} if entry.previous is None else {"previous": entry.previous})}
    previous = {} if entry.previous is None else {"previous": names.model_ref(entry.previous)}
    return {"model": names.model_ref(entry.model), **previous}


def _location_switched(entry: MovedEntry, session: Session) -> tuple[str, Wire]:
    return "location-switched", {**place(entry.place), "previous": place(entry.previous)}


def place(value: Place) -> Wire:
    """The location of a session."""
    subpath = {"subpath": value.path} if value.path else {}
    return {"location": {"directory": value.directory}, "projectID": value.project_id, **subpath}


def _skill(entry: SkillEntry, session: Session) -> tuple[str, Wire]:
    return "skill", {"skill": entry.skill_id, "name": entry.name, "text": entry.text}


def _note(entry: NoteEntry, session: Session) -> tuple[str, Wire]:
    return "synthetic", note(entry)


def note(entry: NoteEntry) -> Wire:
    """The fields of a text that a program added to the conversation."""
    optional = {"description": entry.description, "metadata": entry.metadata}
    return {"text": entry.text, **{key: value for key, value in optional.items() if value}}


def _instructions(entry: InstructionsEntry, session: Session) -> tuple[str, Wire]:
    return "system", {"text": entry.text}


def _end(entry: EndEntry, session: Session) -> tuple[str, Wire]:
    return "idle", {"outcome": entry.outcome, **end_error(entry)}


def end_error(entry: EndEntry) -> Wire:
    """The error of a failed turn, or None."""
    if entry.outcome != "failed":
        return {}
    return {"error": LOST if entry.failure is None else names.error(entry.failure)}


MESSAGES: Mapping[type[Any], Callable[[Any, Session], tuple[str, Wire]]] = {
    StepEntry: _step,
    PromptEntry: _prompt,
    CompactionEntry: _compaction,
    ShellEntry: _shell,
    ModeEntry: _mode,
    ModelEntry: _model,
    MovedEntry: _location_switched,
    SkillEntry: _skill,
    NoteEntry: _note,
    InstructionsEntry: _instructions,
    EndEntry: _end,
}
"""Kind of entry -> the type of its message and its fields."""

KINDS: Mapping[type[Any], str] = {
    StepEntry: "assistant",
    CompactionEntry: "compaction",
    ShellEntry: "shell",
    ModeEntry: "agent-switched",
    ModelEntry: "model-switched",
    MovedEntry: "location-switched",
    SkillEntry: "skill",
    NoteEntry: "synthetic",
    InstructionsEntry: "system",
    EndEntry: "idle",
}
"""Kind of entry -> type of message. A prompt's type depends on the prompt."""


# --- the inbox and open requests -------------------------------------------------------------------------------------------


def inbox(session: Session) -> list[Wire]:
    """The `SessionInboxInfo` of each prompt in the inbox."""
    return [inbox_entry(prompt, session) for prompt in session.timeline.inbox.values()]


def inbox_entry(prompt: PendingPrompt, session: Session) -> Wire:
    """The `SessionInboxInfo` of a prompt."""
    time = {"created": prompt.accepted_ms}
    return {"id": prompt.id, "sessionID": session.id, "time": time, **inbox_item(prompt, session)}


def inbox_item(prompt: PendingPrompt, session: Session) -> Wire:
    """The `InboxItem` of a prompt."""
    message = session.messages.peek(prompt.id)
    return prompts.item(prompt, list(message.parts.values()) if message is not None else [])


def permissions(session: Session) -> list[Wire]:
    """The `PermissionRequest` of each open permission request."""
    return [permission(request, session) for request in session.permissions.values()]


def permission(request: PermissionRequest, session: Session) -> Wire:
    """The `PermissionRequest` of a request."""
    return asks.permission(request, session.id, _source(request.call, session))


def forms(session: Session) -> list[Wire]:
    """The `FormInfo` of each open question."""
    return [form(request, session) for request in session.questions.values()]


def form(request: QuestionRequest, session: Session) -> Wire:
    """The `FormInfo` of a question."""
    return asks.form(request, session.id, _source(request.call, session))


def form_detail(session: Session, form_id: str) -> Wire | None:
    """The `FormDetail` of an open or answered question."""
    request = question_of_form(session, form_id)
    if request is not None:
        return {**form(request, session), "state": {"status": "pending"}}
    closed = next((one for id_, one in session.timeline.questions.items() if asks.form_id(id_) == form_id), None)
    if closed is None:
        return None
    shown = form(closed.request, session)
    if closed.answers is None:
        return {**shown, "state": {"status": "cancelled"}}
    return {**shown, "state": {"status": "answered", "answer": asks.answer(shown, closed.answers)}}


def question_of_form(session: Session, form_id: str) -> QuestionRequest | None:
    """The open question that a form shows."""
    return next((request for id_, request in session.questions.items() if asks.form_id(id_) == form_id), None)


def _source(call: CallRef | None, session: Session) -> Wire:
    """`source` of a request: its tool call and message, by OpenCode 2's ids. Empty for a request without a call."""
    return {"messageID": message_id(session, call.message_id), "id": call.call_id} if call is not None else {}
