"""Converts a session's state to OpenCode 1's JSON, for answers and events. Pure.

Tests check the values against OpenCode's API document (1.18.33). Times are epoch milliseconds. The inverse is
`universal.session.importer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from universal.jsonvalue import JsonObject
from universal.session.model import (
    AgentMention,
    CallRef,
    CompactionMark,
    DiffTotals,
    Failure,
    File,
    Message,
    ModelRef,
    OtherPart,
    Part,
    Patch,
    PermissionRequest,
    QuestionRequest,
    Reasoning,
    Revert,
    Session,
    SessionRecord,
    Status,
    StepFinish,
    StepInfo,
    StepStart,
    Text,
    Todo,
    ToolCall,
    Usage,
    UserInfo,
)

# --- small values ----------------------------------------------------------------------------------------------


def usage(value: Usage) -> JsonObject:
    """Convert token counts."""
    counts = {"input": value.input, "output": value.output, "reasoning": value.reasoning}
    wire: JsonObject = {**counts, "cache": {"read": value.cache_read, "write": value.cache_write}}
    return wire if value.total is None else {"total": value.total, **wire}


def session_model(model: ModelRef) -> JsonObject:
    """A session's model."""
    wire = {"id": model.model_id, "providerID": model.provider_id}
    return wire if model.variant is None else {**wire, "variant": model.variant}


def message_model(model: ModelRef) -> JsonObject:
    """A message's model."""
    wire = {"providerID": model.provider_id, "modelID": model.model_id}
    return wire if model.variant is None else {**wire, "variant": model.variant}


def failure(value: Failure) -> JsonObject:
    """Convert an error to an object `{name, data}`.

    Source: `AssistantMessage.error` of the API document. For ProviderAuthError, clients offer a login.
    """
    details = value.details or {}
    native = details.get("opencode")
    if isinstance(native, dict):  # an error of OpenCode itself
        return cast(JsonObject, native)
    hint = details.get("hint")
    text = f"{value.message}\n{hint}" if hint else value.message
    if value.code in ("authentication_failed", "ProviderAuthError"):
        return {"name": "ProviderAuthError", "data": {"providerID": value.agent, "message": text}}
    if value.code == "max_output_tokens":
        return {"name": "MessageOutputLengthError", "data": {}}
    if value.code == "aborted":
        return {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    status = details.get("status_code")
    if isinstance(status, int) or value.code == "APIError":
        data: JsonObject = {"message": text, "isRetryable": bool(details.get("is_retryable", False))}
        return {"name": "APIError", "data": {**data, "statusCode": status} if isinstance(status, int) else data}
    return {"name": "UnknownError", "data": {"message": text}}


def status(value: Status) -> JsonObject:
    """`SessionStatus`."""
    if value.type == "retry":
        return {"type": "retry", "attempt": value.attempt, "message": value.message, "next": value.next_ms}
    return {"type": value.type}


def todo(value: Todo) -> JsonObject:
    """`Todo`."""
    return {"content": value.content, "status": value.status, "priority": value.priority, **value.extra}


def totals(value: DiffTotals) -> JsonObject:
    """A session's `summary`."""
    return {"additions": value.additions, "deletions": value.deletions, "files": value.files}


def revert(value: Revert) -> JsonObject:
    """A session's `revert`."""
    fields = {"messageID": value.message_id, "partID": value.part_id, "snapshot": value.snapshot, "diff": value.diff}
    return {key: inner for key, inner in fields.items() if inner is not None}


def call_ref(value: CallRef) -> JsonObject:
    """The tool call that asks."""
    return {"messageID": value.message_id, "callID": value.call_id}


# --- sessions --------------------------------------------------------------------------------------------------


def session(record: SessionRecord) -> JsonObject:
    """`Session`: a session's `info`."""
    extra = dict(record.extra)
    time: JsonObject = {"created": record.created_ms, "updated": record.updated_ms}
    if record.archived_ms is not None:
        time["archived"] = record.archived_ms
    optional: JsonObject = {
        "path": record.path,
        "parentID": record.parent_id,
        "agent": record.mode,
        "model": session_model(record.model) if record.model is not None else None,
        "permission": list(record.permission) if record.permission is not None else None,
        "metadata": record.metadata,
        "share": record.share,
        "revert": revert(record.revert) if record.revert is not None else None,
    }
    if record.summary is not None:
        optional["summary"] = {**totals(record.summary), **extra.pop("summary", {})}
    return {
        "id": record.id,
        "slug": record.slug,
        "version": record.version,
        "projectID": record.project_id,
        "directory": record.directory,
        "title": record.title,
        "cost": record.cost,
        "tokens": usage(record.usage),
        "time": {**time, **extra.pop("time", {})},
        **{key: value for key, value in optional.items() if value is not None},
        **extra,
    }


# --- messages --------------------------------------------------------------------------------------------------


def info(value: UserInfo | StepInfo, session_id: str) -> JsonObject:
    """`Message`: a message's `info`."""
    return _user(value, session_id) if isinstance(value, UserInfo) else _step(value, session_id)


def _user(value: UserInfo, session_id: str) -> JsonObject:
    extra = dict(value.extra)
    wire: JsonObject = {
        "id": value.id,
        "sessionID": session_id,
        "role": "user",
        "time": {"created": value.created_ms, **extra.pop("time", {})},
        "agent": value.mode,
        "model": message_model(value.model),
    }
    optional = {"system": value.system, "tools": value.tools, "format": value.format}
    wire |= {key: inner for key, inner in optional.items() if inner is not None}
    summary = extra.pop("summary", {})
    if value.diffs is not None or summary:
        wire["summary"] = {**summary, **({"diffs": [d.to_json() for d in value.diffs]} if value.diffs is not None else {})}
    return {**wire, **extra}


def _step(value: StepInfo, session_id: str) -> JsonObject:
    extra = dict(value.extra)
    time: JsonObject = {"created": value.created_ms}
    if value.completed_ms is not None:
        time["completed"] = value.completed_ms
    wire: JsonObject = {
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
        "time": {**time, **extra.pop("time", {})},
    }
    if value.model.variant:
        wire["variant"] = value.model.variant
    if value.compacts:
        wire["summary"] = True
    if value.error is not None:
        wire["error"] = failure(value.error)
    if value.finish is not None:
        wire["finish"] = value.finish
    return {**wire, **extra}


def message(value: Message, session_id: str) -> JsonObject:
    """`{info, parts}`."""
    message_id = value.info.id
    return {"info": info(value.info, session_id), "parts": [part(each, session_id, message_id) for each in value.all_parts()]}


# --- parts -----------------------------------------------------------------------------------------------------


def part(value: Part, session_id: str, message_id: str) -> JsonObject:
    """`Part`."""
    place = {"sessionID": session_id, "messageID": message_id}
    wire = _PARTS[type(value)](value)
    if isinstance(value, ToolCall) and value.attachments is not None:
        wire["state"]["attachments"] = [part(file, session_id, message_id) for file in value.attachments]
    return {"id": value.id, **place, **wire}


def _present(**fields: Any) -> JsonObject:
    return {key: value for key, value in fields.items() if value is not None}


def _time(start: int | None, end: int | None) -> JsonObject:
    return {} if start is None and end is None else {"time": _present(start=start, end=end)}


def _text(value: Text) -> JsonObject:
    wire: JsonObject = {"type": "text", "text": value.text, **_time(value.start_ms, value.end_ms)}
    return {**wire, **_present(synthetic=value.synthetic, ignored=value.ignored, metadata=value.metadata), **value.extra}


def _reasoning_part(value: Reasoning) -> JsonObject:
    wire: JsonObject = {"type": "reasoning", "text": value.text, **_time(value.start_ms, value.end_ms)}
    return {**wire, **_present(metadata=value.metadata), **value.extra}


def _file(value: File) -> JsonObject:
    optional = _present(filename=value.filename, source=value.source)
    return {"type": "file", "mime": value.mime, "url": value.url, **optional, **value.extra}


def _agent(value: AgentMention) -> JsonObject:
    return {"type": "agent", "name": value.name, **_present(source=value.source), **value.extra}


def _compaction(value: CompactionMark) -> JsonObject:
    return {"type": "compaction", "auto": value.auto, **value.extra}


def _step_start(value: StepStart) -> JsonObject:
    return {"type": "step-start", **_present(snapshot=value.snapshot), **value.extra}


def _step_finish(value: StepFinish) -> JsonObject:
    wire: JsonObject = {"type": "step-finish", "reason": value.reason, "cost": value.cost, "tokens": usage(value.usage)}
    return {**wire, **_present(snapshot=value.snapshot), **value.extra}


def _patch(value: Patch) -> JsonObject:
    return {"type": "patch", "hash": value.hash, "files": list(value.files), **value.extra}


def _other_part(value: OtherPart) -> JsonObject:
    return {"type": value.type, **value.fields}


def _tool(value: ToolCall) -> JsonObject:
    return {"type": "tool", "tool": value.tool, "callID": value.call_id, "state": tool_state(value), **value.extra}


def tool_state(call: ToolCall) -> JsonObject:
    """`ToolState` of a call, without its attachments."""
    extra = dict(call.state_extra)
    wire: JsonObject = {"status": call.status, "input": dict(call.input)}
    time: JsonObject = {"start": call.start_ms}
    if call.status in ("completed", "error"):
        time["end"] = call.end_ms
    if call.status == "pending":
        wire["raw"] = call.raw
    else:
        wire["time"] = {**time, **extra.pop("time", {})}
    match call.status:
        case "running":
            wire |= _present(title=call.title, metadata=call.metadata)
        case "completed":
            wire |= {"output": call.output, "title": call.title or "", "metadata": call.metadata or {}}
        case "error":
            wire |= {"error": call.error, **_present(metadata=call.metadata)}
        case _:
            pass
    return {**wire, **extra}


_PARTS: Mapping[type[Any], Callable[[Any], JsonObject]] = {
    Text: _text,
    Reasoning: _reasoning_part,
    File: _file,
    AgentMention: _agent,
    CompactionMark: _compaction,
    StepStart: _step_start,
    StepFinish: _step_finish,
    Patch: _patch,
    ToolCall: _tool,
    OtherPart: _other_part,
}


# --- requests --------------------------------------------------------------------------------------------------


def request(value: PermissionRequest | QuestionRequest, session_id: str) -> JsonObject:
    """`PermissionRequest` or `QuestionRequest`."""
    wire = _permission(value) if isinstance(value, PermissionRequest) else _question(value)
    tool = {"tool": call_ref(value.call)} if value.call is not None else {}
    return {"id": value.id, "sessionID": session_id, **wire, **tool}


def _permission(value: PermissionRequest) -> JsonObject:
    access = value.access
    return {
        "permission": access.permission,
        "patterns": list(access.patterns),
        "metadata": dict(access.metadata),
        "always": list(access.always),
    }


def _question(value: QuestionRequest) -> JsonObject:
    questions: list[JsonObject] = []
    for asked in value.questions:
        options = [{"label": option.label, "description": option.description} for option in asked.options]
        wire: JsonObject = {"question": asked.question, "header": asked.header, "options": options}
        if asked.multiple:
            wire["multiple"] = True
        if not asked.custom:
            wire["custom"] = False
        questions.append(wire)
    return {"questions": questions}


def export(value: Session) -> JsonObject:
    """Build the document of `opencode export`: `{info, messages}`, with messages in order of their times."""
    return {"info": session(value.record), "messages": [message(entry, value.id) for entry in value.oldest_first()]}
