"""Renders a session's changes as events of OpenCode 2, in the form of `v2_0`. Pure; keeps nothing.

`RENDER` maps a kind of event in the session's log to the function that makes type and data. Ids and numbers are those of the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shim.faces.opencode2 import asks, names, read, results, session_info
from shim.faces.opencode2.events import NO_LOCATION, VERSIONS, Event, ReadOnlyWire
from shim.faces.opencode2.host_events import toast
from universal.jsonvalue import obj
from universal.permissions import REPLIES
from universal.session.changes import Change, Notice, SessionDeleted, TextGrew
from universal.session.entries import (
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

if TYPE_CHECKING:
    from shim.faces.opencode2 import event_types


class RenderedEvent(NamedTuple):
    """Type and data of an event. `note`, `beside`: for dialects (`Event`). `is_whole`: the data has no `sessionID`."""

    type: str
    data: event_types.EventData
    note: str = ""
    beside: ReadOnlyWire | None = None
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
            data: event_types.SessionTextDeltaData = {
                "assistantMessageID": entry.id,
                "ordinal": found.ordinal,
                "delta": change.delta,
            }
            rendered = RenderedEvent(f"session.{_kind(found.is_thought)}.delta", data)
    elif isinstance(entry, CompactionEntry) and isinstance(_part_of(change, session), Text):
        rendered = RenderedEvent("session.compaction.delta", {"text": change.delta}, beside={"messageID": entry.id})
    if rendered is None:
        return None
    id_ = f"evt_{LogWriter(session.id, session.timeline).last_id}"
    whole = {"sessionID": session.id, **rendered.data}
    return Event(id_, at_ms, rendered.type, whole, session.id, directory=session.record.directory, beside=rendered.beside)


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
        data: event_types.SessionForkedData = {"parentID": event.fork["sessionID"], "boundary": event.fork["boundary"]}
        return RenderedEvent("session.forked", data)
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
            return RenderedEvent("session.agent.selected", read.chosen_mode(entry))
        case ModelEntry() as entry:
            return RenderedEvent("session.model.selected", read.chosen_model(entry))
        case MovedEntry() as entry:
            return RenderedEvent("session.moved", read.place(entry.place))
        case SkillEntry() as entry:
            skill: event_types.SessionSkillActivatedData = {"id": entry.skill_id, "name": entry.name, "text": entry.text}
            return RenderedEvent("session.skill.activated", skill)
        case NoteEntry() as entry:
            return RenderedEvent("session.synthetic", read.note(entry))


def _instructions(event: InstructionsChanged, session: Session) -> RenderedEvent:
    data: event_types.SessionInstructionsUpdatedData = {}
    if event.delta is not None:
        data["delta"] = dict(event.delta)
    if event.entry is not None:
        data["text"] = event.entry.text
    return RenderedEvent("session.instructions.updated", data)


def _usage(event: UsageChanged, session: Session) -> RenderedEvent:
    data: event_types.SessionUsageUpdatedData = {"cost": event.cost, "tokens": session_info.counts(event.usage)}
    return RenderedEvent("session.usage.updated", data)


# --- prompts -----------------------------------------------------------------------------------------------------


def _prompt_accepted(event: PromptAccepted, session: Session) -> RenderedEvent:
    item = read.inbox_item(event.prompt, session)
    data: event_types.SessionInboxEnqueuedData = {"inboxID": event.prompt.id, "item": item}
    return RenderedEvent("session.inbox.enqueued", data)


def _prompt_delivered(event: PromptDelivered, session: Session) -> RenderedEvent:
    prompt = event.prompt
    data: event_types.SessionInboxDeliveredData = {"inboxID": prompt.id}
    if event.is_again:
        return RenderedEvent("session.inbox.delivered", data)
    return RenderedEvent("session.inbox.delivered", data, prompt.kind, {"item": read.inbox_entry(prompt, session)})


def _withdrawn(event: PromptWithdrawn, session: Session) -> RenderedEvent:
    data: event_types.SessionInboxCancelledData = {"inboxID": event.prompt_id}
    return RenderedEvent("session.inbox.cancelled", data)


def _delivery(event: DeliveryChanged, session: Session) -> RenderedEvent:
    data: event_types.SessionInboxDeliveryChangedData = {"inboxID": event.prompt_id, "delivery": event.delivery}
    return RenderedEvent("session.inbox.delivery.changed", data)


# --- turns -------------------------------------------------------------------------------------------------------


def _began(event: TurnBegan, session: Session) -> RenderedEvent:
    return RenderedEvent("session.execution.started", {})


def _over(event: TurnOver, session: Session) -> RenderedEvent:
    if event.entry.outcome == "interrupted":
        interrupted: event_types.SessionExecutionInterruptedData = {"reason": "user"}
        return RenderedEvent("session.execution.interrupted", interrupted)
    if event.entry.outcome == "failed":
        failed: event_types.SessionExecutionFailedData = {"error": read.end_error(event.entry)}
        return RenderedEvent("session.execution.failed", failed)
    return RenderedEvent("session.execution.succeeded", {})


def _status(event: StatusEmitted, session: Session) -> RenderedEvent:
    return RenderedEvent("session.status", {"status": session_info.status(event.status)})


def _idle(event: WentIdle, session: Session) -> RenderedEvent:
    return RenderedEvent("session.idle", {})


# --- steps -------------------------------------------------------------------------------------------------------


def _step_began(event: StepBegan, session: Session) -> RenderedEvent:
    entry = event.entry
    data: event_types.SessionStepStartedData = {
        "assistantMessageID": entry.id,
        "agent": entry.mode,
        "model": names.model_ref(entry.model),
        "started": event.started_ms,
    }
    if entry.snapshot:
        data["snapshot"] = entry.snapshot
    return RenderedEvent("session.step.started", data)


def _step_streamed(event: StepStreamed, session: Session) -> RenderedEvent:
    data: event_types.SessionStepStreamedData = {"assistantMessageID": event.step_id}
    return RenderedEvent("session.step.streamed", data)


def _step_ended(event: StepEnded, session: Session) -> RenderedEvent:
    entry = event.entry
    data: event_types.SessionStepEndedData = {
        "assistantMessageID": entry.id,
        **names.finish(entry.finish or "stop"),
        **read.step_cost(entry),
    }
    if entry.end_snapshot is not None:
        data["snapshot"] = entry.end_snapshot
        data["files"] = read.files(entry)
    return RenderedEvent("session.step.ended", data)


def _step_failed(event: StepFailed, session: Session) -> RenderedEvent:
    entry = event.entry
    error = read.LOST if entry.failure is None else names.error(entry.failure)
    data: event_types.SessionStepFailedData = {"assistantMessageID": entry.id, "error": error}
    if event.is_paid:
        data = {**data, **read.step_cost(entry)}
    return RenderedEvent("session.step.failed", data)


def _retry(event: RetryScheduled, session: Session) -> RenderedEvent:
    data: event_types.SessionRetryScheduledData = {"assistantMessageID": event.entry.id}
    if event.entry.retry is not None:
        data = {**data, **read.retry(event.entry.retry)}
    return RenderedEvent("session.retry.scheduled", data)


def _text_began(event: TextBegan, session: Session) -> RenderedEvent:
    data: event_types.SessionTextStartedData = {"assistantMessageID": event.step_id, "ordinal": event.piece.ordinal}
    return RenderedEvent(f"session.{_kind(event.piece.is_thought)}.started", data)


def _text_ended(event: TextEnded, session: Session) -> RenderedEvent:
    data: event_types.SessionTextEndedData = {
        "assistantMessageID": event.step_id,
        "ordinal": event.piece.ordinal,
        "text": event.text,
    }
    return RenderedEvent(f"session.{_kind(event.piece.is_thought)}.ended", data)


def _kind(is_thought: bool) -> str:
    return "reasoning" if is_thought else "text"


def _call_began(event: CallBegan, session: Session) -> RenderedEvent:
    data: event_types.SessionToolInputStartedData = {
        "assistantMessageID": event.step_id,
        "id": event.piece.call_id,
        "name": names.tool_name(event.piece.tool),
    }
    return RenderedEvent("session.tool.input.started", data)


def _call_input_grew(event: CallInputGrew, session: Session) -> RenderedEvent:
    data: event_types.SessionToolInputDeltaData = {
        "assistantMessageID": event.step_id,
        "id": event.call_id,
        "delta": event.delta,
    }
    return RenderedEvent("session.tool.input.delta", data)


def _call_input_ended(event: CallInputEnded, session: Session) -> RenderedEvent:
    words = json.dumps(read.call_input(event.piece, event.call), ensure_ascii=False)
    data: event_types.SessionToolInputEndedData = {
        "assistantMessageID": event.step_id,
        "id": event.piece.call_id,
        "text": words,
    }
    return RenderedEvent("session.tool.input.ended", data)


def _call_ran(event: CallRan, session: Session) -> RenderedEvent:
    data: event_types.SessionToolCalledData = {
        "assistantMessageID": event.step_id,
        "id": event.piece.call_id,
        "input": read.call_input(event.piece, event.call),
        "executed": False,
    }
    return RenderedEvent("session.tool.called", data, beside={"tool": names.tool_name(event.piece.tool)})


def _call_progressed(event: CallProgressed, session: Session) -> RenderedEvent:
    metadata = results.progress(names.tool_name(event.piece.tool), obj(event.call.metadata))
    data: event_types.SessionToolProgressData = {
        "assistantMessageID": event.step_id,
        "id": event.piece.call_id,
        "metadata": metadata,
    }
    return RenderedEvent("session.tool.progress", data)


def _call_succeeded(event: CallSucceeded, session: Session) -> RenderedEvent:
    result = read.call_result(event.piece, event.call, event.entry.directory)
    data: event_types.SessionToolSuccessData = {
        "assistantMessageID": event.entry.id,
        "id": event.piece.call_id,
        **result,
        "executed": False,
    }
    return RenderedEvent("session.tool.success", data)


def _call_failed(event: CallFailed, session: Session) -> RenderedEvent:
    data: event_types.SessionToolFailedData = {
        "assistantMessageID": event.step_id,
        "id": event.piece.call_id,
        **read.call_failure(event.piece, event.call),
        "executed": False,
    }
    return RenderedEvent("session.tool.failed", data)


# --- compactions, commands, undo ---------------------------------------------------------------------------------


def _compaction_began(event: CompactionBegan, session: Session) -> RenderedEvent:
    entry = event.entry
    data: event_types.SessionCompactionStartedData = {"reason": read.compaction_reason(entry), "recent": ""}
    if entry.prompt_id is not None:
        data["inputID"] = entry.prompt_id
    return RenderedEvent("session.compaction.started", data)


def _compaction_ended(event: CompactionEnded, session: Session) -> RenderedEvent:
    data: event_types.SessionCompactionEndedData = {
        "reason": read.compaction_reason(event.entry),
        "text": event.summary,
        "recent": "",
    }
    return RenderedEvent("session.compaction.ended", data, beside={"messageID": event.entry.id})


def _compaction_failed(event: CompactionFailed, session: Session) -> RenderedEvent:
    entry = event.entry
    error = read.LOST if entry.failure is None else names.error(entry.failure)
    data: event_types.SessionCompactionFailedData = {"reason": read.compaction_reason(entry), "error": error}
    if entry.prompt_id is not None:
        data["inputID"] = entry.prompt_id
    return RenderedEvent("session.compaction.failed", data)


def _shell_began(event: ShellBegan, session: Session) -> RenderedEvent:
    data: event_types.SessionShellStartedData = {"shell": read.shell(event.entry)}
    return RenderedEvent("session.shell.started", data)


def _shell_ended(event: ShellEnded, session: Session) -> RenderedEvent:
    output = read.shell_output(event.call)
    data: event_types.SessionShellEndedData = {"shell": read.shell(event.entry), "output": {**output}}
    return RenderedEvent("session.shell.ended", data)


def _undo_staged(event: UndoStaged, session: Session) -> RenderedEvent:
    undo = event.undo
    staged = session_info.revert_of(undo.revert, read.message_id(session, undo.revert.message_id), undo.diffs)
    return RenderedEvent("session.revert.staged", {"revert": staged})


def _undo_cleared(event: UndoCleared, session: Session) -> RenderedEvent:
    return RenderedEvent("session.revert.cleared", {})


def _undo_committed(event: UndoCommitted, session: Session) -> RenderedEvent:
    return RenderedEvent("session.revert.committed", {"to": event.entry_id})


def _content(event: ContentChanged, session: Session) -> RenderedEvent:
    data: event_types.SessionMessageContentUpdatedData = {
        "messageID": event.entry.id,
        "content": read.content(event.entry, session),
    }
    return RenderedEvent("session.message.content.updated", data)


# --- requests ----------------------------------------------------------------------------------------------------


def _permission_asked(event: PermissionAsked, session: Session) -> RenderedEvent:
    return RenderedEvent("permission.asked", read.permission(event.request, session))


def _permission_answered(event: PermissionAnswered, session: Session) -> RenderedEvent:
    data: event_types.PermissionRepliedData = {"requestID": event.request.id, "reply": REPLIES[event.answer]}
    return RenderedEvent("permission.replied", data)


def _question_asked(event: QuestionAsked, session: Session) -> RenderedEvent:
    return RenderedEvent("form.created", {"form": read.form(event.request, session)}, is_whole=True)


def _question_closed(event: QuestionClosed, session: Session) -> RenderedEvent:
    question = event.question
    id_ = asks.form_id(question.request.id)
    if question.answers is None:
        cancelled: event_types.FormCancelledData = {"id": id_}
        return RenderedEvent("form.cancelled", cancelled)
    answer = asks.answer(read.form(question.request, session), question.answers)
    replied: event_types.FormRepliedData = {"id": id_, "answer": answer}
    return RenderedEvent("form.replied", replied)


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
