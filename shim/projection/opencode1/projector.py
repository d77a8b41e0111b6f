"""Universal events of one session -> its OpenCode 1.x state and events. Pure: the same journal, the same result.

In: `feed(event, at_ms)`, events in order of sequence. Out: the OpenCode events to publish, in order.
Invariants owned here: busy at the turn's start; at its end, in this order, open tools and texts are closed, messages
are finished, `session.error` if it failed or was aborted, `session.updated` and `session.diff`, then
`session.status` idle and `session.idle`, and after that nothing of the turn. Items that come while no turn runs are
bookkeeping of an ended one: they stay in the journal and change nothing here (`late` counts them).
Source: docs/contract.md, rules of the turn; recordings of OpenCode 1.18.33.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from shim.opencode import build
from shim.opencode.build import Wire
from shim.opencode.events import OpenCodeEvent
from shim.projection.diffs import turn_diff
from shim.projection.opencode1 import asks, undo
from shim.projection.opencode1.accesses import primary_access
from shim.projection.opencode1.history import History
from shim.projection.opencode1.imported import put as put_imported
from shim.projection.opencode1.parts import retry_status
from shim.projection.opencode1.state import NOT_BEGUN, Conversation, Trees
from shim.projection.opencode1.transcript import Transcript
from universal.events import (
    ErrorData,
    EventType,
    ItemData,
    ItemDeltaData,
    PermissionData,
    QuestionData,
    SessionStartedData,
    TurnData,
    UniversalEvent,
)
from universal.items import Item, ItemKind, ItemRole, StatusPart
from universal.jsonvalue import arr, obj, text, whole_number

TOAST_MS = 15_000
"""How long a notice is shown."""
_TURN_ERRORS = {
    "aborted": asks.ABORTED,
    "agent_exited": "The agent exited while this tool was running",
    "error": "The turn failed while this tool was running",
}


class Projector:
    """One session on the OpenCode 1.x face. `agent` is the name of its agent (tool table, provider id)."""

    def __init__(self, session_id: str, agent: str) -> None:
        self._out: list[OpenCodeEvent] = []
        self._quiet = False
        """Nobody is told what is made now."""
        self.conversation = Conversation({"id": session_id, "directory": "/", "projectID": "global"})
        self.transcript = Transcript(self.conversation, agent, self._emit)
        self.late = 0
        self.history = History(session_id)
        self._command_run: Wire | None = None

    @property
    def agent(self) -> str:
        """The agent whose tool table is used."""
        return self.transcript.agent

    @agent.setter
    def agent(self, name: str) -> None:
        self.transcript.agent = name

    def feed(self, event: UniversalEvent, at_ms: int) -> list[OpenCodeEvent]:
        """One universal event, made at `at_ms`; the events to publish."""
        return self.history.numbered(self._fed(event, at_ms), at_ms)

    def load(self, event: UniversalEvent, at_ms: int) -> None:
        """The same for an event of a journal, of which nothing is published."""
        self._quiet = True
        try:
            self._fed(event, at_ms)
        finally:
            self._quiet = False

    def _fed(self, event: UniversalEvent, at_ms: int) -> list[OpenCodeEvent]:
        self._out = []
        handler = self._HANDLERS.get(event.type)
        if handler is not None:
            handler(self, event.data, at_ms)
        return self._out

    def told_anew(self, changed: Iterable[tuple[str, str]], at_ms: int) -> list[OpenCodeEvent]:
        """Each text that still grows, and the messages and parts that are named, as they are now. Changes nothing.

        In: `changed`, pairs of a message's id and that of a part, or "" for the message itself.
        """
        self._out = []
        known = self.conversation.messages
        growing = (known[id_] for id_ in self.transcript.turn_messages if id_ in known)
        wanted = {message.info["id"]: set(message.streaming) for message in growing if message.streaming}
        for message_id, part_id in changed:
            wanted.setdefault(message_id, set()).add(part_id)
        for message, ids in ((known[id_], wanted[id_]) for id_ in sorted(wanted) if id_ in known):
            if "" in ids:
                self._emit("message.updated", {"sessionID": self.conversation.id, "info": message.info})
            for part_id in (id_ for id_ in message.parts if id_ in ids):
                part = message.part(part_id)
                self._emit("message.part.updated", {"sessionID": self.conversation.id, "part": part, "time": at_ms})
        return self._out

    def _emit(
        self,
        kind: str,
        properties: Wire,
        *,
        urgent: bool = False,
        legacy: Callable[[], OpenCodeEvent | None] | None = None,
    ) -> None:
        if self._quiet:
            self.history.skip(kind)
            return
        info = self.conversation.info
        self._out.append(OpenCodeEvent(kind, properties, info["directory"], info["projectID"], urgent, legacy))

    def _session_updated(self) -> None:
        self._emit("session.updated", {"sessionID": self.conversation.id, "info": self.conversation.info})

    def _set_info(self, at_ms: int, **changes: Any) -> None:
        info = self.conversation.info
        self.conversation.info = {**info, **changes, "time": {**info["time"], "updated": max(at_ms, info["time"]["updated"])}}

    def _set_status(self, status: Wire, *, urgent: bool = False) -> None:
        self.conversation.status = status
        self._emit("session.status", {"sessionID": self.conversation.id, "status": status}, urgent=urgent)

    # --- session -------------------------------------------------------------------------------------------

    def _session_started(self, data: SessionStartedData, at_ms: int) -> None:
        """`metadata.opencode` is the session's `info` as made by the manager."""
        if "slug" in self.conversation.info:
            return
        self.conversation.info = dict(obj(obj(data.metadata).get("opencode")))
        self._emit("session.created", {"sessionID": self.conversation.id, "info": self.conversation.info})

    def _patch_session(self, meta: Wire, at_ms: int) -> None:
        info = dict(self.conversation.info)
        for key in ("title", "permission", "metadata", "share", "agent", "model"):
            if key in meta:
                info[key] = meta[key]
        if info.get("share", "") is None:
            del info["share"]
        if "archived" in meta:
            time = {k: v for k, v in info["time"].items() if k != "archived"}
            info["time"] = time if meta["archived"] is None else {**time, "archived": whole_number(meta["archived"])}
        self.conversation.info = info
        self._set_info(at_ms)
        self._session_updated()

    # --- turns ---------------------------------------------------------------------------------------------

    def _turn_started(self, data: TurnData, at_ms: int) -> None:
        self._set_status(build.status_busy(), urgent=True)

    def _turn_ended(self, data: TurnData, at_ms: int) -> None:
        if not self.conversation.busy:
            return
        meta = obj(data.metadata)
        reason = text(meta.get("reason"), "completed")
        if reason == "aborted":
            error = build.aborted()
            self.transcript.fail(error, at_ms, tool_error=_TURN_ERRORS["aborted"])
            self._emit("session.error", {"sessionID": self.conversation.id, "error": error}, urgent=True)
        cost = meta.get("cost")
        self.transcript.end_turn(float(cost) if isinstance(cost, (int, float)) else 0.0, at_ms)
        trees = self.conversation.trees
        if not trees.on:
            self.conversation.diffs = turn_diff(self.conversation.all_changes, self.conversation.info["directory"])
        trees.on = trees.used_tools = False
        diffs = self.conversation.diffs
        self._set_info(at_ms, summary=undo.totals(diffs))
        self._session_updated()
        self._emit("session.diff", {"sessionID": self.conversation.id, "diff": diffs})
        self._command_executed()
        self._set_status(build.status_idle(), urgent=True)
        self._emit("session.idle", {"sessionID": self.conversation.id}, urgent=True)

    def _error(self, data: ErrorData, at_ms: int) -> None:
        if not self.conversation.busy:
            self.late += 1
            return
        error = build.error_of(data.message, data.code, data.details, self.agent)
        lost = data.code == "agent_exited"
        if data.code != NOT_BEGUN:
            self.transcript.fail(error, at_ms, tool_error=_TURN_ERRORS["agent_exited" if lost else "error"])
        self._emit("session.error", {"sessionID": self.conversation.id, "error": error}, urgent=True)

    # --- items ---------------------------------------------------------------------------------------------

    def _item_started(self, data: ItemData, at_ms: int) -> None:
        item = data.item
        if item.kind is ItemKind.STATUS:
            self._status_item(item, at_ms, only="compaction")
            return
        if item.role is ItemRole.USER:
            return
        if not self._at_work():
            return
        if item.kind is ItemKind.MESSAGE:
            self.transcript.assistant(item, at_ms)
        elif item.kind is ItemKind.TOOL_CALL:
            self.transcript.tool_call(item, at_ms, complete=False)
        elif item.kind is ItemKind.TOOL_RESULT:
            self.transcript.result_started(item)

    def _item_delta(self, data: ItemDeltaData, at_ms: int) -> None:
        if self._at_work():
            self.transcript.delta(data, at_ms)

    def _item_completed(self, data: ItemData, at_ms: int) -> None:
        item = data.item
        if put_imported(self.conversation, self.transcript, item):
            return
        if item.kind is ItemKind.STATUS:
            self._status_item(item, at_ms)
        elif item.kind is ItemKind.MESSAGE and item.role is ItemRole.USER:
            self._user_message(item, at_ms)
        elif not self._at_work():
            return
        elif item.kind is ItemKind.MESSAGE:
            self.transcript.complete(item, at_ms)
        elif item.kind is ItemKind.TOOL_CALL:
            self.transcript.tool_call(item, at_ms, complete=True)
        elif item.kind is ItemKind.TOOL_RESULT:
            self.transcript.result(item, at_ms)

    def _at_work(self) -> bool:
        """Whether a turn runs; ends a retry's wait, since something came."""
        if self.conversation.status["type"] == "retry":
            self._set_status(build.status_busy())
        if not self.conversation.busy:
            self.late += 1
        return self.conversation.busy

    def _user_message(self, item: Item, at_ms: int) -> None:
        message = self.transcript.user(item, at_ms)
        info, model = message.info, message.info["model"]
        session_model = {"id": model["modelID"], "providerID": model["providerID"], "variant": model.get("variant", "default")}
        self._set_info(at_ms, agent=info["agent"], model=session_model)
        self._session_updated()

    def _status_item(self, item: Item, at_ms: int, only: str | None = None) -> None:
        part = next((p for p in item.content if isinstance(p, StatusPart)), None)
        handler = self._STATUS_HANDLERS.get(part.label) if part is not None else None
        if handler is not None and part is not None and only in (None, part.label):
            handler(self, item, at_ms)

    def _retry(self, item: Item, at_ms: int) -> None:
        if self.conversation.busy:
            self._set_status(retry_status(item, at_ms), urgent=True)

    def _todo(self, item: Item, at_ms: int) -> None:
        todos = [
            {
                "content": text(t.get("content")),
                "status": text(t.get("status"), "pending"),
                "priority": text(t.get("priority"), "medium"),
            }
            for t in map(obj, arr(obj(item.metadata).get("todos")))
        ]
        self.conversation.todos = todos
        self._emit("todo.updated", {"sessionID": self.conversation.id, "todos": todos})

    def _mcp(self, item: Item, at_ms: int) -> None:
        self.conversation.mcp[self.agent] = obj(obj(item.metadata).get("servers"))

    def _compaction(self, item: Item, at_ms: int) -> None:
        """The agent compacts its conversation, because it was asked to or by itself. Source: recording `summarize`."""
        if not self._at_work():
            return
        meta = obj(item.metadata)
        phase = text(meta.get("phase"))
        auto = meta["auto"] is True if "auto" in meta else not self.conversation.is_wish_to_compact(self.transcript.parent_id)
        if self.transcript.compaction_id is None and (phase == "started" or auto):
            self.transcript.begin_compaction(at_ms, auto=auto)
        if phase == "failed":
            why = next((p.detail for p in item.content if isinstance(p, StatusPart)), None) or "The compaction failed."
            error = {"name": "UnknownError", "data": {"message": why}}
            self.transcript.end_compaction("", at_ms, error=error)
        elif phase == "completed":
            self.transcript.end_compaction(text(meta.get("summary")), at_ms)
            self._emit("session.compacted", {"sessionID": self.conversation.id})

    def _session_item(self, item: Item, at_ms: int) -> None:
        self._patch_session(obj(item.metadata), at_ms)

    def _moved(self, item: Item, at_ms: int) -> None:
        """The session works in another directory from now on: `directory`, `project_id`, `path` (in the project)."""
        meta, conversation = obj(item.metadata), self.conversation
        place = {key: text(meta.get(name)) for key, name in (("directory",) * 2, ("projectID", "project_id"), ("path",) * 2)}
        conversation.elsewhere = frozenset(conversation.messages)
        conversation.trees, conversation.diffs, conversation.all_changes = Trees(), [], []
        self._set_info(at_ms, **place)
        self._session_updated()

    def _mode(self, item: Item, at_ms: int) -> None:
        mode = text(obj(item.metadata).get("mode"))
        if mode and mode != self.conversation.info.get("agent"):
            self._set_info(at_ms, agent=mode)
            self._session_updated()

    def _prompt(self, item: Item, at_ms: int) -> None:
        """`state`: handed to an agent; cancelled; own (we carry it out ourselves: a shell command).

        `chosen`: {agent, model} that it is handed to, if that is not what it was accepted for.
        """
        meta = obj(item.metadata)
        if meta.get("state") == "handed":
            self.agent = text(meta.get("agent"), self.agent)
            words, carried = text(meta.get("handover")), [text(m) for m in arr(meta.get("carried"))]
            self.transcript.handed(text(meta.get("item_id")), carried, self.agent, words)
            if (message := self.conversation.messages.get(self.transcript.parent_id or "")) is not None and meta.get("chosen"):
                message.info = {**message.info, **obj(meta["chosen"])}
                self._emit("message.updated", {"sessionID": self.conversation.id, "info": message.info})
            if words:
                self._emit("tui.toast.show", {"message": words, "variant": "info", "duration": TOAST_MS})
        elif meta.get("state") == "own":
            self.transcript.handed(text(meta.get("item_id")), [], "")

    def _command(self, item: Item, at_ms: int) -> None:
        """A slash command began this turn; `command.executed` is told at its end."""
        meta = obj(item.metadata)
        self._command_run = {"name": text(meta.get("name")), "arguments": text(meta.get("arguments"))}

    def _command_executed(self) -> None:
        run, self._command_run = self._command_run, None
        last = next((m for m in reversed(self.conversation.messages.values()) if m.info["role"] == "assistant"), None)
        if run is not None and last is not None:
            properties = {"sessionID": self.conversation.id, **run, "messageID": last.info["id"]}
            self._emit("command.executed", properties)

    def _message_removed(self, item: Item, at_ms: int) -> None:
        message_id = text(obj(item.metadata).get("message_id"))
        if self.conversation.messages.pop(message_id, None) is not None:
            self._emit("message.removed", {"sessionID": self.conversation.id, "messageID": message_id})

    def _part_removed(self, item: Item, at_ms: int) -> None:
        meta = obj(item.metadata)
        message_id, part_id = text(meta.get("message_id")), text(meta.get("part_id"))
        message = self.conversation.messages.get(message_id)
        if message is not None and message.parts.pop(part_id, None) is not None:
            self._emit("message.part.removed", {"sessionID": self.conversation.id, "messageID": message_id, "partID": part_id})

    def _part_updated(self, item: Item, at_ms: int) -> None:
        part = obj(obj(item.metadata).get("part"))
        message = self.conversation.messages.get(text(part.get("messageID")))
        if message is not None:
            message.parts[part["id"]] = part
            self._emit("message.part.updated", {"sessionID": self.conversation.id, "part": part, "time": at_ms})

    def _snapshot(self, item: Item, at_ms: int) -> None:
        undo.snapshot(self.conversation, self.transcript, obj(item.metadata), at_ms)

    def _notice(self, item: Item, at_ms: int) -> None:
        """Something that the person should know and no message says."""
        words = next((p.detail for p in item.content if isinstance(p, StatusPart) and p.detail), None)
        if words:
            self._emit("tui.toast.show", {"message": words, "variant": "warning", "duration": TOAST_MS})

    def _revert(self, item: Item, at_ms: int) -> None:
        undo.revert(self.conversation, self._emit, obj(item.metadata))
        self._set_info(at_ms)
        self._session_updated()

    def _child(self, item: Item, at_ms: int) -> None:
        meta = obj(item.metadata)
        self.transcript.child_opened(text(meta.get("call_id")), text(meta.get("session_id")), at_ms)

    # --- permissions and questions -------------------------------------------------------------------------

    def _tool_ref(self, meta: Wire) -> Wire | None:
        state = self.conversation.tools.get(text(meta.get("call_id")))
        return {"messageID": state.message_id, "callID": state.call_id} if state else None

    def _permission_requested(self, data: PermissionData, at_ms: int) -> None:
        meta = obj(data.metadata)
        if not self._at_work() or meta.get("auto"):
            return
        access = primary_access(self.agent, data, self.conversation.info["directory"])
        wire = asks.permission_request(data, self.conversation.id, access, self._tool_ref(meta))
        self.conversation.permissions[data.permission_id] = wire
        self._emit("permission.asked", wire, urgent=True)

    def _permission_resolved(self, data: PermissionData, at_ms: int) -> None:
        wire = self.conversation.permissions.pop(data.permission_id, None)
        if wire is None:
            return
        reply = asks.REPLIES[data.status if data.status != "requested" else "reject"]
        properties = {"sessionID": self.conversation.id, "requestID": data.permission_id, "reply": reply}
        self._emit("permission.replied", properties, urgent=True)
        if reply == "reject":
            self._refused(wire, asks.rejection(text(obj(data.metadata).get("message"))))

    def _question_requested(self, data: QuestionData, at_ms: int) -> None:
        meta = obj(data.metadata)
        if not self._at_work() or meta.get("auto"):
            return
        wire = asks.question_request(data, self.conversation.id, self._tool_ref(meta))
        self.conversation.questions[data.question_id] = wire
        self._emit("question.asked", wire, urgent=True)

    def _question_resolved(self, data: QuestionData, at_ms: int) -> None:
        wire = self.conversation.questions.pop(data.question_id, None)
        if wire is None:
            return
        properties: Wire = {"sessionID": self.conversation.id, "requestID": data.question_id}
        if data.status == "answered":
            answers = [list(a) for a in data.answers] if data.answers is not None else [[data.response or ""]]
            self._emit("question.replied", {**properties, "answers": answers}, urgent=True)
        else:
            self._emit("question.rejected", properties, urgent=True)
            self._refused(wire, asks.DISMISSED)

    def _refused(self, wire: Wire, words: str) -> None:
        """The card of the call that asked will say so in native's words: clients know by them that nothing went wrong."""
        state = self.conversation.tools.get(text(obj(wire.get("tool")).get("callID")))
        if state is not None:
            state.refused = words

    # --- tables --------------------------------------------------------------------------------------------

    _HANDLERS: ClassVar[dict[EventType, Callable[[Any, Any, int], None]]] = {
        EventType.SESSION_STARTED: _session_started,
        EventType.TURN_STARTED: _turn_started,
        EventType.TURN_ENDED: _turn_ended,
        EventType.ITEM_STARTED: _item_started,
        EventType.ITEM_DELTA: _item_delta,
        EventType.ITEM_COMPLETED: _item_completed,
        EventType.ERROR: _error,
        EventType.PERMISSION_REQUESTED: _permission_requested,
        EventType.PERMISSION_RESOLVED: _permission_resolved,
        EventType.QUESTION_REQUESTED: _question_requested,
        EventType.QUESTION_RESOLVED: _question_resolved,
    }
    """Event types without a row (session.ended, agent.unparsed) have no OpenCode event: they show on the universal face."""

    _STATUS_HANDLERS: ClassVar[dict[str, Callable[[Any, Item, int], None]]] = {
        "retry": _retry,
        "todo": _todo,
        "mcp": _mcp,
        "compaction": _compaction,
        "session": _session_item,
        "mode": _mode,
        "moved": _moved,
        "prompt": _prompt,
        "command": _command,
        "message.removed": _message_removed,
        "part.removed": _part_removed,
        "part.updated": _part_updated,
        "child": _child,
        "snapshot": _snapshot,
        "revert": _revert,
        "notice": _notice,
    }
    """Status items without a row ("title", "model", "commands") say nothing that a client shows."""
