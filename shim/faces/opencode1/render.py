"""Renders a session's changes as OpenCode 1 events. Pure and stateless.

`RENDER` is the table: kind of change -> its event. Source: recordings of OpenCode 1.18.33.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from shim.faces.opencode1 import read
from shim.faces.opencode1.events import OpenCodeEvent, Sync
from shim.stream.frame import normal_scope
from universal.lib.ids import COUNTER_SPAN, MASK, hashed_tail
from universal.permissions import REPLIES
from universal.session.changes import (
    LASTING_CHANGES,
    Change,
    CommandExecuted,
    DiffsChanged,
    FileEdited,
    MessageChanged,
    MessageRemoved,
    Notice,
    PartChanged,
    PartRemoved,
    PromptFailed,
    RequestClosed,
    RequestOpened,
    SessionChanged,
    SessionCompacted,
    SessionCreated,
    SessionDeleted,
    StatusChanged,
    TextGrew,
    TodosChanged,
    TurnEnded,
)
from universal.session.model import PermissionRequest, Session

if TYPE_CHECKING:
    from shim.faces.opencode1._generated import types
    from shim.faces.opencode1._generated.event_types import QuestionRejectedProperties, SessionEvent

TOAST_MS = 15_000
"""Milliseconds for which a notice is shown."""
URGENT = frozenset({StatusChanged, TurnEnded, PromptFailed, RequestOpened, RequestClosed})
"""Changes that are sent at once instead of batched."""


def render(changes: Sequence[Change], session: Session, at_ms: int, *, is_resent: bool = False) -> list[OpenCodeEvent]:
    """Render the changes that a session just made. Resent events are no part of its history."""
    record = session.record
    session_id, scope, project = record.id, normal_scope(record.directory), record.project_id
    seq = session.lasting
    if not is_resent:
        for change in changes:
            seq -= type(change) in LASTING_CHANGES
    events: list[OpenCodeEvent] = []
    for change in changes:
        type_ = type(change)
        if isinstance(change, TextGrew):  # nearly always, so without a call
            message_id, part_id, text, _, _ = change
            piece = {"sessionID": session_id, "messageID": message_id, "partID": part_id, "field": "text", "delta": text}
            older = partial(_grown_part, change, session)
            events.append(OpenCodeEvent("message.part.delta", piece, scope, project, False, older))
            continue
        row = RENDER.get(type_)
        if row is None:
            continue
        kind, properties = row(change, session_id)
        sync: Sync | None = None
        if not is_resent and type_ in LASTING_CHANGES:
            sync, seq = _sync(session_id, seq, at_ms), seq + 1
        older = _no_event if isinstance(change, PartChanged) and change.is_empty else None
        subject = (kind, change.request.id) if isinstance(change, RequestOpened) else None
        events.append(OpenCodeEvent(kind, properties, scope, project, type_ in URGENT, older, sync, subject))
    return events


def _sync(session_id: str, seq: int, at_ms: int) -> Sync:
    """Return the place of a lasting event in the session's history. It depends only on the journal."""
    value = (at_ms * COUNTER_SPAN + seq % COUNTER_SPAN) & MASK
    return Sync(session_id, seq, f"evt_{value:012x}{hashed_tail(f'{session_id}:sync:{seq}')}")


class _GrownPart(TypedDict):
    """The content of `message.part.updated` in 1.1: the whole part, and the text that it grew by."""

    sessionID: str
    part: types.Part
    delta: str


def _no_event() -> OpenCodeEvent | None:
    """Clients of 1.1 and older get no part that is empty yet."""


def _grown_part(change: TextGrew, session: Session) -> OpenCodeEvent | None:
    message = session.messages.get(change.message_id)
    if message is None or change.part_id not in message.parts:
        return None
    grown = message.part(change.part_id, change.pieces)  # later pieces may have come together with this one
    part = read.part(grown, session.id, change.message_id)
    properties: _GrownPart = {"sessionID": session.id, "part": part, "delta": change.delta}
    return OpenCodeEvent("message.part.updated", properties)


def _session_created(change: SessionCreated, session_id: str) -> SessionEvent:
    return "session.created", {"sessionID": session_id, "info": read.session(change.record)}


def _session_changed(change: SessionChanged, session_id: str) -> SessionEvent:
    return "session.updated", {"sessionID": session_id, "info": read.session(change.record)}


def _session_deleted(change: SessionDeleted, session_id: str) -> SessionEvent:
    return "session.deleted", {"sessionID": session_id, "info": read.session(change.record)}


def _status(change: StatusChanged, session_id: str) -> SessionEvent:
    return "session.status", {"sessionID": session_id, "status": read.status(change.status)}


def _idle(change: TurnEnded, session_id: str) -> SessionEvent:
    return "session.idle", {"sessionID": session_id}


def _prompt_failed(change: PromptFailed, session_id: str) -> SessionEvent:
    return "session.error", {"sessionID": session_id, "error": read.failure(change.failure)}


def _diffs(change: DiffsChanged, session_id: str) -> SessionEvent:
    return "session.diff", {"sessionID": session_id, "diff": list(map(read.file_diff, change.diffs))}


def _todos(change: TodosChanged, session_id: str) -> SessionEvent:
    return "todo.updated", {"sessionID": session_id, "todos": list(map(read.todo, change.todos))}


def _command(change: CommandExecuted, session_id: str) -> SessionEvent:
    return "command.executed", {
        "sessionID": session_id,
        "name": change.name,
        "arguments": change.arguments,
        "messageID": change.message_id,
    }


def _session_compacted(change: SessionCompacted, session_id: str) -> SessionEvent:
    return "session.compacted", {"sessionID": session_id}


def _notice(change: Notice, session_id: str) -> SessionEvent:
    return "tui.toast.show", {"message": change.text, "variant": change.level, "duration": TOAST_MS}


def _file(change: FileEdited, session_id: str) -> SessionEvent:
    return "file.edited", {"file": change.path}


def _message(change: MessageChanged, session_id: str) -> SessionEvent:
    return "message.updated", {"sessionID": session_id, "info": read.info(change.info, session_id)}


def _message_removed(change: MessageRemoved, session_id: str) -> SessionEvent:
    return "message.removed", {"sessionID": session_id, "messageID": change.message_id}


def _part(change: PartChanged, session_id: str) -> SessionEvent:
    part = read.part(change.part, session_id, change.message_id)
    return "message.part.updated", {"sessionID": session_id, "part": part, "time": change.at_ms}


def _part_removed(change: PartRemoved, session_id: str) -> SessionEvent:
    return "message.part.removed", {"sessionID": session_id, "messageID": change.message_id, "partID": change.part_id}


def _request_opened(change: RequestOpened, session_id: str) -> SessionEvent:
    if isinstance(change.request, PermissionRequest):
        return "permission.asked", read.permission(change.request, session_id)
    return "question.asked", read.question(change.request, session_id)


def _request_closed(change: RequestClosed, session_id: str) -> SessionEvent:
    place: QuestionRejectedProperties = {"sessionID": session_id, "requestID": change.request.id}
    if isinstance(change.request, PermissionRequest):
        return "permission.replied", {**place, "reply": REPLIES[change.answer]}
    if change.answer == "answered":
        return "question.replied", {**place, "answers": [list(answer) for answer in change.answers]}
    return "question.rejected", place


RENDER: Mapping[type[Any], Callable[[Any, str], SessionEvent]] = {
    SessionCreated: _session_created,
    SessionChanged: _session_changed,
    SessionDeleted: _session_deleted,
    StatusChanged: _status,
    TurnEnded: _idle,
    PromptFailed: _prompt_failed,
    DiffsChanged: _diffs,
    TodosChanged: _todos,
    CommandExecuted: _command,
    SessionCompacted: _session_compacted,
    Notice: _notice,
    FileEdited: _file,
    MessageChanged: _message,
    MessageRemoved: _message_removed,
    PartChanged: _part,
    PartRemoved: _part_removed,
    RequestOpened: _request_opened,
    RequestClosed: _request_closed,
}
"""`render` itself has the row of `TextGrew`. Other changes without a row (`LogAppended`) have no event in OpenCode 1."""
