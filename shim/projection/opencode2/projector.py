"""Universal events of one session -> its OpenCode 2 state and events, in R's form. Pure: the same journal, the same result.

A fold over the universal event and what the first projection made of it: part order, step boundaries, endings and ids of
messages are that one's (`shim.projection.opencode1`); this one says them in the other grammar.

Owned here: one `execution.started`, then one of `succeeded`, `failed`, `interrupted`, then `session.status` idle and one
`session.idle`, and nothing of the turn after that (`divergences.toml`: native lists the two and does not send them); a prompt
is in the inbox until it is handed to the agent, and a message from then on (one that an abort has cancelled is parked there, and
delivered with the next one, which tells the agent of it; one whose agent or model does not exist, or does not start, is a message
before its execution fails, as in 2.1, so that a person sees what failed); an `idle` message for each end.
Source: `OPENCODE_V2_WIRE` sections 4, 5, 7, 11, 12; recordings `v2-20260717`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from shim.faces.opencode1 import read
from shim.opencode2.events import Event2, Wire
from shim.projection.opencode1.projector import Projector
from shim.projection.opencode1.state import NOT_BEGUN, START_ERRORS
from shim.projection.opencode2 import asks, names, prompts, session
from shim.projection.opencode2.asides import Asides
from shim.projection.opencode2.state import Conversation2
from shim.projection.opencode2.statuses import STATUSES, Statuses
from shim.projection.opencode2.steps import Steps
from shim.projection.opencode2.teller import Teller, message_id
from universal.events import ErrorData, EventType, ItemData, ItemDeltaData, SessionStartedData, TurnData, UniversalEvent
from universal.ids import IdSequence
from universal.items import Item, ItemKind, ItemRole, StatusPart, ToolCallPart
from universal.jsonvalue import obj, text
from universal.session.model import StepInfo

OUTCOMES = {"completed": "succeeded", "aborted": "interrupted"}
"""Reason of a turn's end -> outcome; all others failed."""
CARRIERS = frozenset({EventType.ERROR, EventType.TURN_ENDED})
"""Events for which the first projection makes a message that only carries an error."""
LOST = {"type": "unknown", "message": "The agent ended without a word."}
SHELL_ORIGIN = "shell"
"""`metadata.origin` of items that are a person's command."""


class Projector2:
    """One session on the OpenCode 2 face. `agent` is the name of its agent."""

    def __init__(self, session_id: str, agent: str) -> None:
        self._first = Projector(session_id, agent)
        self.conversation = Conversation2(session.info_of(self._first.conversation.info))
        self._used = IdSequence()
        self._teller = Teller(session_id, lambda: self._used.last, lambda: self.conversation.info["location"]["directory"])
        self._steps = Steps(self.conversation, self._teller, self._first.conversation)
        self._asides = Asides(self.conversation, self._teller, self._steps.names)
        self._statuses = Statuses(self.conversation, self._teller, self._steps, self._first, self._deliver)
        self._event: UniversalEvent | None = None
        self._label = ""
        self._calls: dict[str, str] = {}
        self._error: Wire | None = None
        self._status_sent: Wire = {"type": "idle"}
        self._asked_at = 0
        """When the model was last given something to answer: a prompt, or the results of the step before."""

    def feed(self, event: UniversalEvent, at_ms: int) -> list[Event2]:
        """One universal event, made at `at_ms`; the events to publish, in order."""
        self._teller.begin(at_ms)
        self._event = event
        self._label = _label(event)
        made = self._first.feed(event, at_ms)
        if self._label == "imported":
            self._imported(event)
            return self._teller.out
        if isinstance(event.data, ErrorData) and event.data.code in START_ERRORS:
            self._deliver(self._statuses.take_cancelled())
        for one in made:
            handler = self._FIRST.get(one.type)
            if handler is not None:
                handler(self, one.properties)
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
        first, fork = self._first.conversation.info, obj(obj(data.metadata).get("fork"))
        if self._teller.next_seq or not self._first.reducer.session.is_begun:
            return
        info = session.info_of(first)
        if fork:
            info = {**info, "fork": fork}
            self.conversation.info = info
            self._teller.tell("session.forked", {"parentID": fork["sessionID"], "boundary": fork["boundary"]})
            return
        self.conversation.info = info
        self._teller.tell("session.created", session.created(info, text(first.get("slug"))))

    def _session_updated(self, properties: Wire) -> None:
        self._statuses.updated(session.info_of(obj(properties["info"])), chosen=_chosen(self._event, self._label))

    # --- executions ----------------------------------------------------------------------------------------

    def _status(self, properties: Wire) -> None:
        status, conversation = obj(properties["status"]), self.conversation
        if status["type"] == "idle":
            self._ended()
        elif status["type"] == "retry":
            self._steps.retry(self._first.transcript.open_id, status, self._answering())
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

    def _tell_status(self, status: Wire) -> None:
        """`session.status`, if it is another one than the last that was sent."""
        if status != self._status_sent:
            self._status_sent = status
            self._teller.accompany("session.status", {"status": status})

    def _answering(self) -> Wire:
        """`info` of the prompt that is being answered, for its agent and model."""
        first = self._first.conversation
        user = first.messages.get(self._first.transcript.parent_id or first.last_user() or "")
        return user.info if user is not None else first.info

    def _ended(self) -> None:
        conversation = self.conversation
        if not conversation.running:
            return
        data = self._event.data if self._event is not None else None
        reason = text(obj(data.metadata).get("reason"), "completed") if isinstance(data, TurnData) else "completed"
        outcome = OUTCOMES.get(reason, "failed")
        self._steps.release()
        self._steps.give_up(interrupted=outcome == "interrupted")
        first = self._first.conversation.info
        tokens, cost = session.counts(obj(first["tokens"])), first["cost"]
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
        self._tell_status({"type": "idle"})
        self._teller.accompany("session.idle", {})

    def _failed(self, data: ErrorData) -> None:
        """What the last error was, for the end of the turn."""
        if self.conversation.running:
            steps = (m.info for m in reversed(self._first.reducer.session.messages.values()) if isinstance(m.info, StepInfo))
            error = next((s.error for s in steps if s.error is not None), None) if data.code != NOT_BEGUN else None
            told = read.failure(error) if error is not None else {"name": "UnknownError", "data": {"message": data.message}}
            self._error = names.error(obj(told))

    # --- messages of the first face ------------------------------------------------------------------------

    def _message_updated(self, properties: Wire) -> None:
        info = obj(properties["info"])
        self._used.saw(info["id"], self._teller.at)
        if info["role"] != "assistant":
            return
        known, id_ = self._steps.knows(info["id"]), info["id"]
        if not known and not self._asides.knows(id_):
            self._begin(info)
        if "completed" not in obj(info["time"]):
            return
        message = self._first.conversation.messages.get(id_)
        if self._steps.knows(id_):
            self._steps.finish(info, message)
            self._asked_at = self._teller.at
        elif self._asides.compacted(info, message) is not None:
            tokens, cost = session.counts(obj(info["tokens"])), info["cost"]
            if cost or tokens["input"] or tokens["output"]:
                self._steps.spend(tokens, cost)

    def _begin(self, info: Wire) -> None:
        data = self._event.data if self._event is not None else None
        item = data.item if isinstance(data, ItemData) else None
        if info.get("summary") is True:
            parent = self._first.conversation.messages.get(info["parentID"])
            parts = parent.parts.values() if parent is not None else ()
            self._asides.compaction(info, auto=any(p["type"] == "compaction" and p.get("auto") for p in parts))
        elif item is not None and obj(item.metadata).get("origin") == SHELL_ORIGIN:
            self._asides.shell(info)
        else:
            trees = self._first.conversation.trees
            is_error = self._event is not None and self._event.type in CARRIERS
            self._steps.begin(info, trees.last if trees.is_on else None, since=self._asked_at if is_error else None)

    def _part_updated(self, properties: Wire) -> None:
        part = obj(properties["part"])
        self._used.saw(part["id"], self._teller.at)
        if self._label == "part.updated":
            return
        first = self._first.conversation
        if self._steps.knows(part["messageID"]):
            self._steps.part(part, first.typed.call(part.get("callID", "")))
        elif self._asides.knows(part["messageID"]):
            self._asides.part(part, first.messages[part["messageID"]].info["parentID"])

    def _part_delta(self, properties: Wire) -> None:
        self._steps.delta(properties)
        if self._asides.knows(properties["messageID"]):
            self._asides.delta(properties)

    def _imported(self, event: UniversalEvent) -> None:
        """A message that was made elsewhere, whole: as if it came now, at its own time."""
        wire = obj(obj(event.data.item.metadata).get("imported")) if isinstance(event.data, ItemData) else {}
        info = obj(wire.get("info"))
        message = self._first.conversation.messages[info["id"]]
        self._teller.at = info["time"]["created"]
        for id_ in (info["id"], *message.parts):
            self._used.saw(id_, self._teller.at)
        if info["role"] == "user":
            self._enqueue(info["id"], list(message.parts.values()), {})
            self._deliver([info["id"]])
            return
        self._begin({**info, "agent": info.get("agent") or info.get("mode")})
        for part in message.parts.values():
            self._steps.part(part, None)
            if self._asides.knows(info["id"]):
                self._asides.part(part, info["parentID"])
        self._message_updated({"info": {**info, "time": {"completed": self._teller.at, **info["time"]}}})
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
            for first_id in list(self._steps.open):
                message = self._first.conversation.messages.get(first_id)
                if message is not None and message.done:
                    self._steps.streamed(first_id)

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
        id_ = self._first.transcript.prompt_of_item(item.item_id)
        message = self._first.conversation.messages.get(id_)
        if message is None or meta.get("origin") == SHELL_ORIGIN:
            return
        given = obj(meta.get("opencode"))
        if given.get("kind") == "skill":  # told at once, whenever the agent gets it
            self._statuses.skill(obj(given.get("skill")))
            self._steps.names[id_] = message_id(self._teller.out[-1])
            return
        self._enqueue(id_, list(message.parts.values()), given)
        if "parentID" in self.conversation.info and self.conversation.running:
            self._deliver([id_])  # a subagent's prompts are handed by its agent

    def _enqueue(self, id_: str, parts: list[Wire], given: Wire) -> None:
        enqueued = prompts.item(parts, given)
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

    def _named(self, asked: Wire) -> Wire:
        tool = obj(asked.get("tool"))
        return {**asked, "tool": {**tool, "messageID": self._steps.second(tool["messageID"])}} if tool else asked

    def _permission_asked(self, properties: Wire) -> None:
        self._steps.settle(text(obj(properties.get("tool")).get("messageID")))
        wire = asks.permission(self._named(properties))
        self.conversation.permissions[wire["id"]] = wire
        self._teller.tell("permission.asked", wire)

    def _permission_replied(self, properties: Wire) -> None:
        id_ = properties["requestID"]
        self.conversation.permissions.pop(id_, None)
        self._teller.tell("permission.replied", {"requestID": id_, "reply": properties["reply"]})

    def _question_asked(self, properties: Wire) -> None:
        form = asks.form(self._named(properties))
        self.conversation.forms[form["id"]] = form
        self.conversation.questions[form["id"]] = properties["id"]
        self._teller.tell("form.created", {"form": form})
        self._steps.settle(text(obj(properties.get("tool")).get("messageID")))

    def _question_replied(self, properties: Wire) -> None:
        id_ = asks.form_id(properties["requestID"])
        form = self.conversation.forms.pop(id_, None)
        if form is not None:
            answer = asks.answer(form, properties["answers"])
            self.conversation.settled[id_] = {**form, "state": {"status": "answered", "answer": answer}}
            self._teller.tell("form.replied", {"id": id_, "answer": answer})

    def _question_rejected(self, properties: Wire) -> None:
        id_ = asks.form_id(properties["requestID"])
        form = self.conversation.forms.pop(id_, None)
        if form is not None:
            self.conversation.settled[id_] = {**form, "state": {"status": "cancelled"}}
            self._teller.tell("form.cancelled", {"id": id_})

    # --- tables --------------------------------------------------------------------------------------------

    _FIRST: ClassVar[dict[str, Callable[[Projector2, Wire], None]]] = {
        "session.updated": _session_updated,
        "session.status": _status,
        "message.updated": _message_updated,
        "message.part.updated": _part_updated,
        "message.part.delta": _part_delta,
        "permission.asked": _permission_asked,
        "permission.replied": _permission_replied,
        "question.asked": _question_asked,
        "question.replied": _question_replied,
        "question.rejected": _question_rejected,
    }
    """Events of the first face -> what this one makes of them. Those without a row have no other form here."""

    _AFTER: ClassVar[dict[EventType, Callable[[Projector2, Any], None]]] = {
        EventType.SESSION_STARTED: _session_started,
        EventType.ITEM_STARTED: _item_started,
        EventType.ITEM_DELTA: _item_delta,
        EventType.ITEM_COMPLETED: _item_completed,
        EventType.ERROR: _failed,
    }
    """Universal events -> what the first face has no event for."""


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
