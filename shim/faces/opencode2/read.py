"""Reads a session as OpenCode 2's JSON: its `info`, messages, inbox, permissions and forms. Pure; keeps nothing.

A text that still grows is "", because its pieces come on the stream.
Source: recordings `compat_fixtures/opencode2/v2-20260717`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast
from urllib.parse import unquote_to_bytes

from shim.faces.opencode2 import asks, names, results
from shim.faces.opencode2 import session_info as session_info
from universal.lib.jsonvalue import obj, present, text
from universal.lib.paths import relative
from universal.session import entries, values
from universal.session.model import Session
from universal.session.reducer import DISMISSED, rejection
from universal.session.timeline.asides import summary_of
from universal.session.values import Reasoning as Thought

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import event_types, host_types, types
    from universal.session.user_prompt import PromptDetails


REFUSALS = (rejection(""), DISMISSED)
"""Errors of calls that a person refused without a reason. A reason is told to the model like any error."""
NO_REASON: types.SessionStructuredError = {"type": "unknown", "message": "The agent ended without a word."}
"""The error of a turn that failed without a reason."""
SHELL = "/bin/sh"
"""The shell of a person's commands. The journal does not hold the real one."""


def info(session: Session) -> types.SessionInfo:
    """The `SessionInfo` of a session."""
    timeline, record = session.timeline, session.record
    wire = session_info.info_of(record)
    wire.pop("agent", None)
    wire.pop("model", None)
    if timeline.mode:
        wire["agent"] = timeline.mode
    if timeline.model is not None:
        wire["model"] = names.model_ref(timeline.model)
    wire["cost"] = timeline.cost
    wire["tokens"] = session_info.counts(timeline.usage)
    if timeline.outcome is not None:
        wire["outcome"] = timeline.outcome
    if timeline.fork is not None:
        wire["fork"] = session_info.fork(timeline.fork)
    staged = revert(session)
    if staged is not None:
        wire["revert"] = staged
    if timeline.idle_ms is not None:
        wire["time"]["idle"] = timeline.idle_ms
    if timeline.viewed_ms is not None:
        wire["time"]["viewed"] = timeline.viewed_ms
    return wire


def revert(session: Session) -> types.SessionRevert | None:
    """The `revert` of a session: what is staged to be undone."""
    staged = session.timeline.staged
    if staged is None:
        return None
    return session_info.revert_of(staged.revert, message_id(session, staged.revert.message_id), staged.diffs)


def message_id(session: Session, id_: str) -> str:
    """The id in OpenCode 2 of a message of the core."""
    return session.timeline.ids.get(id_, id_)


# --- messages ----------------------------------------------------------------------------------------------------


def messages(session: Session) -> Iterator[types.SessionMessageInfo]:
    """All messages of a session, oldest first."""
    return (message(entry, session) for entry in session.timeline.entries.values())


def message_at(session: Session, id_: str) -> types.SessionMessageInfo | None:
    """One message."""
    entry = session.timeline.entries.peek(id_)
    return None if entry is None else message(entry, session)


def message(entry: entries.Entry, session: Session) -> types.SessionMessageInfo:
    """The `SessionMessageInfo` of an entry."""
    if isinstance(entry, entries.PromptEntry):
        kind, fields = entry.prompt.kind, inbox_item(entry.prompt, session)["payload"]
    else:
        kind, make = MESSAGES[type(entry)]
        fields = make(entry, session)
    return cast("types.SessionMessageInfo", {"id": entry.id, "time": {"created": entry.created_ms}, "type": kind, **fields})


def kind_of(entry: entries.Entry) -> str:
    """The type of an entry's message."""
    return entry.prompt.kind if isinstance(entry, entries.PromptEntry) else MESSAGES[type(entry)][0]


STRUCTURED = "structured"
"""Key of a message's metadata for the value of an answer in its prompt's schema, which OpenCode 2 has no field for."""


def _step(entry: entries.StepEntry, session: Session) -> Mapping[str, Any]:
    time = present(created=entry.created_ms, streamed=entry.streamed_ms, completed=entry.completed_ms)
    wire: dict[str, Any] = {"time": time, "agent": entry.mode, "model": names.model_ref(entry.model)}
    wire["content"] = content(entry, session)
    if entry.retry is not None:
        wire["retry"] = retry(entry.retry)
    if entry.finish is not None:
        wire |= names.finish(entry.finish)
    message = session.messages.peek(entry.message_id)
    answer = message.info if message is not None and isinstance(message.info, values.StepInfo) else None
    if answer is not None and STRUCTURED in answer.extra:
        wire["metadata"] = {STRUCTURED: answer.extra[STRUCTURED]}
    is_unfit = answer is not None and answer.error is not None and answer.error.code == values.NOT_STRUCTURED
    if (failure := answer.error if answer is not None and is_unfit else entry.failure) is not None:
        wire |= {"finish": "error", "error": names.error(failure)}
    wire |= step_cost(entry)
    snapshot: types.StepSnapshot = {}
    if entry.snapshot:
        snapshot["start"] = entry.snapshot
    if entry.end_snapshot is not None:
        snapshot["end"] = entry.end_snapshot
        snapshot["files"] = files(entry)
    if snapshot:
        wire["snapshot"] = snapshot
    return wire


class StepCost(TypedDict, total=False):
    """The cost and tokens of a step. Empty if the agent did not count."""

    cost: float
    tokens: types.TokenUsageInfo


def step_cost(entry: entries.StepEntry) -> StepCost:
    """The cost and tokens of a step, if known."""
    return {} if entry.usage is None else {"cost": entry.cost or 0, "tokens": session_info.counts(entry.usage)}


def files(entry: entries.StepEntry) -> list[str]:
    """The files that a step has changed, relative to its directory."""
    return list(dict.fromkeys(relative(name, entry.directory) for name in entry.files))


def retry(value: entries.Retry) -> types.StepRetry:
    """The time of the next try, and the reason."""
    error: types.SessionStructuredError = {"type": "provider.internal", "message": value.message}
    return {"attempt": value.attempt, "at": value.at_ms, "error": error}


def content(entry: entries.StepEntry, session: Session) -> list[types.AssistantContent]:
    """The texts, reasoning and tool calls of a step."""
    core_message = session.messages.peek(entry.message_id)
    parts = core_message.parts if core_message is not None else {}
    wires: list[types.AssistantContent] = []
    for piece in entry.content:
        part = parts.get(piece.part_id)
        if isinstance(piece, entries.TextPiece):
            wires.append(_text(piece, part.text if isinstance(part, (values.Text, Thought)) else ""))
        elif isinstance(part, values.ToolCall):
            wires.append(_call(piece, part, entry.directory))
    return wires


def _text(piece: entries.TextPiece, whole: str) -> types.AssistantText | types.AssistantReasoning:
    words = "" if not piece.is_ended else whole if piece.text is None else piece.text
    if not piece.is_thought:
        return {"type": "text", "text": words}
    thought: types.AssistantReasoning = {"type": "reasoning", "text": words}
    if piece.created_ms is not None:
        thought["time"] = {"created": piece.created_ms}
        if piece.ended_ms is not None:
            thought["time"]["completed"] = piece.ended_ms
    return thought


def _call(piece: entries.CallPiece, call: values.ToolCall, directory: str) -> types.AssistantTool:
    return {
        "type": "tool",
        "id": piece.call_id,
        "name": names.tool_name(piece.tool),
        "executed": False,
        "state": _call_state(piece, call, directory),
        "time": cast(
            "types.AssistantToolTime", present(created=piece.created_ms, ran=piece.ran_ms, completed=piece.completed_ms)
        ),
    }


def _call_state(piece: entries.CallPiece, call: values.ToolCall, directory: str) -> types.ToolState:
    if piece.ran_ms is None:
        return {"status": "streaming", "input": ""}
    tool, input_ = names.tool_name(piece.tool), call_input(piece, call)
    if call.status == "completed":
        return {"status": "completed", "input": input_, **call_result(piece, call, directory)}
    if call.status == "error":
        return {"status": "error", "input": input_, **call_failure(piece, call)}
    progress: Mapping[str, Any] = {} if piece.progress is None else results.progress(tool, obj(call.metadata))
    return {"status": "running", "input": input_, "metadata": progress}


def call_input(piece: entries.CallPiece, call: values.ToolCall) -> dict[str, Any]:
    """The arguments of a call."""
    return names.arguments(names.tool_name(piece.tool), call.input if piece.input is None else piece.input)


class CallResult(TypedDict):
    """The fields of a successful call in its state and in its event."""

    content: list[types.ToolContent]
    metadata: NotRequired[Mapping[str, Any]]


def call_result(piece: entries.CallPiece, call: values.ToolCall, directory: str) -> CallResult:
    """The result of a successful call."""
    tool = names.tool_name(piece.tool)
    metadata = results.metadata(tool, call_input(piece, call), obj(call.metadata), directory)
    result: CallResult = {"content": results.content(tool, call)}
    if metadata:
        result["metadata"] = metadata
    return result


class CallFailure(TypedDict):
    """The fields of a failed call in its state and in its event."""

    error: types.SessionStructuredError
    content: NotRequired[list[types.ToolContent]]


def call_failure(piece: entries.CallPiece, call: values.ToolCall) -> CallFailure:
    """The error of a failed call, and its output until then."""
    metadata = obj(call.metadata)
    is_interrupted = metadata.get("interrupted") is True
    error = names.tool_error(call.error, interrupted=is_interrupted, refused=piece.refused in REFUSALS)
    output = text(metadata.get("output"))
    return {"error": error, "content": [{"type": "text", "text": output}]} if output else {"error": error}


def _compaction(entry: entries.CompactionEntry, session: Session) -> Mapping[str, Any]:
    reason = compaction_reason(entry)
    if entry.failure is not None:
        return {"reason": reason, "status": "failed", "error": names.error(entry.failure)}
    is_completed = entry.status == "completed"
    summary = summary_of(session.messages.peek(entry.message_id)) if is_completed else ""
    return {"reason": reason, "status": "completed" if is_completed else "running", "summary": summary, "recent": ""}


def compaction_reason(entry: entries.CompactionEntry) -> types.CompactionReason:
    """Whether a person (`manual`) or the agent (`auto`) started a compaction."""
    return "auto" if entry.is_auto else "manual"


def _shell(entry: entries.ShellEntry, session: Session) -> Mapping[str, Any]:
    wire = present(shellID=shell_id(entry), command=entry.command, status=entry.status, exit=entry.exit)
    if entry.completed_ms is not None:
        message = session.messages.peek(entry.message_id)
        parts = message.parts.values() if message is not None else ()
        calls = (part for part in parts if isinstance(part, values.ToolCall) and part.call_id == entry.call_id)
        wire["time"] = {"created": entry.created_ms, "completed": entry.completed_ms}
        wire["output"] = shell_output(next(calls, None))
    return wire


def shell_id(entry: entries.ShellEntry) -> str:
    """The id of a command's shell."""
    return f"sh_{entry.id.removeprefix('msg_')}"


def shell(entry: entries.ShellEntry) -> host_types.ShellInfo:
    """The `ShellInfo` of a person's command."""
    wire = present(
        id=shell_id(entry),
        status=entry.status,
        command=entry.command,
        cwd=entry.directory,
        shell=SHELL,
        file="",
        metadata={},
        time=present(started=entry.created_ms, completed=entry.completed_ms),
        exit=entry.exit,
    )
    return cast("host_types.ShellInfo", wire)


def shell_output(call: values.ToolCall | None) -> types.ShellOutput:
    """The output of a person's command."""
    metadata = obj(call.metadata) if call is not None else {}
    output = (call.output if call is not None and call.status == "completed" else "") or text(metadata.get("output"))
    size = len(output.encode())
    return {"output": output, "cursor": size, "size": size, "truncated": bool(metadata.get("truncated"))}


def chosen_mode(entry: entries.ModeEntry) -> event_types.SessionAgentSelectedData:
    """The mode of a switch, and the mode before it."""
    return {"agent": entry.mode} if entry.previous is None else {"agent": entry.mode, "previous": entry.previous}


def chosen_model(entry: entries.ModelEntry) -> event_types.SessionModelSelectedData:
    """The model of a switch, and the model before it."""
    wire: event_types.SessionModelSelectedData = {"model": names.model_ref(entry.model)}
    if entry.previous is not None:
        wire["previous"] = names.model_ref(entry.previous)
    return wire


def place(value: entries.Place) -> event_types.SessionMovedData:
    """The location of a session."""
    wire: event_types.SessionMovedData = {"location": {"directory": value.directory}, "projectID": value.project_id}
    if value.path:
        wire["subpath"] = value.path
    return wire


def note(entry: entries.NoteEntry) -> types.SessionInboxSyntheticPayload:
    """The fields of a text that a program added to the conversation."""
    return _synthetic(entry.text, entry)


def _synthetic(words: str, about: entries.NoteEntry | PromptDetails) -> types.SessionInboxSyntheticPayload:
    more = present(description=about.description or None, metadata=about.metadata or None)
    return cast("types.SessionInboxSyntheticPayload", {"text": words, **more})


def _end(entry: entries.EndEntry, session: Session) -> Mapping[str, Any]:
    failed = {"error": end_error(entry)} if entry.outcome == "failed" else {}
    return {"outcome": entry.outcome, **failed}


def end_error(entry: entries.EndEntry) -> types.SessionStructuredError:
    """The error of a failed turn."""
    return NO_REASON if entry.failure is None else names.error(entry.failure)


MESSAGES: Mapping[type[Any], tuple[str, Callable[[Any, Session], Mapping[str, Any]]]] = {
    entries.StepEntry: ("assistant", _step),
    entries.CompactionEntry: ("compaction", _compaction),
    entries.ShellEntry: ("shell", _shell),
    entries.ModeEntry: ("agent-switched", lambda entry, _: chosen_mode(entry)),
    entries.ModelEntry: ("model-switched", lambda entry, _: chosen_model(entry)),
    entries.MovedEntry: ("location-switched", lambda entry, _: {**place(entry.place), "previous": place(entry.previous)}),
    entries.SkillEntry: ("skill", lambda entry, _: {"skill": entry.skill_id, "name": entry.name, "text": entry.text}),
    entries.NoteEntry: ("synthetic", lambda entry, _: note(entry)),
    entries.InstructionsEntry: ("system", lambda entry, _: {"text": entry.text}),
    entries.EndEntry: ("idle", _end),
}
"""Kind of entry -> type of message, and the function that makes its fields beside `id`, `time` and `type`."""


# --- the inbox and open requests -------------------------------------------------------------------------------------------


def inbox_entry(prompt: entries.PendingPrompt, session: Session) -> types.SessionInboxInfo:
    """The `SessionInboxInfo` of a prompt."""
    time: types.CreatedTime = {"created": prompt.accepted_ms}
    item = inbox_item(prompt, session)
    # Each kind of item has its kind of `SessionInboxInfo`, which pyright does not see through the union.
    return cast("types.SessionInboxInfo", {"id": prompt.id, "sessionID": session.id, "time": time, **item})


def inbox_item(prompt: entries.PendingPrompt, session: Session) -> types.InboxItem:
    """The `InboxItem` of a prompt."""
    message = session.messages.peek(prompt.id)
    return item(prompt, list(message.parts.values()) if message is not None else [])


def permissions(session: Session) -> list[types.PermissionRequest]:
    """The `PermissionRequest` of each open permission request."""
    return [permission(request, session) for request in session.permissions.values()]


def permission(request: values.PermissionRequest, session: Session) -> types.PermissionRequest:
    """The `PermissionRequest` of a request."""
    return asks.permission(request, session.id, _source(request.call, session))


def forms(session: Session) -> list[types.FormInfo]:
    """The `FormInfo` of each open question."""
    return [form(request, session) for request in session.questions.values()]


def form(request: values.QuestionRequest, session: Session) -> types.FormInfo:
    """The `FormInfo` of a question."""
    return asks.form(request, session.id, _source(request.call, session))


def form_detail(session: Session, form_id: str) -> types.FormDetail | None:
    """The `FormDetail` of an open or answered question."""
    request = question_of_form(session, form_id)
    if request is not None:
        return {**form(request, session), "state": {"status": "pending"}}
    closed = next((question for id_, question in session.timeline.questions.items() if asks.form_id(id_) == form_id), None)
    if closed is None:
        return None
    wire = form(closed.request, session)
    if closed.answers is None:
        return {**wire, "state": {"status": "cancelled"}}
    return {**wire, "state": {"status": "answered", "answer": asks.answer(wire, closed.answers)}}


def question_of_form(session: Session, form_id: str) -> values.QuestionRequest | None:
    """The open question that a form shows."""
    return next((request for id_, request in session.questions.items() if asks.form_id(id_) == form_id), None)


def _source(call: values.CallRef | None, session: Session) -> asks.CallSource | None:
    """`source` of a request: its tool call and message, by OpenCode 2's ids. None for a request without a call."""
    return {"messageID": message_id(session, call.message_id), "id": call.call_id} if call is not None else None


# --- prompts ---------------------------------------------------------------------------------------------

# Converts prompts to items of OpenCode 2's inbox. Pure.
#
# In: the core's prompt and the parts of its message. Files and agents come from the prompt's details, or else from these parts.

_DATA_URL = re.compile(r"data:([^,]*+),(.*)", re.DOTALL)


def item(prompt: entries.PendingPrompt, parts: Sequence[values.Part]) -> types.InboxItem:
    """The `InboxItem` `{type, payload, delivery}` of a prompt and the parts of its message."""
    details, delivery = prompt.details, prompt.delivery
    if prompt.kind == "compaction":
        return {"type": "compaction", "payload": {}, "delivery": delivery}
    texts = [part.text for part in parts if isinstance(part, values.Text) and not part.synthetic]
    tasks = [text(part.fields.get("prompt")) for part in parts if isinstance(part, values.OtherPart) and part.type == "subtask"]
    words = "\n\n".join(texts or tasks)
    if prompt.kind == "synthetic":
        return {"type": "synthetic", "payload": _synthetic(words, details), "delivery": delivery}
    files = cast("list[types.PromptFileAttachment]", list(details.files)) or [
        _file(part) for part in parts if isinstance(part, values.File)
    ]
    agents = cast("list[types.PromptAgentAttachment]", list(details.agents)) or [
        _agent(part) for part in parts if isinstance(part, values.AgentMention)
    ]
    more = present(
        files=files or None, agents=agents or None, skills=list(details.skills) or None, metadata=details.metadata or None
    )
    payload = cast("types.SessionInboxUserPayload", {"text": words, **more})
    return {"type": "user", "payload": payload, "delivery": delivery}


def _agent(part: values.AgentMention) -> types.PromptAgentAttachment:
    agent: types.PromptAgentAttachment = {"name": part.name}
    source = obj(part.source)
    if source:
        mention = {"start": source.get("start"), "end": source.get("end"), "text": source.get("value")}
        agent["mention"] = cast("types.PromptMention", mention)
    return agent


def _file(part: values.File) -> types.PromptFileAttachment:
    """A file part. If the file was only named, its bytes are left out."""
    file: types.PromptFileAttachment
    match = _DATA_URL.match(part.url)
    if match is None:
        file = {"data": "", "mime": part.mime, "source": {"type": "uri", "uri": part.url}}
    else:
        body = _base64(match[2], is_base64=match[1].endswith(";base64"))
        file = {"data": body, "mime": part.mime, "source": {"type": "inline"}}
    if part.filename:
        file["name"] = part.filename
    return file


def _base64(body: str, *, is_base64: bool) -> str:
    raw = unquote_to_bytes(body)
    if is_base64:
        try:
            base64.b64decode(raw, validate=True)
        except binascii.Error:
            return base64.b64encode(raw).decode()
        return raw.decode()
    return base64.b64encode(raw).decode()
