"""A session's timeline and log, from universal events and what the reducer made of them. Pure: the same journal, the same result.

Part order, step boundaries, endings and ids of messages are the reducer's. The writer holds these rules:

- A turn has one beginning and one end, and nothing of the turn comes after its end. Each end is an entry.
- A prompt is in the inbox until an agent gets it, and an entry from then on.
- A prompt that an abort has cancelled stays in the inbox. It is delivered with the next one, which tells the agent of it.
- A prompt whose agent or model does not exist, or does not start, is an entry before its turn fails: a person sees what failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from universal.events import ErrorData, EventType, ItemData, ItemDeltaData, SessionStartedData, UniversalEvent
from universal.items import Item, ItemKind, ItemRole, StatusPart
from universal.lib.jsonvalue import obj
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
from universal.session.entries import ClosedQuestion, EndEntry, Outcome, PendingPrompt, PromptEntry
from universal.session.log import (
    LogAppended,
    PermissionAnswered,
    PermissionAsked,
    PromptAccepted,
    PromptDelivered,
    QuestionAsked,
    QuestionClosed,
    SessionBegan,
    StatusEmitted,
    TurnBegan,
    TurnOver,
    WentIdle,
)
from universal.session.model import Session
from universal.session.record_json import fork_of
from universal.session.timeline.asides import AsidesWriter
from universal.session.timeline.log_writer import LogWriter
from universal.session.timeline.statuses import STATUSES, StatusesWriter, plain
from universal.session.timeline.steps import StepsWriter
from universal.session.transcript import Transcript
from universal.session.user_prompt import NO_DETAILS, PromptDetails, SkillText, prompt_of
from universal.session.values import (
    BUSY,
    IDLE,
    NOT_BEGUN,
    START_ERRORS,
    CompactionMark,
    Failure,
    ModelRef,
    Part,
    PermissionRequest,
    QuestionRequest,
    Status,
    StepInfo,
    Usage,
    UserInfo,
)

OUTCOMES: Mapping[str, Outcome] = {"completed": "succeeded", "aborted": "interrupted"}
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
            deliver=self._deliver,
            prompt_of_item=transcript.prompt_of_item,
            message_of_item=transcript.message_of_item,
        )
        self._event: UniversalEvent | None = None
        self._label = ""

    def write(self, event: UniversalEvent, changes: Sequence[Change], at_ms: int, *, is_live: bool = True) -> list[LogAppended]:
        """Write one universal event, made at `at_ms`, with the reducer's changes. Returns the log's events, in order.

        `is_live`: whether somebody may be told of them. Of a journal that is loaded no events are made.
        """
        self._log.begin(event.sequence, at_ms, is_live=is_live)
        self._event, self._label = event, _label(event)
        self._write(event, changes)
        self._event = None  # most sessions are at rest, and need not hold their last event
        return self._log.take()

    def _write(self, event: UniversalEvent, changes: Sequence[Change]) -> None:
        if self._label == "imported":
            self._import_message(changes)
            return
        if isinstance(event.data, ErrorData) and event.data.code in START_ERRORS:
            self._deliver(self._statuses.take_cancelled())
        for change in changes:
            handler = self._CHANGES.get(type(change))
            if handler is not None:
                handler(self, change)
        after = self._AFTER.get(event.type)
        if after is not None:
            after(self, event.data)

    # --- session -------------------------------------------------------------------------------------------

    def _session_started(self, data: SessionStartedData) -> None:
        """Begin the session. `metadata.fork` says what it was forked from."""
        timeline, record = self._timeline, self._session.record
        if timeline.record is not None or not self._session.is_begun:
            return
        timeline.record, timeline.fork = record, fork_of(obj(data.metadata).get("fork"))
        timeline.mode, timeline.model = record.mode or None, plain(record.model)
        timeline.usage, timeline.cost = Usage() + record.usage, record.cost or 0
        self._log.write(SessionBegan(record, timeline.fork))

    def _session_changed(self, change: SessionChanged) -> None:
        self._statuses.record_changed(change.record, choices=_selections(self._event, self._label))

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
        self._log.write(TurnBegan())
        self._emit_status(BUSY)
        if self._session.record.parent_id:  # a subagent's prompts are given to it by its agent
            self._deliver(list(timeline.inbox))

    def _emit_status(self, status: Status) -> None:
        """Write the status if it differs from the last one written."""
        if status != self._timeline.status:
            self._timeline.status = status
            self._log.accompany(StatusEmitted(status))

    def _current_choice(self) -> tuple[str, ModelRef | None]:
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
        outcome: Outcome = OUTCOMES.get(change.reason, "failed")
        self._steps.release()
        self._steps.give_up(is_interrupted=outcome == "interrupted")
        usage, cost = Usage() + record.usage, record.cost
        if (usage, cost) != (timeline.usage, timeline.cost):
            self._steps.total(usage, cost)
        failure = timeline.failure if outcome == "failed" else None
        entry = EndEntry(self._log.next_message_id(), self._log.at, outcome, failure)
        self._log.write(TurnOver(entry))
        timeline.is_running = False
        timeline.idle_ms, timeline.outcome = self._log.at, entry.outcome
        timeline.entries[entry.id] = entry
        self._emit_status(IDLE)
        self._log.accompany(WentIdle())

    def _note_error(self, data: ErrorData) -> None:
        """Note the last error for the end of the turn."""
        if self._timeline.is_running:
            messages = map(self._session.messages.peek, reversed(self._transcript.turn_messages))
            errors = (m.info.error for m in messages if m is not None and isinstance(m.info, StepInfo))
            failure = next(filter(None, errors), None) if data.code != NOT_BEGUN else None
            self._timeline.failure = failure or Failure(data.message)

    # --- messages ------------------------------------------------------------------------------------------

    def _message_changed(self, change: MessageChanged) -> None:
        info = change.info
        self._log.saw(info.id)
        if isinstance(info, StepInfo):
            self._step_changed(info)

    def _step_changed(self, info: StepInfo) -> None:
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

    def _begin(self, info: StepInfo) -> None:
        data = self._event.data if self._event is not None else None
        item = data.item if isinstance(data, ItemData) else None
        if info.compacts:
            parent = self._session.messages.peek(info.parent_id)
            parts = parent.parts.values() if parent is not None else ()
            is_auto = any(isinstance(part, CompactionMark) and part.auto for part in parts)
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

    def _part(self, message_id: str, part: Part) -> None:
        if self._steps.entry(message_id) is not None:
            self._steps.part(message_id, part)
        elif self._asides.has(message_id):
            info = self._session.messages[message_id].info
            assert isinstance(info, StepInfo)
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
        if isinstance(info, UserInfo):
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
                handler(self._statuses, obj(item.metadata))
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
            self._timeline.items[data.item.item_id] = self._transcript.call_of_item(data.item.item_id)

    def _item_delta(self, data: ItemDeltaData) -> None:
        if data.part_type == "tool_input" and self._timeline.is_running:
            self._steps.input_delta(self._timeline.items.get(data.item_id, ""), data.delta)

    # --- prompts -------------------------------------------------------------------------------------------

    def _prompt(self, item: Item) -> None:
        metadata = obj(item.metadata)
        id_ = self._transcript.prompt_of_item(item.item_id)
        message = self._session.messages.get(id_)
        if message is None or metadata.get("origin") == SHELL_ORIGIN:
            return
        details = prompt_of(item).details
        if details.kind == "skill":  # it is written at once, whenever the agent gets it
            self._timeline.ids[id_] = self._statuses.add_skill(details.skill or SkillText("", "", ""))
            return
        self._enqueue(id_, list(message.parts.values()), details)
        if self._session.record.parent_id and self._timeline.is_running:
            self._deliver([id_])  # a subagent's prompts are given to it by its agent

    def _enqueue(self, id_: str, parts: Sequence[Part], details: PromptDetails) -> None:
        is_wish = any(isinstance(part, CompactionMark) for part in parts)
        prompt = PendingPrompt(
            id_,
            "compaction" if is_wish else "synthetic" if details.kind == "synthetic" else "user",
            details.delivery or "steer",
            self._log.at,
            self._timeline.number,
            NO_DETAILS if is_wish else replace(details, delivery=None, kind=None),
        )
        self._log.write(PromptAccepted(prompt))
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
            self._log.write(PromptDelivered(prompt))
            if prompt.kind != "compaction":
                timeline.entries[id_] = PromptEntry(id_, self._log.at, prompt)

    # --- permissions and questions -------------------------------------------------------------------------

    def _request_opened(self, change: RequestOpened) -> None:
        request = change.request
        message_id = request.call.message_id if request.call is not None else ""
        if isinstance(request, PermissionRequest):
            self._steps.settle(message_id)
            self._log.write(PermissionAsked(request))
        else:
            self._log.write(QuestionAsked(request))
            self._steps.settle(message_id)

    def _request_closed(self, change: RequestClosed) -> None:
        request, answer = change.request, change.answer
        if isinstance(request, QuestionRequest):
            closed = ClosedQuestion(request, change.answers if answer == "answered" else None)
            self._timeline.questions[request.id] = closed
            self._log.write(QuestionClosed(closed))
        elif answer not in ("answered", "rejected"):
            self._log.write(PermissionAnswered(request, answer))

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
    if item is None or label not in ("session", "mode"):
        return frozenset()
    return frozenset({"agent"} if label == "mode" else obj(item.metadata).keys() & {"agent", "model"})


def _label(event: UniversalEvent) -> str:
    """The label of a status item; `imported` for a message made elsewhere; empty for all else."""
    if event.type is not EventType.ITEM_COMPLETED or not isinstance(event.data, ItemData):
        return ""
    item = event.data.item
    if item.kind is ItemKind.STATUS:
        return next((part.label for part in item.content if isinstance(part, StatusPart)), "")
    return "imported" if item.metadata is not None and item.metadata.get("imported") else ""
