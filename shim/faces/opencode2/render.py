"""Renders a session's changes as events of OpenCode 2, in the form of `v2_0`. Pure; keeps nothing.

`RENDER` maps a kind of event in the session's log to the function that makes type and data. Ids and numbers are those of the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from shim.faces.opencode2 import asks, names, read, results, session_info
from shim.faces.opencode2.events import NO_LOCATION, VERSIONS, Event, Wire
from shim.faces.opencode2.host_events import toast
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
    LogAppended,
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
    SessionArchived,
    SessionBegan,
    SessionUnarchived,
    SessionViewed,
    ShellBegan,
    ShellEnded,
    StatusEmitted,
    StepBegan,
    StepEnded,
    StepFailed,
    StepStreamed,
    TextBegan,
    TextEnded,
    TitleChanged,
    TurnBegan,
    TurnOver,
    UndoCleared,
    UndoCommitted,
    UndoStaged,
    UsageChanged,
    WentIdle,
)
from universal.session.model import Part, Session, Text
from universal.session.timeline.log_writer import LogWriter

REPLIES = {"accept": "once", "accept_for_session": "always", "reject": "reject"}
"""Answer of a permission -> OpenCode's reply."""


class RenderedEvent(NamedTuple):
    """Type and data of an event. `note`, `beside`: for dialects (`Event`). `is_whole`: the data has no `sessionID`."""

    type: str
    data: Wire
    note: str = ""
    beside: Wire | None = None
    is_whole: bool = False


def render(changes: Sequence[Change], session: Session, at_ms: int, new_id: Callable[[], str]) -> list[Event]:
    """The events of the changes that a session has just made. `new_id` makes ids of events that are in no log."""
    events: list[Event] = []
    piece: Event | None = None
    for change in changes:
        if isinstance(change, LogAppended):
            events.append(log_event(change, session))
        elif isinstance(change, TextGrew):
            piece = _piece(change, session, at_ms)
        elif isinstance(change, SessionDeleted):
            events.append(session_deleted(session, at_ms))
        elif isinstance(change, Notice):
            events.append(Event(new_id(), at_ms, "tui.toast.show", toast(change), directory=session.record.directory))
    return events if piece is None else [*events, piece]  # the start of a part comes before its first piece


def _piece(change: TextGrew, session: Session, at_ms: int) -> Event | None:
    """The event of a piece of text, reasoning or a summary. None if the part has ended, or is not shown."""
    entry = session.timeline.entry_of(change.message_id)
    rendered: RenderedEvent | None = None
    if isinstance(entry, StepEntry):
        pieces = (one for one in reversed(entry.content) if isinstance(one, TextPiece) and one.part_id == change.part_id)
        found = next(pieces, None)
        if found is not None and not found.is_ended:
            data = {"assistantMessageID": entry.id, "ordinal": found.ordinal, "delta": change.delta}
            rendered = RenderedEvent(f"session.{_kind(found.is_thought)}.delta", data)
    elif isinstance(entry, CompactionEntry) and isinstance(_part_of(change, session), Text):
        rendered = RenderedEvent("session.compaction.delta", {"text": change.delta}, beside={"messageID": entry.id})
    if rendered is None:
        return None
    id_ = f"evt_{LogWriter(session.id, session.timeline).last_id}"
    data = {"sessionID": session.id, **rendered.data}
    return Event(id_, at_ms, rendered.type, data, session.id, directory=session.record.directory, beside=rendered.beside)


def _part_of(change: TextGrew, session: Session) -> Part | None:
    message = session.messages.peek(change.message_id)
    return None if message is None else message.parts.get(change.part_id)


def log_event(logged: LogAppended, session: Session) -> Event:
    """The event of a log entry."""
    rendered = RENDER[type(logged.event)](logged.event, session)
    type_ = rendered.type
    return Event(
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


def session_deleted(session: Session, at_ms: int) -> Event:
    """The last event of a session. Its log is gone with it."""
    place = LogWriter(session.id, session.timeline).place_at(at_ms)
    type_ = "session.deleted"
    data = {"sessionID": session.id}
    return Event(
        f"evt_{place}", at_ms, type_, data, session.id, session.timeline.number, VERSIONS[type_], session.record.directory
    )


# --- the session -------------------------------------------------------------------------------------------------


def _session_created(event: SessionBegan, session: Session) -> RenderedEvent:
    if event.fork is not None:
        return RenderedEvent("session.forked", {"parentID": event.fork["sessionID"], "boundary": event.fork["boundary"]})
    return RenderedEvent("session.created", session_info.created_data(session_info.info_of(event.record), event.record.slug))


def _title(event: TitleChanged, session: Session) -> RenderedEvent:
    return RenderedEvent("session.renamed", {"title": session_info.info_of(event.record).get("title", "")})


def _metadata(event: MetadataChanged, session: Session) -> RenderedEvent:
    return RenderedEvent("session.metadata.updated", {"metadata": dict(event.record.metadata or {})})


def _rules(event: RulesChanged, session: Session) -> RenderedEvent:
    return RenderedEvent("session.permissions", {"permissions": names.rules(list(event.record.permission or ()))})


def _session_archived(event: SessionArchived, session: Session) -> RenderedEvent:
    return RenderedEvent("session.archived", {})


def _session_unarchived(event: SessionUnarchived, session: Session) -> RenderedEvent:
    return RenderedEvent("session.unarchived", {})


def _session_viewed(event: SessionViewed, session: Session) -> RenderedEvent:
    return RenderedEvent("session.viewed", {"idle": event.idle_ms})


def _entry_added(event: EntryAdded, session: Session) -> RenderedEvent:
    match event.entry:
        case ModeEntry() as entry:
            return RenderedEvent("session.agent.selected", read.switch(entry))
        case ModelEntry() as entry:
            return RenderedEvent("session.model.selected", read.switch(entry))
        case MovedEntry() as entry:
            return RenderedEvent("session.moved", read.place(entry.place))
        case SkillEntry() as entry:
            return RenderedEvent("session.skill.activated", {"id": entry.skill_id, "name": entry.name, "text": entry.text})
        case NoteEntry() as entry:
            return RenderedEvent("session.synthetic", read.note(entry))


def _instructions(event: InstructionsChanged, session: Session) -> RenderedEvent:
    data: Wire = {} if event.delta is None else {"delta": dict(event.delta)}
    return RenderedEvent("session.instructions.updated", data if event.entry is None else {**data, "text": event.entry.text})


def _usage(event: UsageChanged, session: Session) -> RenderedEvent:
    return RenderedEvent("session.usage.updated", {"cost": event.cost, "tokens": session_info.counts(event.usage)})


# --- prompts -----------------------------------------------------------------------------------------------------


def _prompt_accepted(event: PromptAccepted, session: Session) -> RenderedEvent:
    item = read.inbox_item(event.prompt, session)
    return RenderedEvent("session.inbox.enqueued", {"inboxID": event.prompt.id, "item": item})


def _prompt_delivered(event: PromptDelivered, session: Session) -> RenderedEvent:
    prompt = event.prompt
    data = {"inboxID": prompt.id}
    if event.is_again:
        return RenderedEvent("session.inbox.delivered", data)
    return RenderedEvent("session.inbox.delivered", data, prompt.kind, {"item": read.inbox_entry(prompt, session)})


def _withdrawn(event: PromptWithdrawn, session: Session) -> RenderedEvent:
    return RenderedEvent("session.inbox.cancelled", {"inboxID": event.prompt_id})


def _delivery(event: DeliveryChanged, session: Session) -> RenderedEvent:
    return RenderedEvent("session.inbox.delivery.changed", {"inboxID": event.prompt_id, "delivery": event.delivery})


# --- turns -------------------------------------------------------------------------------------------------------


def _began(event: TurnBegan, session: Session) -> RenderedEvent:
    return RenderedEvent("session.execution.started", {})


def _over(event: TurnOver, session: Session) -> RenderedEvent:
    outcome = event.entry.outcome
    data = {"reason": "user"} if outcome == "interrupted" else read.end_error(event.entry)
    return RenderedEvent(f"session.execution.{outcome}", data)


def _status(event: StatusEmitted, session: Session) -> RenderedEvent:
    return RenderedEvent("session.status", {"status": session_info.status(event.status)})


def _idle(event: WentIdle, session: Session) -> RenderedEvent:
    return RenderedEvent("session.idle", {})


# --- steps -------------------------------------------------------------------------------------------------------


def _step_began(event: StepBegan, session: Session) -> RenderedEvent:
    entry = event.entry
    data: Wire = {"assistantMessageID": entry.id, "agent": entry.mode, "model": names.model_ref(entry.model)}
    data |= {"snapshot": entry.snapshot} if entry.snapshot else {}
    return RenderedEvent("session.step.started", {**data, "started": event.started_ms})


def _step_streamed(event: StepStreamed, session: Session) -> RenderedEvent:
    return RenderedEvent("session.step.streamed", {"assistantMessageID": event.step_id})


def _step_ended(event: StepEnded, session: Session) -> RenderedEvent:
    entry = event.entry
    data: Wire = {"assistantMessageID": entry.id, **names.finish(entry.finish or "stop"), **read.step_cost(entry)}
    data |= {"snapshot": entry.end_snapshot, "files": read.files(entry)} if entry.end_snapshot is not None else {}
    return RenderedEvent("session.step.ended", data)


def _step_failed(event: StepFailed, session: Session) -> RenderedEvent:
    entry = event.entry
    error = read.LOST if entry.failure is None else names.error(entry.failure)
    spent = read.step_cost(entry) if event.is_paid else {}
    return RenderedEvent("session.step.failed", {"assistantMessageID": entry.id, "error": error, **spent})


def _retry(event: RetryScheduled, session: Session) -> RenderedEvent:
    retry = {} if event.entry.retry is None else read.retry(event.entry.retry)
    return RenderedEvent("session.retry.scheduled", {"assistantMessageID": event.entry.id, **retry})


def _text_began(event: TextBegan, session: Session) -> RenderedEvent:
    data = {"assistantMessageID": event.step_id, "ordinal": event.piece.ordinal}
    return RenderedEvent(f"session.{_kind(event.piece.is_thought)}.started", data)


def _text_ended(event: TextEnded, session: Session) -> RenderedEvent:
    data = {"assistantMessageID": event.step_id, "ordinal": event.piece.ordinal, "text": event.text}
    return RenderedEvent(f"session.{_kind(event.piece.is_thought)}.ended", data)


def _kind(is_thought: bool) -> str:
    return "reasoning" if is_thought else "text"


def _call(what: str, step_id: str, piece: CallPiece, **data: object) -> RenderedEvent:
    return RenderedEvent(f"session.tool.{what}", {"assistantMessageID": step_id, "id": piece.call_id, **data})


def _call_began(event: CallBegan, session: Session) -> RenderedEvent:
    return _call("input.started", event.step_id, event.piece, name=names.tool_name(event.piece.tool))


def _call_input_grew(event: CallInputGrew, session: Session) -> RenderedEvent:
    data = {"assistantMessageID": event.step_id, "id": event.call_id, "delta": event.delta}
    return RenderedEvent("session.tool.input.delta", data)


def _call_input_ended(event: CallInputEnded, session: Session) -> RenderedEvent:
    words = json.dumps(read.call_input(event.piece, event.call), ensure_ascii=False)
    return _call("input.ended", event.step_id, event.piece, text=words)


def _call_ran(event: CallRan, session: Session) -> RenderedEvent:
    rendered = _call("called", event.step_id, event.piece, input=read.call_input(event.piece, event.call), executed=False)
    return rendered._replace(beside={"tool": names.tool_name(event.piece.tool)})


def _call_progressed(event: CallProgressed, session: Session) -> RenderedEvent:
    metadata = results.progress(names.tool_name(event.piece.tool), obj(event.call.metadata))
    return _call("progress", event.step_id, event.piece, metadata=metadata)


def _call_succeeded(event: CallSucceeded, session: Session) -> RenderedEvent:
    result = read.call_result(event.piece, event.call, event.entry.directory)
    return _call("success", event.entry.id, event.piece, **result, executed=False)


def _call_failed(event: CallFailed, session: Session) -> RenderedEvent:
    return _call("failed", event.step_id, event.piece, **read.call_failure(event.piece, event.call), executed=False)


# --- compactions, commands, undo ---------------------------------------------------------------------------------


def _compaction_began(event: CompactionBegan, session: Session) -> RenderedEvent:
    entry = event.entry
    wish = {} if entry.prompt_id is None else {"inputID": entry.prompt_id}
    return RenderedEvent("session.compaction.started", {"reason": read.compaction_reason(entry), "recent": "", **wish})


def _compaction_ended(event: CompactionEnded, session: Session) -> RenderedEvent:
    data: Wire = {"reason": read.compaction_reason(event.entry), "text": event.summary, "recent": ""}
    return RenderedEvent("session.compaction.ended", data, beside={"messageID": event.entry.id})


def _compaction_failed(event: CompactionFailed, session: Session) -> RenderedEvent:
    entry = event.entry
    error = read.LOST if entry.failure is None else names.error(entry.failure)
    wish = {} if entry.prompt_id is None else {"inputID": entry.prompt_id}
    return RenderedEvent("session.compaction.failed", {"reason": read.compaction_reason(entry), "error": error, **wish})


def _shell_began(event: ShellBegan, session: Session) -> RenderedEvent:
    return RenderedEvent("session.shell.started", {"shell": read.shell(event.entry)})


def _shell_ended(event: ShellEnded, session: Session) -> RenderedEvent:
    return RenderedEvent("session.shell.ended", {"shell": read.shell(event.entry), "output": read.shell_output(event.call)})


def _undo_staged(event: UndoStaged, session: Session) -> RenderedEvent:
    undo = event.undo
    staged = session_info.revert_of(undo.revert, read.message_id(session, undo.revert.message_id), undo.diffs)
    return RenderedEvent("session.revert.staged", {"revert": staged})


def _undo_cleared(event: UndoCleared, session: Session) -> RenderedEvent:
    return RenderedEvent("session.revert.cleared", {})


def _undo_committed(event: UndoCommitted, session: Session) -> RenderedEvent:
    return RenderedEvent("session.revert.committed", {"to": event.entry_id})


def _content(event: ContentChanged, session: Session) -> RenderedEvent:
    data = {"messageID": event.entry.id, "content": read.content(event.entry, session)}
    return RenderedEvent("session.message.content.updated", data)


# --- requests ----------------------------------------------------------------------------------------------------


def _permission_asked(event: PermissionAsked, session: Session) -> RenderedEvent:
    return RenderedEvent("permission.asked", read.permission(event.request, session))


def _permission_answered(event: PermissionAnswered, session: Session) -> RenderedEvent:
    return RenderedEvent("permission.replied", {"requestID": event.request.id, "reply": REPLIES[event.answer]})


def _question_asked(event: QuestionAsked, session: Session) -> RenderedEvent:
    return RenderedEvent("form.created", {"form": read.form(event.request, session)}, is_whole=True)


def _question_closed(event: QuestionClosed, session: Session) -> RenderedEvent:
    question = event.question
    id_ = asks.form_id(question.request.id)
    if question.answers is None:
        return RenderedEvent("form.cancelled", {"id": id_})
    answer = asks.answer(read.form(question.request, session), question.answers)
    return RenderedEvent("form.replied", {"id": id_, "answer": answer})


RENDER: Mapping[type[Any], Callable[[Any, Session], RenderedEvent]] = {
    SessionBegan: _session_created,
    TitleChanged: _title,
    MetadataChanged: _metadata,
    RulesChanged: _rules,
    SessionArchived: _session_archived,
    SessionUnarchived: _session_unarchived,
    SessionViewed: _session_viewed,
    EntryAdded: _entry_added,
    InstructionsChanged: _instructions,
    UsageChanged: _usage,
    PromptAccepted: _prompt_accepted,
    PromptDelivered: _prompt_delivered,
    PromptWithdrawn: _withdrawn,
    DeliveryChanged: _delivery,
    TurnBegan: _began,
    TurnOver: _over,
    StatusEmitted: _status,
    WentIdle: _idle,
    StepBegan: _step_began,
    StepStreamed: _step_streamed,
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
