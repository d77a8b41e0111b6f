"""Renders a session's changes as events of OpenCode 2, in the form of `v2_0`. Pure; keeps nothing.

`RENDER` maps a kind of event in the session's log to the function that makes type and data. Ids and numbers are those of the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shim.faces.opencode2 import asks, host, names, read, results, session_info
from shim.faces.opencode2._generated.operations import VERSIONS
from shim.faces.opencode2.wire_event import Event, ReadOnlyWire
from universal.lib.jsonvalue import obj
from universal.permissions import REPLIES
from universal.session import entries, log
from universal.session.changes import Change, Notice, SessionDeleted, TextGrew
from universal.session.model import Session
from universal.session.timeline.log_writer import LogWriter
from universal.session.values import Part, Text

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import event_types
    from shim.faces.opencode2._generated.event_types import SessionEvent


WITHOUT_SESSION = frozenset({"form.created"})
"""Types whose data has no `sessionID` beside that of its form."""


class HintedEvent(NamedTuple):
    """Type and data of an event, with hints for dialects: `note` and `beside` of `Event`."""

    event: SessionEvent
    note: str = ""
    beside: ReadOnlyWire | None = None


def render(changes: Sequence[Change], session: Session, at_ms: int, new_id: Callable[[], str]) -> list[Event]:
    """The events of the changes that a session has just made. `new_id` makes ids of events that are in no log."""
    events: list[Event] = []
    pieces: list[Event] = []
    for change in changes:
        if isinstance(change, log.LogAppended):
            events.append(log_event(change, session))
        elif isinstance(change, TextGrew):
            pieces += _piece(change, session, at_ms)
        elif isinstance(change, SessionDeleted):
            events.append(session_deleted(session, at_ms))
        elif isinstance(change, Notice):
            events.append(Event(new_id(), at_ms, "tui.toast.show", host.notice(change), directory=session.record.directory))
    return [*events, *pieces]  # the start of a part comes before its first piece


def _piece(change: TextGrew, session: Session, at_ms: int) -> tuple[Event, ...]:
    """The event of a piece of text, reasoning or a summary; none if the part has ended, or is not shown."""
    entry = session.timeline.entry_of(change.message_id)
    event: SessionEvent | None = None
    beside: ReadOnlyWire | None = None
    if isinstance(entry, entries.StepEntry):
        pieces = (one for one in reversed(entry.content) if isinstance(one, entries.TextPiece) and one.part_id == change.part_id)
        found = next(pieces, None)
        if found is not None and not found.is_ended:
            data: event_types.SessionTextDeltaData = {
                "assistantMessageID": entry.id,
                "ordinal": found.ordinal,
                "delta": change.delta,
            }
            event = ("session.reasoning.delta", data) if found.is_thought else ("session.text.delta", data)
    elif isinstance(entry, entries.CompactionEntry) and isinstance(_part_of(change, session), Text):
        event, beside = ("session.compaction.delta", {"text": change.delta}), {"messageID": entry.id}
    if event is None:
        return ()
    type_, fields = event
    id_ = f"evt_{LogWriter(session.id, session.timeline).id_at(change.place)}"
    whole = {"sessionID": session.id, **fields}
    return (Event(id_, at_ms, type_, whole, session.id, directory=session.record.directory, beside=beside),)


def _part_of(change: TextGrew, session: Session) -> Part | None:
    message = session.messages.peek(change.message_id)
    return None if message is None else message.parts.get(change.part_id)


def log_event(logged: log.LogAppended, session: Session) -> Event:
    """The event of a log entry."""
    rendered = RENDER[type(logged.event)](logged.event, session)
    pair, note, beside = rendered if isinstance(rendered, HintedEvent) else (rendered, "", None)
    type_, data = pair
    return Event(
        f"evt_{logged.id}",
        logged.created_ms,
        type_,
        data if type_ in WITHOUT_SESSION else {"sessionID": session.id, **data},
        session.id,
        logged.number,
        None if logged.number is None else VERSIONS[type_],
        session.record.directory,
        note,
        beside,
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


def _session_created(event: log.SessionBegan, session: Session) -> SessionEvent:
    if event.fork is not None:
        return "session.forked", {"parentID": event.fork.session_id, "boundary": session_info.boundary(event.fork)}
    return "session.created", session_info.created_data(session_info.info_of(event.record), event.record.slug)


def _entry_added(event: log.EntryAdded, session: Session) -> SessionEvent:
    match event.entry:
        case entries.ModeEntry() as entry:
            return "session.agent.selected", read.chosen_mode(entry)
        case entries.ModelEntry() as entry:
            return "session.model.selected", read.chosen_model(entry)
        case entries.MovedEntry() as entry:
            return "session.moved", read.place(entry.place)
        case entries.SkillEntry() as entry:
            return "session.skill.activated", {"id": entry.skill_id, "name": entry.name, "text": entry.text}
        case entries.NoteEntry() as entry:
            return "session.synthetic", read.note(entry)


def _instructions(event: log.InstructionsChanged, session: Session) -> SessionEvent:
    data: event_types.SessionInstructionsUpdatedData = {}
    if event.delta is not None:
        data["delta"] = dict(event.delta)
    if event.entry is not None:
        data["text"] = event.entry.text
    return "session.instructions.updated", data


# --- prompts -----------------------------------------------------------------------------------------------------


def _prompt_accepted(event: log.PromptAccepted, session: Session) -> SessionEvent:
    item = read.inbox_item(event.prompt, session)
    return "session.inbox.enqueued", {"inboxID": event.prompt.id, "item": item}


def _prompt_delivered(event: log.PromptDelivered, session: Session) -> HintedEvent:
    prompt = event.prompt
    if event.is_again:
        return HintedEvent(("session.inbox.delivered", {"inboxID": prompt.id}))
    return HintedEvent(
        ("session.inbox.delivered", {"inboxID": prompt.id}), prompt.kind, {"item": read.inbox_entry(prompt, session)}
    )


def _delivery(event: log.DeliveryChanged, session: Session) -> SessionEvent:
    return "session.inbox.delivery.changed", {"inboxID": event.prompt_id, "delivery": event.delivery}


# --- turns -------------------------------------------------------------------------------------------------------


def _over(event: log.TurnOver, session: Session) -> SessionEvent:
    if event.entry.outcome == "interrupted":
        return "session.execution.interrupted", {"reason": "user"}
    if event.entry.outcome == "failed":
        return "session.execution.failed", {"error": read.end_error(event.entry)}
    return "session.execution.succeeded", {}


# --- steps -------------------------------------------------------------------------------------------------------


def _step_began(event: log.StepBegan, session: Session) -> SessionEvent:
    entry = event.entry
    data: event_types.SessionStepStartedData = {
        "assistantMessageID": entry.id,
        "agent": entry.mode,
        "model": names.model_ref(entry.model),
        "started": event.started_ms,
    }
    if entry.snapshot:
        data["snapshot"] = entry.snapshot
    return "session.step.started", data


def _step_ended(event: log.StepEnded, session: Session) -> SessionEvent:
    entry = event.entry
    data: event_types.SessionStepEndedData = {
        "assistantMessageID": entry.id,
        **names.finish(entry.finish or "stop"),
        **read.step_cost(entry),
    }
    if entry.end_snapshot is not None:
        data["snapshot"] = entry.end_snapshot
        data["files"] = read.files(entry)
    return "session.step.ended", data


def _step_failed(event: log.StepFailed, session: Session) -> SessionEvent:
    entry = event.entry
    error = read.NO_REASON if entry.failure is None else names.error(entry.failure)
    data: event_types.SessionStepFailedData = {"assistantMessageID": entry.id, "error": error}
    if event.is_paid:
        data = {**data, **read.step_cost(entry)}
    return "session.step.failed", data


def _retry(event: log.RetryScheduled, session: Session) -> SessionEvent:
    data: event_types.SessionRetryScheduledData = {"assistantMessageID": event.entry.id}
    if event.entry.retry is not None:
        data = {**data, **read.retry(event.entry.retry)}
    return "session.retry.scheduled", data


def _text_began(event: log.TextBegan, session: Session) -> SessionEvent:
    step_id, ordinal = event.step_id, event.piece.ordinal
    if event.piece.is_thought:
        return "session.reasoning.started", {"assistantMessageID": step_id, "ordinal": ordinal}
    return "session.text.started", {"assistantMessageID": step_id, "ordinal": ordinal}


def _text_ended(event: log.TextEnded, session: Session) -> SessionEvent:
    step_id, ordinal = event.step_id, event.piece.ordinal
    if event.piece.is_thought:
        return "session.reasoning.ended", {"assistantMessageID": step_id, "ordinal": ordinal, "text": event.text}
    return "session.text.ended", {"assistantMessageID": step_id, "ordinal": ordinal, "text": event.text}


def _call_began(event: log.CallBegan, session: Session) -> SessionEvent:
    return "session.tool.input.started", {
        "assistantMessageID": event.step_id,
        "id": event.piece.call_id,
        "name": names.tool_name(event.piece.tool),
    }


def _call_input_grew(event: log.CallInputGrew, session: Session) -> SessionEvent:
    return "session.tool.input.delta", {
        "assistantMessageID": event.step_id,
        "id": event.call_id,
        "delta": event.delta,
    }


def _call_input_ended(event: log.CallInputEnded, session: Session) -> SessionEvent:
    words = json.dumps(read.call_input(event.piece, event.call), ensure_ascii=False)
    return "session.tool.input.ended", {
        "assistantMessageID": event.step_id,
        "id": event.piece.call_id,
        "text": words,
    }


def _call_ran(event: log.CallRan, session: Session) -> HintedEvent:
    data: event_types.SessionToolCalledData = {
        "assistantMessageID": event.step_id,
        "id": event.piece.call_id,
        "input": read.call_input(event.piece, event.call),
        "executed": False,
    }
    return HintedEvent(("session.tool.called", data), beside={"tool": names.tool_name(event.piece.tool)})


def _call_progressed(event: log.CallProgressed, session: Session) -> SessionEvent:
    metadata = results.progress(names.tool_name(event.piece.tool), obj(event.call.metadata))
    return "session.tool.progress", {
        "assistantMessageID": event.step_id,
        "id": event.piece.call_id,
        "metadata": metadata,
    }


def _call_succeeded(event: log.CallSucceeded, session: Session) -> SessionEvent:
    result = read.call_result(event.piece, event.call, event.entry.directory)
    return "session.tool.success", {
        "assistantMessageID": event.entry.id,
        "id": event.piece.call_id,
        **result,
        "executed": False,
    }


def _call_failed(event: log.CallFailed, session: Session) -> SessionEvent:
    return "session.tool.failed", {
        "assistantMessageID": event.step_id,
        "id": event.piece.call_id,
        **read.call_failure(event.piece, event.call),
        "executed": False,
    }


# --- compactions, commands, undo ---------------------------------------------------------------------------------


def _compaction_began(event: log.CompactionBegan, session: Session) -> SessionEvent:
    entry = event.entry
    data: event_types.SessionCompactionStartedData = {"reason": read.compaction_reason(entry), "recent": ""}
    if entry.prompt_id is not None:
        data["inputID"] = entry.prompt_id
    return "session.compaction.started", data


def _compaction_ended(event: log.CompactionEnded, session: Session) -> HintedEvent:
    data: event_types.SessionCompactionEndedData = {
        "reason": read.compaction_reason(event.entry),
        "text": event.summary,
        "recent": "",
    }
    return HintedEvent(("session.compaction.ended", data), beside={"messageID": event.entry.id})


def _compaction_failed(event: log.CompactionFailed, session: Session) -> SessionEvent:
    entry = event.entry
    error = read.NO_REASON if entry.failure is None else names.error(entry.failure)
    data: event_types.SessionCompactionFailedData = {"reason": read.compaction_reason(entry), "error": error}
    if entry.prompt_id is not None:
        data["inputID"] = entry.prompt_id
    return "session.compaction.failed", data


def _shell_ended(event: log.ShellEnded, session: Session) -> SessionEvent:
    output = read.shell_output(event.call)
    return "session.shell.ended", {"shell": read.shell(event.entry), "output": {**output}}


def _undo_staged(event: log.UndoStaged, session: Session) -> SessionEvent:
    undo = event.undo
    staged = session_info.revert_of(undo.revert, read.message_id(session, undo.revert.message_id), undo.diffs)
    return "session.revert.staged", {"revert": staged}


def _content(event: log.ContentChanged, session: Session) -> SessionEvent:
    return "session.message.content.updated", {
        "messageID": event.entry.id,
        "content": read.content(event.entry, session),
    }


# --- requests ----------------------------------------------------------------------------------------------------


def _permission_answered(event: log.PermissionAnswered, session: Session) -> SessionEvent:
    return "permission.replied", {"requestID": event.request.id, "reply": REPLIES[event.answer]}


def _question_closed(event: log.QuestionClosed, session: Session) -> SessionEvent:
    question = event.question
    id_ = asks.form_id(question.request.id)
    if question.answers is None:
        return "form.cancelled", {"id": id_}
    answer = asks.answer(read.form(question.request, session), question.answers)
    return "form.replied", {"id": id_, "answer": answer}


RENDER: Mapping[type[Any], Callable[[Any, Session], SessionEvent | HintedEvent]] = {
    log.SessionBegan: _session_created,
    log.TitleChanged: lambda event, _: ("session.renamed", {"title": session_info.info_of(event.record).get("title", "")}),
    log.MetadataChanged: lambda event, _: ("session.metadata.updated", {"metadata": dict(event.record.shown_metadata or {})}),
    log.RulesChanged: lambda event, _: ("session.permissions", {"permissions": names.rules(list(event.record.permission or ()))}),
    log.SessionArchived: lambda event, _: ("session.archived", {}),
    log.SessionUnarchived: lambda event, _: ("session.unarchived", {}),
    log.SessionViewed: lambda event, _: ("session.viewed", {"idle": event.idle_ms}),
    log.EntryAdded: _entry_added,
    log.InstructionsChanged: _instructions,
    log.UsageChanged: lambda event, _: (
        "session.usage.updated",
        {"cost": event.cost, "tokens": session_info.counts(event.usage)},
    ),
    log.PromptAccepted: _prompt_accepted,
    log.PromptDelivered: _prompt_delivered,
    log.PromptWithdrawn: lambda event, _: ("session.inbox.cancelled", {"inboxID": event.prompt_id}),
    log.DeliveryChanged: _delivery,
    log.TurnBegan: lambda event, _: ("session.execution.started", {}),
    log.TurnOver: _over,
    log.StatusEmitted: lambda event, _: ("session.status", {"status": session_info.status(event.status)}),
    log.WentIdle: lambda event, _: ("session.idle", {}),
    log.StepBegan: _step_began,
    log.StepStreamed: lambda event, _: ("session.step.streamed", {"assistantMessageID": event.step_id}),
    log.StepEnded: _step_ended,
    log.StepFailed: _step_failed,
    log.RetryScheduled: _retry,
    log.TextBegan: _text_began,
    log.TextEnded: _text_ended,
    log.CallBegan: _call_began,
    log.CallInputGrew: _call_input_grew,
    log.CallInputEnded: _call_input_ended,
    log.CallRan: _call_ran,
    log.CallProgressed: _call_progressed,
    log.CallSucceeded: _call_succeeded,
    log.CallFailed: _call_failed,
    log.CompactionBegan: _compaction_began,
    log.CompactionEnded: _compaction_ended,
    log.CompactionFailed: _compaction_failed,
    log.ShellBegan: lambda event, _: ("session.shell.started", {"shell": read.shell(event.entry)}),
    log.ShellEnded: _shell_ended,
    log.UndoStaged: _undo_staged,
    log.UndoCleared: lambda event, _: ("session.revert.cleared", {}),
    log.UndoCommitted: lambda event, _: ("session.revert.committed", {"to": event.entry_id}),
    log.ContentChanged: _content,
    log.PermissionAsked: lambda event, session: ("permission.asked", read.permission(event.request, session)),
    log.PermissionAnswered: _permission_answered,
    log.QuestionAsked: lambda event, session: ("form.created", {"form": read.form(event.request, session)}),
    log.QuestionClosed: _question_closed,
}
