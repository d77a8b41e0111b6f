"""OpenCode 1's JSON of sessions, messages and parts as typed values. Pure.

Journals hold it in `metadata.opencode` (what a client has sent) and `metadata.imported` (messages of another server). A field
that has no place of its own is kept in `extra`; a part without the form of its type is kept as `OtherPart`, so that it is given
back as it came. Its inverse is `shim.faces.opencode1.read`, to which a test holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from universal.lib.diffs import FileDiff
from universal.lib.jsonvalue import arr, obj, text, whole, whole_number
from universal.opencode_metadata import error_details
from universal.session import values
from universal.session.messages import Message

Json = dict[str, Any]
PLACE = ("id", "sessionID", "messageID", "type")
"""Fields of a part that say where it belongs."""


def without(value: Mapping[str, Any], *keys: str) -> Json:
    """The fields of a JSON object other than these names."""
    return {key: inner for key, inner in value.items() if key not in keys}


# --- small values ----------------------------------------------------------------------------------------------


def session_model(value: Any) -> values.ModelRef | None:
    """A session's model, `{id, providerID, variant?}`."""
    wire = obj(value)
    return values.ModelRef(text(wire.get("providerID")), text(wire.get("id")), _optional(wire.get("variant"))) if wire else None


def message_model(value: Any) -> values.ModelRef | None:
    """A message's model, `{modelID, providerID, variant?}`."""
    wire = obj(value)
    return (
        values.ModelRef(text(wire.get("providerID")), text(wire.get("modelID")), _optional(wire.get("variant"))) if wire else None
    )


def usage(value: Any) -> values.Usage:
    """Token counts, `{total?, input, output, reasoning, cache: {read, write}}`."""
    wire = obj(value)
    cache = obj(wire.get("cache"))
    return values.Usage(
        input=whole_number(wire.get("input", 0)),
        output=whole_number(wire.get("output", 0)),
        reasoning=whole_number(wire.get("reasoning", 0)),
        cache_read=whole_number(cache.get("read", 0)),
        cache_write=whole_number(cache.get("write", 0)),
        total=wire.get("total"),
    )


def failure(value: Any) -> values.Failure | None:
    """An error object, `{name, data}`."""
    wire = obj(value)
    return (
        values.Failure(text(obj(wire.get("data")).get("message")), text(wire.get("name")), error_details(wire)) if wire else None
    )


def diffs(value: Any) -> tuple[FileDiff, ...]:
    """Diffs of files."""
    return tuple(FileDiff.from_json(obj(diff)) for diff in arr(value))


def revert(value: Any) -> values.Revert | None:
    """A pending undo, `{messageID, partID?, snapshot?, diff?}`."""
    wire = obj(value)
    if not wire:
        return None
    return values.Revert(text(wire.get("messageID")), *(_optional(wire.get(key)) for key in ("partID", "snapshot", "diff")))


def todo(value: Any) -> values.Todo:
    """An entry of a todo list as agents report it. Missing fields have defaults."""
    wire = obj(value)
    return values.Todo(text(wire.get("content")), text(wire.get("status"), "pending"), text(wire.get("priority"), "medium"))


def imported_todo(value: Any) -> values.Todo:
    """An entry of an imported todo list, with all its fields."""
    wire = obj(value)
    return values.Todo(
        text(wire["content"]), text(wire["status"]), text(wire["priority"]), without(wire, "content", "status", "priority")
    )


def _optional(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# --- sessions --------------------------------------------------------------------------------------------------

_SESSION = (
    *("id", "slug", "version", "projectID", "directory", "path", "title", "time", "parentID", "agent", "model", "cost"),
    *("tokens", "permission", "metadata", "share", "summary", "revert"),
)


def session(value: Mapping[str, Any]) -> values.SessionRecord:
    """A session's record from OpenCode 1's `Session`."""
    time, summary = obj(value.get("time")), obj(value.get("summary"))
    extra = without(value, *_SESSION)
    if more := without(time, "created", "updated", "archived"):
        extra["time"] = more
    if more := without(summary, "additions", "deletions", "files"):
        extra["summary"] = more
    permission = value.get("permission")
    archived = time.get("archived")
    return values.SessionRecord(
        id=text(value.get("id")),
        slug=text(value.get("slug")),
        version=text(value.get("version")),
        project_id=text(value.get("projectID"), "global"),
        directory=text(value.get("directory"), "/"),
        path=_optional(value.get("path")),
        title=text(value.get("title")),
        created_ms=whole(time.get("created")),
        updated_ms=whole(time.get("updated")),
        archived_ms=None if archived is None else whole(archived),
        parent_id=_optional(value.get("parentID")),
        mode=_optional(value.get("agent")),
        model=session_model(value.get("model")),
        cost=value.get("cost", 0),
        usage=usage(value.get("tokens")),
        permission=tuple(arr(permission)) if permission is not None else None,
        metadata=value.get("metadata"),
        share=value.get("share"),
        summary=values.DiffTotals(*(whole(summary.get(key)) for key in ("additions", "deletions", "files"))) if summary else None,
        revert=revert(value.get("revert")),
        extra=extra,
    )


# --- messages --------------------------------------------------------------------------------------------------

_USER = ("id", "sessionID", "role", "time", "agent", "model", "system", "tools", "format", "summary")
_STEP = (
    *("id", "sessionID", "role", "parentID", "time", "mode", "agent", "modelID", "providerID", "variant", "path", "cost"),
    *("tokens", "finish", "error", "summary"),
)


def message(value: Mapping[str, Any]) -> Message:
    """An imported message, `{info, parts}`. It is complete."""
    wire = obj(value.get("info"))
    info = user_info(wire) if wire.get("role") == "user" else step_info(wire)
    parts = [part(obj(item)) for item in arr(value.get("parts"))]
    return Message(info, {entry.id: entry for entry in parts}, is_said=True, is_over=True)


def user_info(wire: Json) -> values.UserInfo:
    """A prompt's `info`."""
    summary, time = obj(wire.get("summary")), obj(wire.get("time"))
    extra = without(wire, *_USER)
    if more := without(summary, "diffs"):
        extra["summary"] = more
    if more := without(time, "created"):
        extra["time"] = more
    return values.UserInfo(
        id=text(wire.get("id")),
        created_ms=whole(time.get("created")),
        mode=text(wire.get("agent")),
        model=message_model(wire.get("model")) or values.ModelRef("", ""),
        system=wire.get("system"),
        tools=wire.get("tools"),
        format=wire.get("format"),
        diffs=diffs(summary["diffs"]) if "diffs" in summary else None,
        extra=extra,
    )


def step_info(wire: Json) -> values.StepInfo:
    """An assistant message's `info`."""
    time, path = obj(wire.get("time")), obj(wire.get("path"))
    extra = without(wire, *_STEP)
    if more := without(time, "created", "completed"):
        extra["time"] = more
    mode = text(wire.get("mode"))
    if wire.get("agent") != mode:
        extra["agent"] = wire.get("agent")
    completed = time.get("completed")
    return values.StepInfo(
        id=text(wire.get("id")),
        parent_id=text(wire.get("parentID")),
        created_ms=whole(time.get("created")),
        mode=mode,
        model=message_model(wire) or values.ModelRef("", ""),
        cwd=text(path.get("cwd")),
        root=text(path.get("root")),
        cost=wire.get("cost", 0),
        usage=usage(wire.get("tokens")),
        completed_ms=None if completed is None else whole(completed),
        finish=_optional(wire.get("finish")),
        error=failure(wire.get("error")),
        compacts=wire.get("summary") is True,
        extra=extra,
    )


# --- parts -----------------------------------------------------------------------------------------------------


def part(wire: Json, part_id: str | None = None) -> values.Part:
    """A part, `{id, type, ...}`. A given `part_id` replaces its id."""
    id_ = part_id or text(wire.get("id"))
    kind = text(wire.get("type"))
    entry = _tool(id_, wire) if kind == "tool" else _part(id_, wire, _PARTS[kind]) if kind in _PARTS else None
    return entry or values.OtherPart(id_, kind, without(wire, *PLACE))


class _Rows(NamedTuple):
    """How a part is read. `needed`: key -> its type; without it the part is another one. `keys`: in the order of the class."""

    make: Callable[..., values.Part]
    needed: Mapping[str, type]
    keys: tuple[str, ...]


_PARTS: Mapping[str, _Rows] = {
    "text": _Rows(values.Text, {"text": str}, ("text", "time", "synthetic", "ignored", "metadata")),
    "reasoning": _Rows(values.Reasoning, {"text": str}, ("text", "time", "metadata")),
    "file": _Rows(values.File, {"mime": str, "url": str}, ("mime", "url", "filename", "source")),
    "agent": _Rows(values.AgentMention, {"name": str}, ("name", "source")),
    "compaction": _Rows(values.CompactionMark, {"auto": bool}, ("auto",)),
    "step-start": _Rows(values.StepStart, {}, ("snapshot",)),
    "step-finish": _Rows(
        values.StepFinish, {"reason": str, "cost": object, "tokens": object}, ("reason", "cost", "tokens", "snapshot")
    ),
    "patch": _Rows(values.Patch, {"hash": str}, ("hash", "files")),
}


def _part(id_: str, wire: Json, rows: _Rows) -> values.Part | None:
    for key, kind in rows.needed.items():
        if key not in wire or not isinstance(wire[key], kind):
            return None
    fields: list[Any] = []
    for key in rows.keys:
        if key == "time":
            if (times := _times(wire)) is None:
                return None
            fields += times
        elif key == "files":
            if not all(isinstance(name, str) for name in arr(wire.get(key))):
                return None
            fields.append(tuple(arr(wire.get(key))))
        else:
            fields.append(usage(wire[key]) if key == "tokens" else wire.get(key))
    return rows.make(id_, *fields, without(wire, *PLACE, *rows.keys))


def _times(wire: Json) -> tuple[int | None, int | None] | None:
    """The start and end of `time`; None if it holds anything else."""
    time = obj(wire.get("time"))
    if ("time" in wire and not time) or not time.keys() <= {"start", "end"}:
        return None
    return time.get("start"), time.get("end")


_STATE = ("status", "input", "raw", "title", "output", "metadata", "error", "attachments", "time")


def _tool(id_: str, wire: Json) -> values.Part | None:
    state = obj(wire.get("state"))
    status, time = state.get("status"), obj(state.get("time"))
    if status not in ("pending", "running", "completed", "error"):
        return None
    extra = without(state, *_STATE)
    if more := without(time, "start", "end"):
        extra["time"] = more
    attachments = state.get("attachments")
    return values.ToolCall(
        id=id_,
        call_id=text(wire.get("callID")),
        tool=text(wire.get("tool")),
        input=obj(state.get("input")),
        status=status,
        start_ms=whole(time.get("start")),
        end_ms=whole(time.get("end")),
        title=state.get("title"),
        output=text(state.get("output")),
        metadata=state.get("metadata"),
        error=text(state.get("error")),
        attachments=tuple(part(obj(row)) for row in arr(attachments)) if attachments is not None else None,
        raw=text(state.get("raw")),
        extra=without(wire, *PLACE, "callID", "tool", "state"),
        state_extra=extra,
    )


def patch_record(record: values.SessionRecord, fields: values.Fields) -> values.SessionRecord:
    """The record with what a `session` status changes: title, permission, metadata, share, agent, model, archived."""
    changes: dict[str, Any] = {key: fields[key] for key in ("title", "metadata", "share") if key in fields}
    if "permission" in fields:
        changes["permission"] = None if fields["permission"] is None else tuple(arr(fields["permission"]))
    if "agent" in fields:
        changes["mode"] = fields["agent"]
    if "model" in fields:
        changes["model"] = session_model(fields["model"])
    if "archived" in fields:
        changes["archived_ms"] = None if fields["archived"] is None else whole_number(fields["archived"])
    return replace(record, **changes)
