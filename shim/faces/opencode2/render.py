"""A session's changes as OpenCode 2 events, in the form of 2.0. Pure; keeps nothing.

`RENDER` is the table: kind of event in the session's log -> type and data. Ids and numbers are the log's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from shim.faces.opencode2 import asks, names, read, results, session_info
from shim.faces.opencode2.events import NO_LOCATION, VERSIONS, Event2, Wire
from shim.faces.opencode2.hosted import toast
from universal.jsonvalue import obj
from universal.session.changes import Change, Notice, SessionDeleted, TextGrew
from universal.session.entries import (
    CallPiece,
    CompactionEntry,
    ModeEntry,
    ModelEntry,
    MovedEntry,
    NoteEntry,
    SkillEntry,
    StepEntry,
    TextPiece,
)
from universal.session.log import (
    Archived,
    Begun,
    CallBegan,
    CallFailed,
    CallInputEnded,
    CallInputGrew,
    CallProgressed,
    CallRan,
    CallSucceeded,
    CompactionBegan,
    CompactionEnded,
    CompactionFailed,
    ContentChanged,
    DeliveryChanged,
    EntryAdded,
    InstructionsChanged,
    Logged,
    MetadataChanged,
    PermissionAnswered,
    PermissionAsked,
    PromptAccepted,
    PromptDelivered,
    PromptWithdrawn,
    QuestionAsked,
    QuestionClosed,
    RetryScheduled,
    RulesChanged,
    ShellBegan,
    ShellEnded,
    StatusTold,
    StepBegan,
    StepEnded,
    StepFailed,
    StepSaid,
    TextBegan,
    TextEnded,
    TitleChanged,
    TurnBegan,
    TurnOver,
    Unarchived,
    UndoCleared,
    UndoCommitted,
    UndoStaged,
    UsageChanged,
    Viewed,
    WentIdle,
)
from universal.session.model import Part, Session, Text
from universal.session.timeline.log_writer import LogWriter

REPLIES = {"accept": "once", "accept_for_session": "always", "reject": "reject"}
"""Answer of a permission -> OpenCode's reply."""


class Rendered(NamedTuple):
    """Type and data of an event. `note`, `beside`: for dialects (`Event2`). `is_whole`: the data has no `sessionID`."""

    type: str
    data: Wire
    note: str = ""
    beside: Wire | None = None
    is_whole: bool = False


def render(changes: Sequence[Change], session: Session, at_ms: int, new_id: Callable[[], str]) -> list[Event2]:
    """The events of these changes, which the session has just made. `new_id` gives an id to what is of no session's log."""
    events: list[Event2] = []
    piece: Event2 | None = None
    for change in changes:
        if isinstance(change, Logged):
            events.append(log_event(change, session))
        elif isinstance(change, TextGrew):
            piece = _piece(change, session, at_ms)
        elif isinstance(change, SessionDeleted):
            events.append(deleted(session, at_ms))
        elif isinstance(change, Notice):
            events.append(Event2(new_id(), at_ms, "tui.toast.show", toast(change), directory=session.record.directory))
    return events if piece is None else [*events, piece]  # what begins with a piece is told before it


def _piece(change: TextGrew, session: Session, at_ms: int) -> Event2 | None:
    """A piece of a text, a thought or a summary; None for one whose end was told, or that nobody is shown."""
    entry = session.timeline.entry_of(change.message_id)
    rendered: Rendered | None = None
    if isinstance(entry, StepEntry):
        pieces = (one for one in reversed(entry.content) if isinstance(one, TextPiece) and one.part_id == change.part_id)
        found = next(pieces, None)
        if found is not None and not found.is_ended:
            data = {"assistantMessageID": entry.id, "ordinal": found.ordinal, "delta": change.delta}
            rendered = Rendered(f"session.{_kind(found.is_thought)}.delta", data)
    elif isinstance(entry, CompactionEntry) and isinstance(_part_of(change, session), Text):
        rendered = Rendered("session.compaction.delta", {"text": change.delta}, beside={"messageID": entry.id})
    if rendered is None:
        return None
    id_ = f"evt_{LogWriter(session.id, session.timeline).last_id}"
    data = {"sessionID": session.id, **rendered.data}
    return Event2(id_, at_ms, rendered.type, data, session.id, directory=session.record.directory, beside=rendered.beside)


def _part_of(change: TextGrew, session: Session) -> Part | None:
    message = session.messages.get(change.message_id)
    return None if message is None else message.parts.get(change.part_id)


def log_event(logged: Logged, session: Session) -> Event2:
    """One event of a session's log."""
    rendered = RENDER[type(logged.event)](logged.event, session)
    type_ = rendered.type
    return Event2(
        f"evt_{logged.id}",
        logged.created_ms,
        type_,
        rendered.data if rendered.is_whole else {"sessionID": session.id, **rendered.data},
        session.id,
        logged.number,
        None if logged.number is None else VERSIONS[type_],
        None if type_ in NO_LOCATION else session.record.directory,
        rendered.note,
        rendered.beside,
    )


def deleted(session: Session, at_ms: int) -> Event2:
    """The last event of a session. Its log is gone with it."""
    place = LogWriter(session.id, session.timeline).place_at(at_ms)
    type_ = "session.deleted"
    data = {"sessionID": session.id}
    return Event2(
        f"evt_{place}", at_ms, type_, data, session.id, session.timeline.number, VERSIONS[type_], session.record.directory
    )


# --- the session -------------------------------------------------------------------------------------------------


def _begun(event: Begun, session: Session) -> Rendered:
    if event.fork is not None:
        return Rendered("session.forked", {"parentID": event.fork["sessionID"], "boundary": event.fork["boundary"]})
    return Rendered("session.created", session_info.created(session_info.info_of(event.record), event.record.slug))


def _title(event: TitleChanged, session: Session) -> Rendered:
    return Rendered("session.renamed", {"title": session_info.info_of(event.record).get("title", "")})


def _metadata(event: MetadataChanged, session: Session) -> Rendered:
    return Rendered("session.metadata.updated", {"metadata": dict(event.record.metadata or {})})


def _rules(event: RulesChanged, session: Session) -> Rendered:
    return Rendered("session.permissions", {"permissions": names.rules(list(event.record.permission or ()))})


def _archived(event: Archived, session: Session) -> Rendered:
    return Rendered("session.archived", {})


def _unarchived(event: Unarchived, session: Session) -> Rendered:
    return Rendered("session.unarchived", {})


def _viewed(event: Viewed, session: Session) -> Rendered:
    return Rendered("session.viewed", {"idle": event.idle_ms})


def _added(event: EntryAdded, session: Session) -> Rendered:
    match event.entry:
        case ModeEntry() as entry:
            return Rendered("session.agent.selected", read.switch(entry))
        case ModelEntry() as entry:
            return Rendered("session.model.selected", read.switch(entry))
        case MovedEntry() as entry:
            return Rendered("session.moved", read.place(entry.place))
        case SkillEntry() as entry:
            return Rendered("session.skill.activated", {"id": entry.skill_id, "name": entry.name, "text": entry.text})
        case NoteEntry() as entry:
            return Rendered("session.synthetic", read.note(entry))


def _instructions(event: InstructionsChanged, session: Session) -> Rendered:
    data: Wire = {} if event.delta is None else {"delta": dict(event.delta)}
    return Rendered("session.instructions.updated", data if event.entry is None else {**data, "text": event.entry.text})


def _usage(event: UsageChanged, session: Session) -> Rendered:
    return Rendered("session.usage.updated", {"cost": event.cost, "tokens": session_info.counts(event.usage)})


# --- prompts -----------------------------------------------------------------------------------------------------


def _accepted(event: PromptAccepted, session: Session) -> Rendered:
    item = read.inbox_item(event.prompt, session)
    return Rendered("session.inbox.enqueued", {"inboxID": event.prompt.id, "item": item})


def _delivered(event: PromptDelivered, session: Session) -> Rendered:
    prompt = event.prompt
    data = {"inboxID": prompt.id}
    if event.is_again:
        return Rendered("session.inbox.delivered", data)
    return Rendered("session.inbox.delivered", data, prompt.kind, {"item": read.inbox_entry(prompt, session)})


def _withdrawn(event: PromptWithdrawn, session: Session) -> Rendered:
    return Rendered("session.inbox.cancelled", {"inboxID": event.prompt_id})


def _delivery(event: DeliveryChanged, session: Session) -> Rendered:
    return Rendered("session.inbox.delivery.changed", {"inboxID": event.prompt_id, "delivery": event.delivery})


# --- turns -------------------------------------------------------------------------------------------------------


def _began(event: TurnBegan, session: Session) -> Rendered:
    return Rendered("session.execution.started", {})


def _over(event: TurnOver, session: Session) -> Rendered:
    outcome = event.entry.outcome
    data = {"reason": "user"} if outcome == "interrupted" else read.end_error(event.entry)
    return Rendered(f"session.execution.{outcome}", data)


def _status(event: StatusTold, session: Session) -> Rendered:
    return Rendered("session.status", {"status": session_info.status(event.status)})


def _idle(event: WentIdle, session: Session) -> Rendered:
    return Rendered("session.idle", {})


# --- steps -------------------------------------------------------------------------------------------------------


def _step_began(event: StepBegan, session: Session) -> Rendered:
    entry = event.entry
    data: Wire = {"assistantMessageID": entry.id, "agent": entry.mode, "model": names.model_ref(entry.model)}
    data |= {"snapshot": entry.snapshot} if entry.snapshot else {}
    return Rendered("session.step.started", {**data, "started": event.started_ms})


def _step_said(event: StepSaid, session: Session) -> Rendered:
    return Rendered("session.step.streamed", {"assistantMessageID": event.step_id})


def _step_ended(event: StepEnded, session: Session) -> Rendered:
    entry = event.entry
    data: Wire = {"assistantMessageID": entry.id, **names.finish(entry.finish or "stop"), **read.spent(entry)}
    data |= {"snapshot": entry.end_snapshot, "files": read.files(entry)} if entry.end_snapshot is not None else {}
    return Rendered("session.step.ended", data)


def _step_failed(event: StepFailed, session: Session) -> Rendered:
    entry = event.entry
    error = read.LOST if entry.failure is None else names.error(entry.failure)
    spent = read.spent(entry) if event.is_paid else {}
    return Rendered("session.step.failed", {"assistantMessageID": entry.id, "error": error, **spent})


def _retry(event: RetryScheduled, session: Session) -> Rendered:
    retry = {} if event.entry.retry is None else read.retry(event.entry.retry)
    return Rendered("session.retry.scheduled", {"assistantMessageID": event.entry.id, **retry})


def _text_began(event: TextBegan, session: Session) -> Rendered:
    data = {"assistantMessageID": event.step_id, "ordinal": event.piece.ordinal}
    return Rendered(f"session.{_kind(event.piece.is_thought)}.started", data)


def _text_ended(event: TextEnded, session: Session) -> Rendered:
    data = {"assistantMessageID": event.step_id, "ordinal": event.piece.ordinal, "text": event.text}
    return Rendered(f"session.{_kind(event.piece.is_thought)}.ended", data)


def _kind(is_thought: bool) -> str:
    return "reasoning" if is_thought else "text"


def _call(what: str, step_id: str, piece: CallPiece, **data: object) -> Rendered:
    return Rendered(f"session.tool.{what}", {"assistantMessageID": step_id, "id": piece.call_id, **data})


def _call_began(event: CallBegan, session: Session) -> Rendered:
    return _call("input.started", event.step_id, event.piece, name=names.tool_name(event.piece.tool))


def _call_input_grew(event: CallInputGrew, session: Session) -> Rendered:
    data = {"assistantMessageID": event.step_id, "id": event.call_id, "delta": event.delta}
    return Rendered("session.tool.input.delta", data)


def _call_input_ended(event: CallInputEnded, session: Session) -> Rendered:
    words = json.dumps(read.call_input(event.piece, event.call), ensure_ascii=False)
    return _call("input.ended", event.step_id, event.piece, text=words)


def _call_ran(event: CallRan, session: Session) -> Rendered:
    rendered = _call("called", event.step_id, event.piece, input=read.call_input(event.piece, event.call), executed=False)
    return rendered._replace(beside={"tool": names.tool_name(event.piece.tool)})


def _call_progressed(event: CallProgressed, session: Session) -> Rendered:
    metadata = results.progress(names.tool_name(event.piece.tool), obj(event.call.metadata))
    return _call("progress", event.step_id, event.piece, metadata=metadata)


def _call_succeeded(event: CallSucceeded, session: Session) -> Rendered:
    result = read.call_result(event.piece, event.call, event.entry.directory)
    return _call("success", event.entry.id, event.piece, **result, executed=False)


def _call_failed(event: CallFailed, session: Session) -> Rendered:
    return _call("failed", event.step_id, event.piece, **read.call_failure(event.piece, event.call), executed=False)


# --- compactions, commands, undo ---------------------------------------------------------------------------------


def _compaction_began(event: CompactionBegan, session: Session) -> Rendered:
    entry = event.entry
    wish = {} if entry.prompt_id is None else {"inputID": entry.prompt_id}
    return Rendered("session.compaction.started", {"reason": read.compaction_reason(entry), "recent": "", **wish})


def _compaction_ended(event: CompactionEnded, session: Session) -> Rendered:
    data: Wire = {"reason": read.compaction_reason(event.entry), "text": event.summary, "recent": ""}
    return Rendered("session.compaction.ended", data, beside={"messageID": event.entry.id})


def _compaction_failed(event: CompactionFailed, session: Session) -> Rendered:
    entry = event.entry
    error = read.LOST if entry.failure is None else names.error(entry.failure)
    wish = {} if entry.prompt_id is None else {"inputID": entry.prompt_id}
    return Rendered("session.compaction.failed", {"reason": read.compaction_reason(entry), "error": error, **wish})


def _shell_began(event: ShellBegan, session: Session) -> Rendered:
    return Rendered("session.shell.started", {"shell": read.shell(event.entry)})


def _shell_ended(event: ShellEnded, session: Session) -> Rendered:
    return Rendered("session.shell.ended", {"shell": read.shell(event.entry), "output": read.shell_output(event.call)})


def _undo_staged(event: UndoStaged, session: Session) -> Rendered:
    undo = event.undo
    staged = session_info.revert_of(undo.revert, read.message_id(session, undo.revert.message_id), undo.diffs)
    return Rendered("session.revert.staged", {"revert": staged})


def _undo_cleared(event: UndoCleared, session: Session) -> Rendered:
    return Rendered("session.revert.cleared", {})


def _undo_committed(event: UndoCommitted, session: Session) -> Rendered:
    return Rendered("session.revert.committed", {"to": event.entry_id})


def _content(event: ContentChanged, session: Session) -> Rendered:
    data = {"messageID": event.entry.id, "content": read.content(event.entry, session)}
    return Rendered("session.message.content.updated", data)


# --- requests ----------------------------------------------------------------------------------------------------


def _permission_asked(event: PermissionAsked, session: Session) -> Rendered:
    return Rendered("permission.asked", read.permission(event.request, session))


def _permission_answered(event: PermissionAnswered, session: Session) -> Rendered:
    return Rendered("permission.replied", {"requestID": event.request.id, "reply": REPLIES[event.answer]})


def _question_asked(event: QuestionAsked, session: Session) -> Rendered:
    return Rendered("form.created", {"form": read.form(event.request, session)}, is_whole=True)


def _question_closed(event: QuestionClosed, session: Session) -> Rendered:
    question = event.question
    id_ = asks.form_id(question.request.id)
    if question.answers is None:
        return Rendered("form.cancelled", {"id": id_})
    answer = asks.answer(read.form(question.request, session), question.answers)
    return Rendered("form.replied", {"id": id_, "answer": answer})


RENDER: Mapping[type[Any], Callable[[Any, Session], Rendered]] = {
    Begun: _begun,
    TitleChanged: _title,
    MetadataChanged: _metadata,
    RulesChanged: _rules,
    Archived: _archived,
    Unarchived: _unarchived,
    Viewed: _viewed,
    EntryAdded: _added,
    InstructionsChanged: _instructions,
    UsageChanged: _usage,
    PromptAccepted: _accepted,
    PromptDelivered: _delivered,
    PromptWithdrawn: _withdrawn,
    DeliveryChanged: _delivery,
    TurnBegan: _began,
    TurnOver: _over,
    StatusTold: _status,
    WentIdle: _idle,
    StepBegan: _step_began,
    StepSaid: _step_said,
    StepEnded: _step_ended,
    StepFailed: _step_failed,
    RetryScheduled: _retry,
    TextBegan: _text_began,
    TextEnded: _text_ended,
    CallBegan: _call_began,
    CallInputGrew: _call_input_grew,
    CallInputEnded: _call_input_ended,
    CallRan: _call_ran,
    CallProgressed: _call_progressed,
    CallSucceeded: _call_succeeded,
    CallFailed: _call_failed,
    CompactionBegan: _compaction_began,
    CompactionEnded: _compaction_ended,
    CompactionFailed: _compaction_failed,
    ShellBegan: _shell_began,
    ShellEnded: _shell_ended,
    UndoStaged: _undo_staged,
    UndoCleared: _undo_cleared,
    UndoCommitted: _undo_committed,
    ContentChanged: _content,
    PermissionAsked: _permission_asked,
    PermissionAnswered: _permission_answered,
    QuestionAsked: _question_asked,
    QuestionClosed: _question_closed,
}
