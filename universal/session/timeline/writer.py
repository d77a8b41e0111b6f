"""A session's timeline and log, from universal events and what the reducer made of them. Pure: the same journal, the same result.

Part order, step boundaries, endings and ids of messages are the reducer's. The writer holds these rules:

- A turn has one beginning and one end, and nothing of the turn comes after its end. Each end is an entry.
- A prompt is in the inbox until an agent gets it, and an entry from then on.
- A prompt that an abort has cancelled stays in the inbox. It is delivered with the next one, which tells the agent of it.
- A prompt whose agent or model does not exist, or does not start, is an entry before its turn fails: a person sees what failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import islice
from typing import Any, ClassVar

from universal.events import ErrorData, EventType, ItemData, ItemDeltaData, SessionStartedData, UniversalEvent
from universal.items import Item, ItemKind, ItemRole
from universal.lib.jsonvalue import arr, obj, text, whole
from universal.session import entries, importer, log, values
from universal.session.changes import (
    Change,
    MessageChanged,
    PartChanged,
    RequestClosed,
    RequestOpened,
    SessionChanged,
    StatusChanged,
    TextGrew,
    TurnEnded,
)
from universal.session.model import Session
from universal.session.record_json import fork_of
from universal.session.timeline.asides import AsidesWriter
from universal.session.timeline.log_writer import LogWriter
from universal.session.timeline.steps import StepsWriter
from universal.session.transcript import Transcript
from universal.session.user_prompt import NO_DETAILS, PromptDetails, SkillText, prompt_of
from universal.session.values import BUSY, IDLE

# --- status items -----------------------------------------------------------------------------------------------

Metadata = Mapping[str, Any]


def plain(model: values.ModelRef | None) -> values.ModelRef | None:
    """The model, with None for the name of its default variant."""
    return replace(model, variant=None) if model is not None and model.variant in ("", "default") else model


@dataclass(eq=False)
class StatusesWriter:
    """Writes what the status items of one session change in its timeline."""

    _session: Session
    _log: LogWriter
    _steps: StepsWriter
    _transcript: Transcript
    _: KW_ONLY
    deliver: Callable[[list[str]], None]

    def __post_init__(self) -> None:
        self._timeline = self._session.timeline

    # --- the session's properties --------------------------------------------------------------------------

    def record_changed(self, new: values.SessionRecord, *, choices: frozenset[str]) -> None:
        """Write what has changed in the record. `choices`: which of agent and model somebody selected.

        A session that has neither gets those of its first step; those of a later prompt are written if they differ.
        """
        timeline = self._timeline
        old = timeline.record or new
        timeline.record = replace(new, directory=old.directory, project_id=old.project_id, path=old.path)
        if (new.archived_ms is None) != (old.archived_ms is None):
            self._log.write(log.SessionUnarchived() if new.archived_ms is None else log.SessionArchived())
        if new.title != old.title:
            self._log.write(log.TitleChanged(new))
        if (new.metadata or {}) != (old.metadata or {}):
            self._log.write(log.MetadataChanged(new))
        if (new.permission or ()) != (old.permission or ()):
            self._log.write(log.RulesChanged(new))
        mode, model = timeline.mode, timeline.model
        if new.mode and new.mode != mode and (mode is not None or "agent" in choices):
            timeline.mode = new.mode
            self._add(entries.ModeEntry(self._log.next_message_id(), self._log.at, new.mode, mode))
        new_model = plain(new.model)
        if new_model is not None and new_model != plain(model) and (model is not None or "model" in choices):
            timeline.model = new_model
            self._add(entries.ModelEntry(self._log.next_message_id(), self._log.at, new_model, model))

    def _add(
        self, entry: entries.ModeEntry | entries.ModelEntry | entries.MovedEntry | entries.SkillEntry | entries.NoteEntry
    ) -> None:
        self._log.write(log.EntryAdded(entry))
        self._timeline.entries[entry.id] = entry

    def mark_viewed(self, meta: Metadata) -> None:
        """Note that a person has seen the end of a turn."""
        self._timeline.viewed_ms = whole(meta.get("idle"))
        self._log.write(log.SessionViewed(self._timeline.viewed_ms))

    # --- prompts -------------------------------------------------------------------------------------------

    def prompt(self, meta: Metadata) -> None:
        """Deliver, withdraw or cancel a prompt, or change its delivery, as its status says."""
        inbox, state = self._timeline.inbox, meta.get("state")
        id_ = self._transcript.prompt_of_item.get(text(meta.get("item_id")), "")
        waiting = inbox.get(id_)
        if state == "handed":
            if instructions := meta.get("instructions"):
                self._instructions_changed(obj(instructions))
            carried = set(map(text, arr(meta.get("carried")))) - {id_}
            self.deliver([*filter(carried.__contains__, inbox), id_])
        elif waiting is None:
            return
        elif state == "own":
            self.deliver([id_])
        elif state == "withdrawn" or (state == "cancelled" and waiting.kind == "compaction"):
            self.withdraw(id_)
        elif state == "cancelled":
            self._timeline.cancelled = id_
        elif state == "delivery":
            delivery = "queue" if meta.get("delivery") == "queue" else "steer"
            inbox[id_] = replace(waiting, delivery=delivery)
            self._log.write(log.DeliveryChanged(id_, delivery))

    def take_cancelled(self) -> list[str]:
        """Take the last cancelled prompt, which belongs to the error that follows it in the journal."""
        cancelled, self._timeline.cancelled = self._timeline.cancelled, ""
        return [cancelled] if cancelled else []

    def _instructions_changed(self, meta: Metadata) -> None:
        """Write the changed instructions that go along with a prompt. The session's first ones are no message."""
        if not meta:
            return
        entry = None
        if "text" in meta:
            entry = entries.InstructionsEntry(self._log.next_message_id(), self._log.at, text(meta["text"]))
        self._log.write(log.InstructionsChanged(obj(meta["delta"]) if "delta" in meta else None, entry))
        if entry is not None:
            self._timeline.entries[entry.id] = entry

    def withdraw(self, id_: str) -> None:
        """Remove a waiting prompt, which will never be delivered."""
        if self._timeline.inbox.pop(id_, None) is not None:
            self._log.write(log.PromptWithdrawn(id_))

    # --- what is put in, taken out, rewritten --------------------------------------------------------------

    def move(self, meta: Metadata) -> None:
        """Add the entry of a move to another directory."""
        record, old = self._session.record, self._timeline.record or self._session.record
        self._timeline.record = record
        place = entries.Place(text(meta.get("directory")), text(meta.get("project_id")), text(meta.get("path")) or None)
        previous = entries.Place(old.directory, old.project_id, old.path or None)
        self._add(entries.MovedEntry(self._log.next_message_id(), self._log.at, place, previous))

    def skill(self, meta: Metadata) -> None:
        """Add a skill that was put into the conversation."""
        self.add_skill(SkillText(text(meta.get("id")), text(meta.get("name")), text(meta.get("text"))))

    def add_skill(self, skill: SkillText) -> str:
        """Add the entry of a skill that was put into the conversation. Returns the entry's id."""
        id_ = self._log.next_message_id()
        self._add(entries.SkillEntry(id_, self._log.at, skill.id, skill.name, skill.text))
        return id_

    def note(self, meta: Metadata) -> None:
        """Add a text that was put into the conversation."""
        id_, description = self._log.next_message_id(), text(meta.get("description")) or None
        self._add(entries.NoteEntry(id_, self._log.at, text(meta.get("text")), description, obj(meta.get("metadata")) or None))

    def revert(self, meta: Metadata) -> None:
        """Stage an undo, take it back or make it final."""
        timeline, new = self._timeline, importer.revert(meta.get("revert"))
        if new is not None:
            timeline.staged = entries.StagedUndo(new, importer.diffs(meta.get("diffs")))
            self._log.write(log.UndoStaged(timeline.staged))
            return
        staged, timeline.staged = timeline.staged, None
        for message_id in {text(message_id): None for message_id, _ in map(arr, arr(meta.get("parts")))}:
            self._rewrite(message_id)
        removed = [self._entry_id(text(message_id)) for message_id in arr(meta.get("messages"))]
        for id_ in removed:
            self.withdraw(id_)
        first = timeline.entries.first_of(removed)
        if first is not None:
            self._cut(first)
        elif staged is not None:
            self._log.write(log.UndoCleared())

    def _entry_id(self, message_id: str) -> str:
        return self._timeline.ids.get(message_id, message_id)

    def _cut(self, first: str) -> None:
        """Remove the entries from this one on. A prompt among them whose message remains is delivered again."""
        timeline, messages = self._timeline, self._session.messages
        cut = [timeline.entries.pop(id_) for id_ in list(timeline.entries.ids_since(first))]
        self._log.write(log.UndoCommitted(first))
        for entry in cut:
            if isinstance(entry, entries.PromptEntry) and entry.id in messages:
                prompt = replace(entry.prompt, delivery="steer", number=timeline.number)
                self._log.write(log.PromptAccepted(prompt))
                self._log.write(log.PromptDelivered(prompt, is_again=True))
                timeline.entries[entry.id] = entries.PromptEntry(entry.id, self._log.at, prompt)
            elif isinstance(entry, entries.StepEntry) and entry.message_id in messages:
                timeline.hidden.add(entry.message_id)

    def message_removed(self, meta: Metadata) -> None:
        """Remove a message's entry for a client. The log can remove only the last ones, and empties other steps."""
        timeline, id_ = self._timeline, self._entry_id(text(meta.get("message_id")))
        self.withdraw(id_)
        entry = timeline.entries.get(id_)
        if entry is None:
            return
        if all(isinstance(later, entries.EndEntry) for later in islice(timeline.entries.since(id_), 1, None)):
            self._cut(id_)
            if timeline.staged is not None:  # a commit ends what is staged, but this was none
                self._log.write(log.UndoStaged(timeline.staged))
            return
        if isinstance(entry, entries.StepEntry):
            self._log.write(log.ContentChanged(replace(entry, content=())))
        del timeline.entries[id_]

    def retract(self, meta: Metadata) -> None:
        """Remove the answers that the agent has taken back."""
        for item_id in map(text, arr(meta.get("item_ids"))):
            self.message_removed({"message_id": self._transcript.message_of_item.get(item_id, "")})

    def part_changed(self, meta: Metadata) -> None:
        """Rewrite a step after a client changed or removed a part. For prompts there is no such event."""
        self._rewrite(text(meta.get("message_id")) or text(obj(meta.get("part")).get("messageID")))

    def _rewrite(self, message_id: str) -> None:
        message = self._session.messages.get(message_id)
        if message is not None:
            self._steps.rewrite(message_id, message)


STATUSES: dict[str, Callable[[StatusesWriter, Metadata], object]] = {
    "prompt": StatusesWriter.prompt,
    "viewed": StatusesWriter.mark_viewed,
    "moved": StatusesWriter.move,
    "skill": StatusesWriter.skill,
    "synthetic": StatusesWriter.note,
    "revert": StatusesWriter.revert,
    "message.removed": StatusesWriter.message_removed,
    "retracted": StatusesWriter.retract,
    "part.removed": StatusesWriter.part_changed,
    "part.updated": StatusesWriter.part_changed,
}
"""Other labels change no timeline, or do it by the reducer's changes (retry ...)."""


# --- timeline and log -------------------------------------------------------------------------------------------

OUTCOMES: Mapping[str, entries.Outcome] = {"completed": "succeeded", "aborted": "interrupted"}
"""Reason of a turn's end -> outcome; all others failed."""
CARRIERS = frozenset({EventType.ERROR, EventType.TURN_ENDED})
"""Events for which the reducer makes a message that only carries an error."""
SHELL_ORIGIN = "shell"
"""`metadata.origin` of items that are a person's command."""


class TimelineWriter:
    """Writes one session's timeline."""

    def __init__(self, session: Session, transcript: Transcript) -> None:
        self._session = session
        self._timeline = session.timeline
        self._transcript = transcript
        self._log = LogWriter(session.id, session.timeline)
        self.pass_over = self._log.pass_over
        """For a universal event of which a piece of text is all that the reducer has made."""
        self._steps = StepsWriter(session, self._log)
        self._asides = AsidesWriter(session, self._log)
        self._statuses = StatusesWriter(
            session,
            self._log,
            self._steps,
            transcript,
            deliver=self._deliver,
        )
        self._event: UniversalEvent | None = None
        self._label = ""

    def write(
        self, event: UniversalEvent, changes: Sequence[Change], at_ms: int, *, is_live: bool = True
    ) -> list[log.LogAppended]:
        """Write one universal event, made at `at_ms`, with the reducer's changes. Returns the log's events, in order.

        `is_live`: whether somebody may be told of them. Of a journal that is loaded no events are made.
        """
        self._log.begin(event.sequence, at_ms, is_live=is_live)
        self._event, self._label = event, _label(event) if event.type is EventType.ITEM_COMPLETED else ""
        if self._label == "imported":
            self._import_message(changes)
            changes = ()
        elif isinstance(event.data, ErrorData) and event.data.code in values.START_ERRORS:
            self._deliver(self._statuses.take_cancelled())
        for change in changes:
            handler = self._CHANGES.get(type(change))
            if handler is not None:
                handler(self, change)
        after = self._AFTER.get(event.type)
        if after is not None and self._label != "imported":
            after(self, event.data)
        self._event = None  # most sessions are at rest, and need not hold their last event
        appended, self._log.events = self._log.events, []
        return appended

    # --- session -------------------------------------------------------------------------------------------

    def _session_started(self, data: SessionStartedData) -> None:
        """Begin the session. `metadata.fork` says what it was forked from."""
        timeline, record = self._timeline, self._session.record
        if timeline.record is not None or not self._session.is_begun:
            return
        timeline.record, timeline.fork = record, fork_of(obj(data.metadata).get("fork"))
        timeline.mode, timeline.model = record.mode or None, plain(record.model)
        timeline.usage, timeline.cost = values.Usage() + record.usage, record.cost or 0
        self._log.write(log.SessionBegan(record, timeline.fork))

    def _session_changed(self, change: SessionChanged) -> None:
        choices = _selections(self._event, self._label) if self._label in ("session", "mode") else frozenset[str]()
        self._statuses.record_changed(change.record, choices=choices)

    # --- turns ---------------------------------------------------------------------------------------------

    def _status_changed(self, change: StatusChanged) -> None:
        status, timeline = change.status, self._timeline
        if status.type == "idle":
            return  # `TurnEnded` comes next
        if status.type == "retry":
            self._steps.retry(self._transcript.open_id, status, self._current_choice)
        elif timeline.is_running:
            self._steps.again()
        else:
            self._begin_turn()
            return
        self._emit_status(status)

    def _begin_turn(self) -> None:
        timeline = self._timeline
        timeline.is_running = True
        timeline.idle_ms = timeline.outcome = timeline.failure = None
        timeline.asked_ms = self._log.at
        self._log.write(log.TurnBegan())
        self._emit_status(BUSY)
        if self._session.record.parent_id:  # a subagent's prompts are given to it by its agent
            self._deliver(list(timeline.inbox))

    def _emit_status(self, status: values.Status) -> None:
        """Write the status if it differs from the last one written."""
        if status != self._timeline.status:
            self._timeline.status = status
            self._log.accompany(log.StatusEmitted(status))

    def _current_choice(self) -> tuple[str, values.ModelRef | None]:
        """The mode and model of the prompt that is being answered."""
        session = self._session
        prompt = session.messages.peek(self._transcript.parent_id or session.last_user() or "")
        if prompt is not None:
            return prompt.info.mode, prompt.info.model
        return session.record.mode or "build", session.record.model

    def _turn_ended(self, change: TurnEnded) -> None:
        timeline, record = self._timeline, self._session.record
        if not timeline.is_running:
            return
        outcome: entries.Outcome = OUTCOMES.get(change.reason, "failed")
        self._steps.release()
        self._steps.give_up(is_interrupted=outcome == "interrupted")
        usage, cost = values.Usage() + record.usage, record.cost
        if (usage, cost) != (timeline.usage, timeline.cost):
            self._steps.total(usage, cost)
        failure = timeline.failure if outcome == "failed" else None
        entry = entries.EndEntry(self._log.next_message_id(), self._log.at, outcome, failure)
        self._log.write(log.TurnOver(entry))
        timeline.is_running = False
        timeline.idle_ms, timeline.outcome = self._log.at, entry.outcome
        timeline.entries[entry.id] = entry
        self._emit_status(IDLE)
        self._log.accompany(log.WentIdle())

    def _note_error(self, data: ErrorData) -> None:
        """Note the last error for the end of the turn."""
        if self._timeline.is_running:
            messages = map(self._session.messages.peek, reversed(self._transcript.turn_messages))
            errors = (m.info.error for m in messages if m is not None and isinstance(m.info, values.StepInfo))
            failure = next(filter(None, errors), None) if data.code != values.NOT_BEGUN else None
            self._timeline.failure = failure or values.Failure(data.message)

    # --- messages ------------------------------------------------------------------------------------------

    def _message_changed(self, change: MessageChanged) -> None:
        info = change.info
        self._log.saw(info.id)
        if isinstance(info, values.StepInfo):
            self._step_changed(info)

    def _step_changed(self, info: values.StepInfo) -> None:
        if info.id in self._timeline.hidden:
            return
        if self._steps.entry(info.id) is None and not self._asides.has(info.id):
            self._begin(info)
        if info.completed_ms is None:
            return
        message = self._session.messages.get(info.id)
        if self._steps.entry(info.id) is not None:
            self._steps.finish(info, message)
            self._timeline.asked_ms = self._log.at
        elif self._asides.end_compaction(info, message) and (info.cost or info.usage.input or info.usage.output):
            self._steps.spend(info.usage, info.cost)

    def _begin(self, info: values.StepInfo) -> None:
        data = self._event.data if self._event is not None else None
        item = data.item if isinstance(data, ItemData) else None
        if info.compacts:
            parent = self._session.messages.peek(info.parent_id)
            parts = parent.parts.values() if parent is not None else ()
            is_auto = any(isinstance(part, values.CompactionMark) and part.auto for part in parts)
            self._asides.begin_compaction(info, is_auto=is_auto)
        elif item is not None and obj(item.metadata).get("origin") == SHELL_ORIGIN:
            self._asides.expect_shell(info)
        else:
            snapshots = self._session.snapshots
            is_error = self._event is not None and self._event.type in CARRIERS
            since_ms = self._timeline.asked_ms if is_error else None
            self._steps.begin(info, snapshots.last if snapshots.is_on else None, since_ms=since_ms)

    def _part_changed(self, change: PartChanged) -> None:
        self._log.saw(change.part.id)
        if self._label != "part.updated":
            self._part(change.message_id, change.part)

    def _part(self, message_id: str, part: values.Part) -> None:
        if self._timeline.entry_of(message_id) is None and message_id not in self._timeline.shells:
            return  # such as a prompt's, which is shown when it is delivered
        if self._steps.entry(message_id) is not None:
            self._steps.part(message_id, part)
        elif self._asides.has(message_id):
            info = self._session.messages[message_id].info
            assert isinstance(info, values.StepInfo)
            self._asides.part(info, part)

    def _text_grew(self, change: TextGrew) -> None:
        assert self._event is not None
        self.pass_over((self._event.sequence,), self._log.at)

    def _import_message(self, changes: Sequence[Change]) -> None:
        """Add a complete message that was made elsewhere, as if it came now, at its own time."""
        message = self._session.messages[next(change.info.id for change in changes if isinstance(change, MessageChanged))]
        info = message.info
        self._log.at = info.created_ms
        for id_ in (info.id, *message.parts):
            self._log.saw(id_)
        if isinstance(info, values.UserInfo):
            self._enqueue(info.id, list(message.parts.values()), NO_DETAILS)
            self._deliver([info.id])
            return
        self._begin(info)
        for part in message.parts.values():
            self._part(info.id, part)
        self._step_changed(info if info.completed_ms is not None else replace(info, completed_ms=self._log.at))
        self._steps.release()

    # --- items ---------------------------------------------------------------------------------------------

    def _item_completed(self, data: ItemData) -> None:
        item = data.item
        if item.kind is ItemKind.STATUS:
            handler = STATUSES.get(self._label)
            if handler is not None:
                handler(self._statuses, item.metadata or {})
        elif item.kind is ItemKind.MESSAGE and item.role is ItemRole.USER:
            self._prompt(item)
        else:
            self._timeline.items.pop(item.item_id, None)
            for message_id, _ in self._steps.open_steps():
                message = self._session.messages.get(message_id)
                if message is not None and message.is_said:
                    self._steps.end_stream(message_id)

    def _item_started(self, data: ItemData) -> None:
        """Note the call of an item, for the pieces of its arguments."""
        if data.item.kind is ItemKind.TOOL_CALL:
            self._timeline.items[data.item.item_id] = self._transcript.call_of_item.get(data.item.item_id, "")

    def _item_delta(self, data: ItemDeltaData) -> None:
        if data.part_type == "tool_input" and self._timeline.is_running:
            self._steps.input_delta(self._timeline.items.get(data.item_id, ""), data.delta)

    # --- prompts -------------------------------------------------------------------------------------------

    def _prompt(self, item: Item) -> None:
        id_ = self._transcript.prompt_of_item.get(item.item_id, "")
        message = self._session.messages.get(id_)
        if message is None or (item.metadata or {}).get("origin") == SHELL_ORIGIN:
            return
        details = prompt_of(item).details
        if details.kind == "skill":  # it is written at once, whenever the agent gets it
            self._timeline.ids[id_] = self._statuses.add_skill(details.skill or SkillText("", "", ""))
            return
        self._enqueue(id_, list(message.parts.values()), details)
        if self._session.record.parent_id and self._timeline.is_running:
            self._deliver([id_])  # a subagent's prompts are given to it by its agent

    def _enqueue(self, id_: str, parts: Sequence[values.Part], details: PromptDetails) -> None:
        is_wish = values.CompactionMark in map(type, parts)
        prompt = entries.PendingPrompt(
            id_,
            "compaction" if is_wish else "synthetic" if details.kind == "synthetic" else "user",
            details.delivery or "steer",
            self._log.at,
            self._timeline.number,
            NO_DETAILS if is_wish else replace(details, delivery=None, kind=None),
        )
        self._log.write(log.PromptAccepted(prompt))
        self._timeline.inbox[id_] = prompt
        if is_wish:
            self._timeline.wishes[id_] = prompt.number

    def _deliver(self, prompt_ids: list[str]) -> None:
        """Move these prompts from the inbox to the timeline, since an agent is given them now."""
        timeline = self._timeline
        for id_ in prompt_ids:
            prompt = timeline.inbox.pop(id_, None)
            if prompt is None:
                continue
            self._steps.release()
            timeline.asked_ms = self._log.at
            self._log.write(log.PromptDelivered(prompt))
            if prompt.kind != "compaction":
                timeline.entries[id_] = entries.PromptEntry(id_, self._log.at, prompt)

    # --- permissions and questions -------------------------------------------------------------------------

    def _request_opened(self, change: RequestOpened) -> None:
        request = change.request
        message_id = request.call.message_id if request.call is not None else ""
        if isinstance(request, values.PermissionRequest):
            self._steps.settle(message_id)
            self._log.write(log.PermissionAsked(request))
        else:
            self._log.write(log.QuestionAsked(request))
            self._steps.settle(message_id)

    def _request_closed(self, change: RequestClosed) -> None:
        request, answer = change.request, change.answer
        if isinstance(request, values.QuestionRequest):
            closed = entries.ClosedQuestion(request, change.answers if answer == "answered" else None)
            self._timeline.questions[request.id] = closed
            self._log.write(log.QuestionClosed(closed))
        elif answer not in ("answered", "rejected"):
            self._log.write(log.PermissionAnswered(request, answer))

    # --- tables --------------------------------------------------------------------------------------------

    _CHANGES: ClassVar[Mapping[type[Any], Callable[[Any, Any], None]]] = {
        SessionChanged: _session_changed,
        StatusChanged: _status_changed,
        TurnEnded: _turn_ended,
        MessageChanged: _message_changed,
        PartChanged: _part_changed,
        TextGrew: _text_grew,
        RequestOpened: _request_opened,
        RequestClosed: _request_closed,
    }
    """Changes that the reducer makes -> what is written. Those without a row leave no trace in the timeline."""

    _AFTER: ClassVar[dict[EventType, Callable[[Any, Any], None]]] = {
        EventType.SESSION_STARTED: _session_started,
        EventType.ITEM_STARTED: _item_started,
        EventType.ITEM_DELTA: _item_delta,
        EventType.ITEM_COMPLETED: _item_completed,
        EventType.ERROR: _note_error,
    }
    """Universal events -> what no change of the reducer says."""


def _selections(event: UniversalEvent | None, label: str) -> frozenset[str]:
    """The names, of agent and model, that somebody selects by this event."""
    item = event.data.item if event is not None and isinstance(event.data, ItemData) else None
    if item is None:
        return frozenset()
    return frozenset({"agent"} if label == "mode" else obj(item.metadata).keys() & {"agent", "model"})


def _label(event: UniversalEvent) -> str:
    """The label of a completed status item; `imported` for a message made elsewhere; empty for all else."""
    if not isinstance(event.data, ItemData):
        return ""
    item = event.data.item
    if (part := item.status_part) is not None:
        return part.label
    return "imported" if item.metadata is not None and item.metadata.get("imported") else ""
