"""Renders a session's changes as `session/update` of the Agent Client Protocol. Pure.

`RENDER` is the table: kind of change -> its updates. A history is rendered by the same table, as the parts that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from universal.lib.diffs import patch_sides
from universal.lib.jsonvalue import JsonObject, arr, obj, text, whole
from universal.session.changes import (
    Change,
    Notice,
    PartChanged,
    PromptFailed,
    SessionChanged,
    TextGrew,
    TodosChanged,
)
from universal.session.messages import Message
from universal.session.model import Session
from universal.session.values import (
    File,
    ModelRef,
    Part,
    PermissionRequest,
    QuestionRequest,
    Reasoning,
    SessionRecord,
    StepFinish,
    StepInfo,
    Text,
    ToolCall,
)

KINDS: Mapping[str, str] = {
    **{kind: kind for kind in ("read", "delete", "move", "switch_mode")},
    **dict.fromkeys(("edit", "write", "multiedit", "apply_patch", "patch"), "edit"),
    **dict.fromkeys(("glob", "grep", "list", "codesearch", "websearch"), "search"),
    **dict.fromkeys(("task", "todowrite", "think"), "think"),
    "bash": "execute",
    "webfetch": "fetch",
}
"""OpenCode's tool -> kind of a call, which chooses an editor's symbol."""
STATUSES: Mapping[str, str] = {"pending": "pending", "running": "in_progress", "completed": "completed", "error": "failed"}
TODO_STATUSES: Mapping[str, str] = {"in_progress": "in_progress", "completed": "completed", "cancelled": "completed"}
PRIORITIES = ("high", "medium", "low")
MAIN_ARGUMENTS = ("command", "filePath", "pattern", "url", "query", "description")
"""Arguments that name a call without a title."""
OPTIONS: Mapping[str, tuple[str, str]] = {
    "once": ("Allow once", "allow_once"),
    "always": ("Always allow", "allow_always"),
    "reject": ("Reject", "reject_once"),
}
"""OpenCode's reply to a permission -> name and kind of the option."""
FINISHES: Mapping[str, str] = {"length": "max_tokens", "content-filter": "refusal"}
"""How the last step finished -> stop reason, if that is not `end_turn`."""
FAILURES = frozenset({"refusal", "max_turn_requests"})
"""Codes of failures that are stop reasons."""

OWN_EFFORT = "default"
"""The model's own level of effort, as records name it."""

Updates = Iterator[JsonObject]
ContextOf = Callable[[ModelRef], int]
"""Tells how many tokens the context of a model has; 0 if that is not known."""


@dataclass(slots=True)
class Screen:
    """What one client was sent of a session, so that it gets each thing once.

    texts  part -> characters that were sent; those of the running turn
    items  calls and files of the running turn
    own    messages that the client has sent itself
    title, mode, model  those of the session; "" and None before the client was told of them
    """

    title: str
    context_of: ContextOf
    notices: bool = False
    mode: str = ""
    model: ModelRef | None = None
    texts: dict[str, int] = field(default_factory=dict[str, int])
    items: set[str] = field(default_factory=set[str])
    own: set[str] = field(default_factory=set[str])

    def forget_turn(self) -> None:
        """A turn has ended: nothing of it grows any more."""
        self.texts.clear()
        self.items.clear()
        self.own.clear()


def render(changes: Sequence[Change], session: Session, screen: Screen) -> Updates:
    """Render the changes that a session just made."""
    for change in changes:
        row = RENDER.get(type(change))
        if row is not None:
            yield from row(change, session, screen)


def history(messages: Iterable[Message], session: Session, screen: Screen) -> Updates:
    """Render messages that a client has not seen. Of the usage, only that of the last step tells anything now."""
    newest = session.messages.newest
    for message in messages:
        for part in message.all_parts():
            if not isinstance(part, StepFinish) or message is newest:
                yield from _part(PartChanged(message.info.id, part, 0), session, screen)


# --- texts -----------------------------------------------------------------------------------------------------


def _chunk(kind: str, message_id: str, content: JsonObject) -> JsonObject:
    return {"sessionUpdate": kind, "content": content, "messageId": message_id}


def _growth(change: TextGrew, session: Session, screen: Screen) -> Updates:
    message = session.messages.peek(change.message_id)
    part = message.parts.get(change.part_id) if message is not None else None
    if not isinstance(part, Text | Reasoning):
        return
    screen.texts[change.part_id] = screen.texts.get(change.part_id, 0) + len(change.delta)
    yield _chunk(_speaker(part, is_user=False), change.message_id, {"type": "text", "text": change.delta})


def _part(change: PartChanged, session: Session, screen: Screen) -> Updates:
    message = session.messages.peek(change.message_id)
    if message is None:
        return
    part, message_id, is_user = change.part, change.message_id, message.is_user
    if is_user and (message_id in screen.own or (isinstance(part, Text) and (part.synthetic or part.ignored))):
        return
    if isinstance(part, Text | Reasoning):
        sent = screen.texts.get(part.id, 0)
        screen.texts[part.id] = max(sent, len(part.text))
        if rest := part.text[sent:]:
            yield _chunk(_speaker(part, is_user=is_user), message_id, {"type": "text", "text": rest})
    elif isinstance(part, ToolCall):
        kind = "tool_call_update" if part.call_id in screen.items else "tool_call"
        screen.items.add(part.call_id)
        yield {"sessionUpdate": kind, **tool_call(part, session.record.directory)}
    elif isinstance(part, StepFinish):
        yield from _usage(part, message.info, session.record, screen)
    elif isinstance(part, File) and part.id not in screen.items:
        screen.items.add(part.id)
        yield from (_chunk(_speaker(part, is_user=is_user), message_id, block) for block in _file(part))


def _speaker(part: Part, *, is_user: bool) -> str:
    if is_user:
        return "user_message_chunk"
    return "agent_thought_chunk" if isinstance(part, Reasoning) else "agent_message_chunk"


def _file(part: File) -> Iterator[JsonObject]:
    """The content of a file: an image or a link. Other bytes have no place in a conversation."""
    head, _, data = part.url.partition(";base64,")
    if data and head.startswith("data:image/"):
        yield {"type": "image", "mimeType": part.mime, "data": data}
    elif not part.url.startswith("data:"):
        yield {"type": "resource_link", "uri": part.url, "name": part.filename or part.url, "mimeType": part.mime}


def _usage(step: StepFinish, info: object, record: SessionRecord, screen: Screen) -> Updates:
    size = screen.context_of(info.model) if isinstance(info, StepInfo) else 0
    used = step.usage.input + step.usage.cache_read + step.usage.cache_write + step.usage.output
    if size and used:
        cost = {"cost": {"amount": record.cost, "currency": "USD"}} if record.cost else {}
        yield {"sessionUpdate": "usage_update", "used": used, "size": size, **cost}


# --- tool calls ------------------------------------------------------------------------------------------------


def tool_call(call: ToolCall, directory: str) -> JsonObject:
    """A tool call with all that is known of it, for `tool_call`, `tool_call_update` and requests."""
    arguments = call.input
    main = next((text(arguments[key]) for key in MAIN_ARGUMENTS if text(arguments.get(key))), "")
    path = text(arguments.get("filePath")) or text(arguments.get("path"))
    line = whole(arguments.get("offset"))
    row: JsonObject = {
        "toolCallId": call.call_id,
        "title": call.title or main or call.tool,
        "name": call.tool,
        "kind": KINDS.get(call.tool, "other"),
        "status": STATUSES[call.status],
        "content": list(_content(call, directory)),
        "rawInput": dict(arguments),
    }
    if path:
        row["locations"] = [{"path": _absolute(path, directory), **({"line": line} if line > 0 else {})}]
    if call.status == "completed":
        row["rawOutput"] = {"output": call.output, "metadata": dict(call.metadata or {})}
    return row


def _absolute(path: str, directory: str) -> str:
    return str(PurePosixPath(directory, path))


def _content(call: ToolCall, directory: str) -> Iterator[JsonObject]:
    diffs = list(_diffs(call, directory))
    yield from diffs
    words = call.error if call.status == "error" else "" if diffs else call.output
    if words:
        yield {"type": "content", "content": {"type": "text", "text": words}}
    for part in call.attachments or ():
        if isinstance(part, File):
            yield from ({"type": "content", "content": block} for block in _file(part))


def _diffs(call: ToolCall, directory: str) -> Iterator[JsonObject]:
    """The changes of files by a call, of its arguments as long as its result has none."""
    arguments, metadata = call.input, call.metadata or {}
    path = text(arguments.get("filePath"))
    edits = [obj(row) for row in arr(arguments.get("edits"))] or [arguments]
    if path and "newString" in edits[0]:
        for edit in edits:
            yield _diff(_absolute(path, directory), text(edit.get("oldString")), text(edit.get("newString")))
    elif path and call.tool == "write" and "content" in arguments:
        yield _diff(_absolute(path, directory), "", text(arguments.get("content")))
    else:
        for row in [obj(row) for row in arr(metadata.get("files"))] or [obj(metadata.get("filediff"))]:
            name, patch = text(row.get("filePath")) or text(row.get("file")), text(row.get("patch"))
            if name and patch:
                yield _diff(_absolute(name, directory), *patch_sides(patch))


def _diff(path: str, old: str, new: str) -> JsonObject:
    """A diff. Without an old text, the file is new."""
    return {"type": "diff", "path": path, "oldText": old or None, "newText": new}


# --- the rest --------------------------------------------------------------------------------------------------


def plan(change: TodosChanged) -> JsonObject:
    """The todo list."""
    entries = [
        {
            "content": todo.content,
            "status": TODO_STATUSES.get(todo.status, "pending"),
            "priority": todo.priority if todo.priority in PRIORITIES else "medium",
        }
        for todo in change.todos
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def iso_time(ms: int) -> str:
    """A time as ISO 8601."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z")


def _record(change: SessionChanged, _session: Session, screen: Screen) -> Updates:
    record = change.record
    if screen.title != record.title:
        screen.title = record.title
        updated = iso_time(record.updated_ms)
        yield {"sessionUpdate": "session_info_update", "title": record.title, "updatedAt": updated}
    if record.mode and screen.mode != record.mode:
        screen.mode = record.mode
        yield {"sessionUpdate": "current_mode_update", "currentModeId": record.mode}
    if record.model is not None:
        own = record.model.variant in (None, OWN_EFFORT)
        screen.model = replace(record.model, variant=None) if own else record.model


def notice(screen: Screen, severity: str, words: str) -> Updates:
    """A notice for the person, if the client shows such."""
    if screen.notices and words:
        yield {"sessionUpdate": "notice", "severity": severity, "title": words}


RENDER: Mapping[type[Any], Callable[[Any, Session, Screen], Updates]] = {
    TextGrew: _growth,
    PartChanged: _part,
    TodosChanged: lambda change, session, screen: iter((plan(change),)),
    SessionChanged: _record,
    Notice: lambda change, session, screen: notice(screen, change.level, change.text),
    PromptFailed: lambda change, session, screen: notice(screen, "error", change.failure.message),
}
"""Other changes have no update."""


# --- what is asked ---------------------------------------------------------------------------------------------


def permission(request: PermissionRequest, session: Session) -> JsonObject:
    """The parameters of `session/request_permission`, but for the session's id."""
    call = session.call(request.call.call_id) if request.call is not None else None
    access = request.access
    subject = ", ".join(access.patterns)
    if call is not None:
        row = {**tool_call(call, session.record.directory), "status": "pending"}
    else:
        row = {"toolCallId": request.id, "title": f"{access.permission}: {subject}", "status": "pending"}
        row |= {"kind": KINDS.get(access.permission, "other"), "rawInput": dict(access.metadata)}
    options = [
        {"optionId": reply, "name": f"{name}: {', '.join(access.always)}" if reply == "always" else name, "kind": kind}
        for reply, (name, kind) in OPTIONS.items()
    ]
    return {"toolCall": row, "options": options}


def form(request: QuestionRequest) -> JsonObject:
    """The parameters of `elicitation/create`, but for the session's id. A typed answer has a field of its own."""
    properties: JsonObject = {}
    for number, question in enumerate(request.questions):
        options = [
            {"const": option.label, "title": option.label, **({"description": option.description} if option.description else {})}
            for option in question.options
        ]
        head: JsonObject = {"title": question.header or question.question, "description": question.question}
        if not options:
            properties[f"q{number}"] = {"type": "string", **head}
        elif question.multiple:
            properties[f"q{number}"] = {"type": "array", **head, "items": {"anyOf": options}}
        else:
            properties[f"q{number}"] = {"type": "string", **head, "oneOf": options}
        if options and question.custom:
            properties[f"q{number}_other"] = {"type": "string", "title": "Other", "description": "An answer in your own words."}
    scope = {"toolCallId": request.call.call_id} if request.call is not None else {}
    schema: JsonObject = {"type": "object", "properties": properties}
    words = "\n".join(question.question for question in request.questions)
    return {"mode": "form", "message": words, "requestedSchema": schema, **scope}


def form_answers(request: QuestionRequest, content: JsonObject) -> list[list[str]]:
    """The answers of a form: a list of labels or typed words for each question."""
    answers: list[list[str]] = []
    for number, _ in enumerate(request.questions):
        chosen, other = content.get(f"q{number}"), text(content.get(f"q{number}_other")).strip()
        labels = [label for label in (arr(chosen) or [chosen]) if isinstance(label, str)]
        answers.append([label for label in (*([] if other else labels), other) if label])
    return answers


def choice(request: QuestionRequest, number: int) -> JsonObject:
    """The parameters of `session/request_permission` that ask one question of a client without forms."""
    question = request.questions[number]
    options = [{"optionId": str(at), "name": option.label, "kind": "allow_once"} for at, option in enumerate(question.options)]
    call_id = request.call.call_id if request.call is not None else request.id
    row: JsonObject = {"toolCallId": call_id, "title": question.question, "kind": "other", "status": "pending"}
    details = [f"{option.label}: {option.description}" for option in question.options if option.description]
    if details:
        row["content"] = [{"type": "content", "content": {"type": "text", "text": "\n".join(details)}}]
    return {"toolCall": row, "options": [*options, {"optionId": "reject", "name": "Dismiss", "kind": "reject_once"}]}
