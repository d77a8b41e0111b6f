"""Universal events of one session -> its OpenCode 2 state and events, in R's form. Pure: the same journal, the same result.

A fold over the universal event and what the core made of it: part order, step boundaries, endings and ids of messages are the
core's (`universal.session.reducer`).

Owned here: one `execution.started`, then one of `succeeded`, `failed`, `interrupted`, then `session.status` idle and one
`session.idle`, and nothing of the turn after that (`divergences.toml`: native lists the two and does not send them); a prompt
is in the inbox until it is handed to the agent, and a message from then on (one that an abort has cancelled is parked there, and
delivered with the next one, which tells the agent of it; one whose agent or model does not exist, or does not start, is a message
before its execution fails, as in 2.1, so that a person sees what failed); an `idle` message for each end.
Source: `OPENCODE_V2_WIRE` sections 4, 5, 7, 11, 12; recordings `v2-20260717`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from shim.faces.opencode2 import asks, names, prompts
from shim.faces.opencode2 import session_info as session
from shim.faces.opencode2.asides import Asides
from shim.faces.opencode2.events import Event2, Wire
from shim.faces.opencode2.state import Conversation2
from shim.faces.opencode2.statuses import STATUSES, Statuses
from shim.faces.opencode2.steps import Steps
from shim.faces.opencode2.teller import Teller, message_id
from universal.events import ErrorData, EventType, ItemData, ItemDeltaData, SessionStartedData, UniversalEvent
from universal.ids import IdSequence
from universal.items import Item, ItemKind, ItemRole, StatusPart, ToolCallPart
from universal.jsonvalue import obj
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
from universal.session.model import (
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
    UserInfo,
)
from universal.session.reducer import Reducer

OUTCOMES = {"completed": "succeeded", "aborted": "interrupted"}
"""Reason of a turn's end -> outcome; all others failed."""
CARRIERS = frozenset({EventType.ERROR, EventType.TURN_ENDED})
"""Events for which the core makes a message that only carries an error."""
LOST = {"type": "unknown", "message": "The agent ended without a word."}
SHELL_ORIGIN = "shell"
"""`metadata.origin` of items that are a person's command."""
REPLIES = {"accept": "once", "accept_for_session": "always", "reject": "reject"}
"""Answer of a permission -> OpenCode's reply."""


class Projector2:
    """One session on the OpenCode 2 face. `agent` is the name of its agent."""

    def __init__(self, session_id: str, agent: str) -> None:
        self.reducer = Reducer(session_id, agent)
        self._session = self.reducer.session
        self.conversation = Conversation2(session.info_of(self._session.record))
        self._used = IdSequence()
        self._teller = Teller(session_id, lambda: self._used.last, lambda: self.conversation.info["location"]["directory"])
        self._steps = Steps(self.conversation, self._teller, self._session)
        self._asides = Asides(self.conversation, self._teller, self._steps.names)
        self._statuses = Statuses(self.conversation, self._teller, self._steps, self.reducer, self._deliver)
        self._event: UniversalEvent | None = None
        self._label = ""
        self._calls: dict[str, str] = {}
        self._error: Wire | None = None
        self._status_sent = IDLE
        self._asked_at = 0
        """When the model was last given something to answer: a prompt, or the results of the step before."""

    def feed(self, event: UniversalEvent, at_ms: int) -> list[Event2]:
        """One universal event, made at `at_ms`; the events to publish, in order."""
        self._teller.begin(at_ms)
        self._event = event
        self._label = _label(event)
        changes = self.reducer.apply(event, at_ms)
        if self._label == "imported":
            self._imported(changes)
            return self._teller.out
        if isinstance(event.data, ErrorData) and event.data.code in START_ERRORS:
            self._deliver(self._statuses.take_cancelled())
        for change in changes:
            handler = self._CHANGES.get(type(change))
            if handler is not None:
                handler(self, change)
        after = self._AFTER.get(event.type)
        if after is not None:
            after(self, event.data)
        return self._teller.out

    def deleted(self, at_ms: int) -> list[Event2]:
        """The session was deleted: the last event of it."""
        self._teller.begin(at_ms)
        self._teller.tell("session.deleted", {})
        return self._teller.out

    # --- session -------------------------------------------------------------------------------------------

    def _session_started(self, data: SessionStartedData) -> None:
        """Its first event. `metadata.fork` says of what it is one."""
        record, fork = self._session.record, obj(obj(data.metadata).get("fork"))
        if self._teller.next_seq or not self._session.is_begun:
            return
        info = session.info_of(record)
        if fork:
            info = {**info, "fork": fork}
            self.conversation.info = info
            self._teller.tell("session.forked", {"parentID": fork["sessionID"], "boundary": fork["boundary"]})
            return
        self.conversation.info = info
        self._teller.tell("session.created", session.created(info, record.slug))

    def _session_changed(self, change: SessionChanged) -> None:
        self._statuses.updated(session.info_of(change.record), chosen=_chosen(self._event, self._label))

    # --- executions ----------------------------------------------------------------------------------------

    def _status_changed(self, change: StatusChanged) -> None:
        status, conversation = change.status, self.conversation
        if status.type == "idle":
            pass  # `TurnEnded` comes next
        elif status.type == "retry":
            self._steps.retry(self.reducer.transcript.open_id, status, *self._answering())
            self._tell_status(status)
        elif conversation.running:
            self._steps.again()
            self._tell_status(status)
        else:
            conversation.running = True
            time = {k: v for k, v in conversation.info["time"].items() if k != "idle"}
            conversation.info = {k: v for k, v in conversation.info.items() if k != "outcome"} | {"time": time}
            self._error = None
            self._asked_at = self._teller.at
            self._teller.tell("session.execution.started", {})
            self._tell_status(status)
            if "parentID" in conversation.info:
                self._deliver(list(conversation.inbox))

    def _tell_status(self, status: Status) -> None:
        """`session.status`, if it is another one than the last that was sent."""
        if status != self._status_sent:
            self._status_sent = status
            self._teller.accompany("session.status", {"status": session.status(status)})

    def _answering(self) -> tuple[str, ModelRef | None]:
        """Mode and model of the prompt that is being answered."""
        current = self._session
        prompt = current.messages.get(self.reducer.transcript.parent_id or current.last_user() or "")
        if prompt is not None:
            return prompt.info.mode, prompt.info.model
        return current.record.mode or "build", current.record.model

    def _turn_ended(self, change: TurnEnded) -> None:
        conversation = self.conversation
        if not conversation.running:
            return
        outcome = OUTCOMES.get(change.reason, "failed")
        self._steps.release()
        self._steps.give_up(interrupted=outcome == "interrupted")
        tokens, cost = session.counts(self._session.record.usage), self._session.record.cost
        if (tokens, cost) != (conversation.info["tokens"], conversation.info["cost"]):
            self._steps.total(tokens, cost)
        told: Wire = {}
        if outcome == "failed":
            told = {"error": self._error or LOST}
        event = self._teller.tell(f"session.execution.{outcome}", {"reason": "user"} if outcome == "interrupted" else told)
        conversation.running = False
        time = {**conversation.info["time"], "idle": self._teller.at}
        conversation.info = {**conversation.info, "outcome": outcome, "time": time}
        id_ = message_id(event)
        created = {"created": self._teller.at}
        conversation.messages[id_] = {"id": id_, "time": created, "type": "idle", "outcome": outcome, **told}
        self._tell_status(IDLE)
        self._teller.accompany("session.idle", {})

    def _failed(self, data: ErrorData) -> None:
        """What the last error was, for the end of the turn."""
        if self.conversation.running:
            steps = (m.info for m in reversed(self._session.messages.values()) if isinstance(m.info, StepInfo))
            failure = next((s.error for s in steps if s.error is not None), None) if data.code != NOT_BEGUN else None
            self._error = names.error(failure or Failure(data.message))

    # --- messages ------------------------------------------------------------------------------------------

    def _message_changed(self, change: MessageChanged) -> None:
        info = change.info
        self._used.saw(info.id, self._teller.at)
        if isinstance(info, StepInfo):
            self._step_changed(info)

    def _step_changed(self, info: StepInfo) -> None:
        if not self._steps.knows(info.id) and not self._asides.knows(info.id):
            self._begin(info)
        if info.completed_ms is None:
            return
        message = self._session.messages.get(info.id)
        if self._steps.knows(info.id):
            self._steps.finish(info, message)
            self._asked_at = self._teller.at
        elif self._asides.compacted(info, message) is not None and (info.cost or info.usage.input or info.usage.output):
            self._steps.spend(info.usage, info.cost)

    def _begin(self, info: StepInfo) -> None:
        data = self._event.data if self._event is not None else None
        item = data.item if isinstance(data, ItemData) else None
        if info.compacts:
            parent = self._session.messages.get(info.parent_id)
            parts = parent.parts.values() if parent is not None else ()
            self._asides.compaction(info, auto=any(isinstance(part, CompactionMark) and part.auto for part in parts))
        elif item is not None and obj(item.metadata).get("origin") == SHELL_ORIGIN:
            self._asides.shell(info)
        else:
            snapshots = self._session.snapshots
            is_error = self._event is not None and self._event.type in CARRIERS
            self._steps.begin(info, snapshots.last if snapshots.is_on else None, since=self._asked_at if is_error else None)

    def _part_changed(self, change: PartChanged) -> None:
        self._used.saw(change.part.id, self._teller.at)
        if self._label != "part.updated":
            self._part(change.message_id, change.part)

    def _part(self, core_id: str, part: Part) -> None:
        if self._steps.knows(core_id):
            self._steps.part(core_id, part)
        elif self._asides.knows(core_id):
            info = self._session.messages[core_id].info
            assert isinstance(info, StepInfo)
            self._asides.part(info, part)

    def _text_grew(self, change: TextGrew) -> None:
        self._steps.delta(change)
        self._asides.delta(change)

    def _imported(self, changes: Sequence[Change]) -> None:
        """A message that was made elsewhere, whole: as if it came now, at its own time."""
        message = self._session.messages[next(change.info.id for change in changes if isinstance(change, MessageChanged))]
        info = message.info
        self._teller.at = info.created_ms
        for id_ in (info.id, *message.parts):
            self._used.saw(id_, self._teller.at)
        if isinstance(info, UserInfo):
            self._enqueue(info.id, list(message.parts.values()), {})
            self._deliver([info.id])
            return
        self._begin(info)
        for part in message.parts.values():
            self._part(info.id, part)
        self._step_changed(info if info.completed_ms is not None else replace(info, completed_ms=self._teller.at))
        self._steps.release()

    # --- prompts -------------------------------------------------------------------------------------------

    def _item_completed(self, data: ItemData) -> None:
        item = data.item
        if item.kind is ItemKind.STATUS:
            handler = STATUSES.get(self._label)
            if handler is not None:
                handler(self._statuses, obj(item.metadata))
        elif item.kind is ItemKind.MESSAGE and item.role is ItemRole.USER:
            self._prompt(item)
        else:
            self._item_started(data)
            for core_id in list(self._steps.open):
                message = self._session.messages.get(core_id)
                if message is not None and message.is_said:
                    self._steps.streamed(core_id)

    def _item_started(self, data: ItemData) -> None:
        """The call that an item is, for the pieces of its arguments."""
        if data.item.kind is ItemKind.TOOL_CALL:
            call = next((p for p in data.item.content if isinstance(p, ToolCallPart)), None)
            if call is not None:
                self._calls[data.item.item_id] = call.call_id

    def _item_delta(self, data: ItemDeltaData) -> None:
        if data.part_type == "tool_input" and self.conversation.running:
            self._steps.input_delta(self._calls.get(data.item_id, ""), data.delta)

    def _prompt(self, item: Item) -> None:
        meta = obj(item.metadata)
        id_ = self.reducer.transcript.prompt_of_item(item.item_id)
        message = self._session.messages.get(id_)
        if message is None or meta.get("origin") == SHELL_ORIGIN:
            return
        sent = obj(meta.get("opencode"))
        if sent.get("kind") == "skill":  # told at once, whenever the agent gets it
            self._statuses.skill(obj(sent.get("skill")))
            self._steps.names[id_] = message_id(self._teller.out[-1])
            return
        self._enqueue(id_, list(message.parts.values()), sent)
        if "parentID" in self.conversation.info and self.conversation.running:
            self._deliver([id_])  # a subagent's prompts are handed by its agent

    def _enqueue(self, id_: str, parts: Sequence[Part], sent: Wire) -> None:
        enqueued = prompts.item(parts, sent)
        self._teller.tell("session.inbox.enqueued", {"inboxID": id_, "item": enqueued})
        self.conversation.inbox[id_] = prompts.entry(id_, self.conversation.id, enqueued, self._teller.at)
        if enqueued["type"] == "compaction":
            self._asides.wishes.add(id_)

    def _deliver(self, inbox_ids: list[str]) -> None:
        """These items of the inbox are the agent's now."""
        for id_ in inbox_ids:
            entry = self.conversation.inbox.pop(id_, None)
            if entry is None:
                continue
            self._steps.release()
            self._asked_at = self._teller.at
            self._teller.tell("session.inbox.delivered", {"inboxID": id_}, note=entry["type"], beside={"item": entry})
            if entry["type"] in ("user", "synthetic"):
                self.conversation.messages[id_] = prompts.message(id_, entry, self._teller.at)

    # --- permissions and questions -------------------------------------------------------------------------

    def _request_opened(self, change: RequestOpened) -> None:
        request = change.request
        core_id = request.call.message_id if request.call is not None else ""
        tool = asks.source(request.call, self._steps.wire_id(core_id))
        if isinstance(request, PermissionRequest):
            self._steps.settle(core_id)
            wire = asks.permission(request, self._session.id, tool)
            self.conversation.permissions[request.id] = wire
            self._teller.tell("permission.asked", wire)
        else:
            form = asks.form(request, self._session.id, tool)
            self.conversation.forms[form["id"]] = form
            self.conversation.questions[form["id"]] = request.id
            self._teller.tell("form.created", {"form": form})
            self._steps.settle(core_id)

    def _request_closed(self, change: RequestClosed) -> None:
        if isinstance(change.request, QuestionRequest):
            self._question_closed(change)
            return
        self.conversation.permissions.pop(change.request.id, None)
        self._teller.tell("permission.replied", {"requestID": change.request.id, "reply": REPLIES[change.answer]})

    def _question_closed(self, change: RequestClosed) -> None:
        id_ = asks.form_id(change.request.id)
        form = self.conversation.forms.pop(id_, None)
        if form is None:
            return
        if change.answer == "answered":
            answer = asks.answer(form, change.answers)
            self.conversation.settled[id_] = {**form, "state": {"status": "answered", "answer": answer}}
            self._teller.tell("form.replied", {"id": id_, "answer": answer})
        else:
            self.conversation.settled[id_] = {**form, "state": {"status": "cancelled"}}
            self._teller.tell("form.cancelled", {"id": id_})

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
    """Changes of the core -> what this face makes of them. Those without a row have no form of their own here."""

    _AFTER: ClassVar[dict[EventType, Callable[[Projector2, Any], None]]] = {
        EventType.SESSION_STARTED: _session_started,
        EventType.ITEM_STARTED: _item_started,
        EventType.ITEM_DELTA: _item_delta,
        EventType.ITEM_COMPLETED: _item_completed,
        EventType.ERROR: _failed,
    }
    """Universal events -> what no change of the core says."""


def _chosen(event: UniversalEvent | None, label: str) -> frozenset[str]:
    """Which of agent and model somebody selects by this event."""
    item = event.data.item if event is not None and isinstance(event.data, ItemData) else None
    if item is None or label not in ("session", "mode"):
        return frozenset()
    return frozenset({"agent"} if label == "mode" else obj(item.metadata).keys() & {"agent", "model"})


def _label(event: UniversalEvent) -> str:
    """What a status item is called; `imported` for a message that was made elsewhere; empty for all else."""
    if event.type is not EventType.ITEM_COMPLETED or not isinstance(event.data, ItemData):
        return ""
    item = event.data.item
    if item.kind is ItemKind.STATUS:
        return next((p.label for p in item.content if isinstance(p, StatusPart)), "")
    return "imported" if item.metadata is not None and item.metadata.get("imported") else ""
