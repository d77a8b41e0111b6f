"""Converts a session's state to OpenCode 1's JSON, for answers and events. Pure.

The shapes are those of OpenCode's API document (1.18.33); tests check the values against it too. An imported session may have
fields that the document does not name (`extra`): they are added last. Times are epoch milliseconds. The inverse is
`universal.session.importer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from universal.lib.jsonvalue import whole
from universal.opencode_metadata import error_of
from universal.session import values
from universal.session.messages import Message
from universal.session.model import Session
from universal.session.values import CONTEXT_FULL, NOT_STRUCTURED

if TYPE_CHECKING:
    from shim.faces.opencode1._generated import types
    from universal.lib.diffs import FileDiff

T = TypeVar("T", bound=Mapping[str, object])


def _with(wire: T, extra: values.Fields) -> T:
    """Add the fields of an imported value that its schema does not name."""
    return cast("T", {**wire, **extra}) if extra else wire


# --- small values ----------------------------------------------------------------------------------------------


def usage(value: values.Usage) -> types.StepTokens:
    """Convert token counts."""
    cache: types.Cache = {"read": value.cache_read, "write": value.cache_write}
    wire: types.StepTokens = {"input": value.input, "output": value.output, "reasoning": value.reasoning, "cache": cache}
    return wire if value.total is None else {"total": value.total, **wire}


def session_model(model: values.ModelRef) -> types.SessionModel:
    """A session's model."""
    wire: types.SessionModel = {"id": model.model_id, "providerID": model.provider_id}
    return wire if model.variant is None else {**wire, "variant": model.variant}


def message_model(model: values.ModelRef) -> types.MessageModel:
    """A message's model."""
    wire: types.MessageModel = {"providerID": model.provider_id, "modelID": model.model_id}
    return wire if model.variant is None else {**wire, "variant": model.variant}


def failure(value: values.Failure) -> types.MessageError:
    """Convert an error to an object `{name, data}`.

    Source: `AssistantMessage.error` of the API document. For ProviderAuthError, clients offer a login.
    """
    if (native := error_of(value.details)) is not None:  # an error of OpenCode itself
        return cast("types.MessageError", native.json)
    details = value.details or {}
    hint = details.get("hint")
    text = f"{value.message}\n{hint}" if hint else value.message
    if value.code in ("authentication_failed", "ProviderAuthError"):
        return {"name": "ProviderAuthError", "data": {"providerID": value.agent, "message": text}}
    if value.code in CONTEXT_FULL:
        return {"name": "ContextOverflowError", "data": {"message": text}}
    if value.code == "max_output_tokens":
        return {"name": "MessageOutputLengthError", "data": {"message": text}}
    if value.code == "refusal":
        return {"name": "ContentFilterError", "data": {"message": text}}
    if value.code == NOT_STRUCTURED:
        return {"name": "StructuredOutputError", "data": {"message": text, "retries": whole(details.get("retries"))}}
    if value.code == "aborted":
        return {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    status = details.get("status_code")
    if isinstance(status, int) or value.code == "APIError":
        data: types.APIErrorData = {"message": text, "isRetryable": bool(details.get("is_retryable", False))}
        return {"name": "APIError", "data": {**data, "statusCode": status} if isinstance(status, int) else data}
    return {"name": "UnknownError", "data": {"message": text}}


def status(value: values.Status) -> types.SessionStatus:
    """`SessionStatus`."""
    if value.type == "retry":
        return {"type": "retry", "attempt": value.attempt, "message": value.message, "next": value.next_ms}
    return {"type": "busy"} if value.type == "busy" else {"type": "idle"}


def todo(value: values.Todo) -> types.Todo:
    """`Todo`."""
    wire: types.Todo = {"content": value.content, "status": value.status, "priority": value.priority}
    return _with(wire, value.extra)


def file_diff(value: FileDiff) -> types.SnapshotFileDiff:
    """`SnapshotFileDiff`: the journal has the same form."""
    return cast("types.SnapshotFileDiff", value.to_json())


def totals(value: values.DiffTotals) -> types.SessionSummary:
    """A session's `summary`."""
    return {"additions": value.additions, "deletions": value.deletions, "files": value.files}


def revert(value: values.Revert) -> types.SessionRevert:
    """A session's `revert`."""
    wire = {"messageID": value.message_id, "partID": value.part_id, "snapshot": value.snapshot, "diff": value.diff}
    return cast("types.SessionRevert", {key: found for key, found in wire.items() if found is not None})


def call_ref(value: values.CallRef) -> types.CallRef:
    """The tool call that asks."""
    return {"messageID": value.message_id, "callID": value.call_id}


# --- sessions --------------------------------------------------------------------------------------------------


def session(record: values.SessionRecord) -> types.Session:
    """`Session`: a session's `info`."""
    extra = dict(record.extra)
    time: types.SessionTime = {"created": record.created_ms, "updated": record.updated_ms}
    if record.archived_ms is not None:
        time["archived"] = record.archived_ms
    wire: types.Session = {
        "id": record.id,
        "slug": record.slug,
        "version": record.version,
        "projectID": record.project_id,
        "directory": record.directory,
        "title": record.title,
        "cost": record.cost,
        "tokens": usage(record.usage),
        "time": _with(time, extra.pop("time", {})) if extra else time,
    }
    if record.path is not None:
        wire["path"] = record.path
    if record.parent_id is not None:
        wire["parentID"] = record.parent_id
    if record.mode is not None:
        wire["agent"] = record.mode
    if record.model is not None:
        wire["model"] = session_model(record.model)
    if record.permission is not None:
        wire["permission"] = list(record.permission)
    if record.metadata is not None or record.owner:
        wire["metadata"] = record.shown_metadata or {}
    if record.share is not None:
        wire["share"] = cast("types.SessionShare", record.share)
    if record.revert is not None:
        wire["revert"] = revert(record.revert)
    if record.summary is not None:
        wire["summary"] = _with(totals(record.summary), extra.pop("summary", {})) if extra else totals(record.summary)
    return _with(wire, extra) if extra else wire


# --- messages --------------------------------------------------------------------------------------------------


def info(value: values.UserInfo | values.StepInfo, session_id: str) -> types.Message:
    """`Message`: a message's `info`."""
    return _user(value, session_id) if isinstance(value, values.UserInfo) else _step(value, session_id)


def _user(value: values.UserInfo, session_id: str) -> types.UserMessage:
    extra = dict(value.extra)
    time: types.UserMessageTime = {"created": value.created_ms}
    wire: types.UserMessage = {
        "id": value.id,
        "sessionID": session_id,
        "role": "user",
        "time": _with(time, extra.pop("time", {})) if extra else time,
        "agent": value.mode,
        "model": message_model(value.model),
    }
    if value.system is not None:
        wire["system"] = value.system
    if value.tools is not None:
        wire["tools"] = value.tools
    if value.format is not None:
        wire["format"] = cast("types.OutputFormat", value.format)
    summary = extra.pop("summary", {})
    if value.diffs is not None:
        summary = {**summary, "diffs": list(map(file_diff, value.diffs))}
    if value.diffs is not None or summary:
        wire["summary"] = cast("types.UserMessageSummary", summary)
    return _with(wire, extra) if extra else wire


def _step(value: values.StepInfo, session_id: str) -> types.AssistantMessage:
    extra = dict(value.extra)
    time: types.AssistantMessageTime = {"created": value.created_ms}
    if value.completed_ms is not None:
        time["completed"] = value.completed_ms
    wire: types.AssistantMessage = {
        "id": value.id,
        "sessionID": session_id,
        "role": "assistant",
        "parentID": value.parent_id,
        "mode": value.mode,
        "agent": value.mode,
        "path": {"cwd": value.cwd, "root": value.root},
        "cost": value.cost,
        "tokens": usage(value.usage),
        "modelID": value.model.model_id,
        "providerID": value.model.provider_id,
        "time": _with(time, extra.pop("time", {})),
    }
    if value.model.variant:
        wire["variant"] = value.model.variant
    if value.compacts:
        wire["summary"] = True
    if value.error is not None:
        wire["error"] = failure(value.error)
    if value.finish is not None:
        wire["finish"] = value.finish
    return _with(wire, extra)


def message(value: Message, session_id: str) -> types.MessageWithParts:
    """`{info, parts}`."""
    message_id = value.info.id
    parts = [part(each, session_id, message_id) for each in value.all_parts()]
    return {"info": info(value.info, session_id), "parts": parts}


# --- parts -----------------------------------------------------------------------------------------------------


def _time(start: int | None, end: int | None) -> types.TextPartTime | None:
    """`time` of a part; None if it has neither begun nor ended."""
    if start is None:  # only an imported part has an end alone
        return None if end is None else cast("types.TextPartTime", {"end": end})
    return {"start": start} if end is None else {"start": start, "end": end}


def tool_state(call: values.ToolCall) -> types.ToolState:
    """`ToolState` of a call, without its attachments."""
    extra = dict(call.state_extra)
    wire: dict[str, Any] = {"status": call.status, "input": dict(call.input)}
    if call.status == "pending":
        return cast("types.ToolState", {**wire, "raw": call.raw, **extra})
    time = {"start": call.start_ms} if call.status == "running" else {"start": call.start_ms, "end": call.end_ms}
    wire["time"] = {**time, **extra.pop("time", {})}
    if call.status == "completed":
        wire |= {"output": call.output, "title": call.title or "", "metadata": call.metadata or {}}
    elif call.metadata is not None:
        wire["metadata"] = call.metadata
    if call.status == "error":
        wire["error"] = call.error
    elif call.status == "running" and call.title is not None:
        wire["title"] = call.title
    return cast("types.ToolState", {**wire, **extra})


_PARTS: Mapping[type[Any], tuple[str, Callable[[Any], Mapping[str, Any]]]] = {
    values.Text: (
        "text",
        lambda part: {
            "text": part.text,
            "time": _time(part.start_ms, part.end_ms),
            "synthetic": part.synthetic,
            "ignored": part.ignored,
            "metadata": part.metadata,
        },
    ),
    # An imported part may lack `time`, which the document requires.
    values.Reasoning: (
        "reasoning",
        lambda part: {"text": part.text, "time": _time(part.start_ms, part.end_ms), "metadata": part.metadata},
    ),
    values.File: (
        "file",
        lambda part: {"mime": part.mime, "url": part.url, "filename": part.filename, "source": part.source},
    ),
    values.AgentMention: ("agent", lambda part: {"name": part.name, "source": part.source}),
    values.CompactionMark: ("compaction", lambda part: {"auto": part.auto}),
    values.StepStart: ("step-start", lambda part: {"snapshot": part.snapshot}),
    values.StepFinish: (
        "step-finish",
        lambda part: {"reason": part.reason, "cost": part.cost, "tokens": usage(part.usage), "snapshot": part.snapshot},
    ),
    values.Patch: ("patch", lambda part: {"hash": part.hash, "files": list(part.files)}),
    values.ToolCall: ("tool", lambda part: {"tool": part.tool, "callID": part.call_id, "state": tool_state(part)}),
}
"""Kind of part -> its `type`, and the fields of its own. A field that is None makes no key."""


def part(value: values.Part, session_id: str, message_id: str) -> types.Part:
    """`Part`."""
    wire: dict[str, Any] = {"id": value.id, "sessionID": session_id, "messageID": message_id}
    if isinstance(value, values.OtherPart):
        return cast("types.Part", {**wire, "type": value.type, **value.fields})
    wire["type"], fields = _PARTS[type(value)]
    for key, found in fields(value).items():
        if found is not None:
            wire[key] = found
    if isinstance(value, values.ToolCall) and value.attachments is not None:
        files = [part(file, session_id, message_id) for file in value.attachments]
        wire["state"] = {**wire["state"], "attachments": files}
    return cast("types.Part", {**wire, **value.extra})


# --- requests --------------------------------------------------------------------------------------------------


def request(
    value: values.PermissionRequest | values.QuestionRequest, session_id: str
) -> types.PermissionRequest | types.QuestionRequest:
    """`PermissionRequest` or `QuestionRequest`."""
    return permission(value, session_id) if isinstance(value, values.PermissionRequest) else question(value, session_id)


def permission(value: values.PermissionRequest, session_id: str) -> types.PermissionRequest:
    """`PermissionRequest`."""
    access = value.access
    wire: types.PermissionRequest = {
        "id": value.id,
        "sessionID": session_id,
        "permission": access.permission,
        "patterns": list(access.patterns),
        "metadata": dict(access.metadata),
        "always": list(access.always),
    }
    if value.call is not None:
        wire["tool"] = call_ref(value.call)
    return wire


def question(value: values.QuestionRequest, session_id: str) -> types.QuestionRequest:
    """`QuestionRequest`."""
    questions: list[types.QuestionInfo] = []
    for item in value.questions:
        options: list[types.QuestionOption] = [
            {"label": option.label, "description": option.description} for option in item.options
        ]
        wire: types.QuestionInfo = {"question": item.question, "header": item.header, "options": options}
        if item.multiple:
            wire["multiple"] = True
        if not item.custom:
            wire["custom"] = False
        questions.append(wire)
    asking: types.QuestionRequest = {"id": value.id, "sessionID": session_id, "questions": questions}
    if value.call is not None:
        asking["tool"] = call_ref(value.call)
    return asking


class Export(TypedDict):
    """The document of `opencode export`."""

    info: types.Session
    messages: list[types.MessageWithParts]


def export(value: Session) -> Export:
    """Build the document of `opencode export`: `{info, messages}`, with messages in order of their times."""
    return {"info": session(value.record), "messages": [message(entry, value.id) for entry in value.oldest_first()]}
