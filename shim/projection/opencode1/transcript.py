"""Messages and parts of one session, from universal items. Pure; owner of part order and of message endings.

One assistant message per model step, as native has it: `step-start`, text, reasoning and tools, `step-finish`.
A step ends when its message is complete *and* all its tools have results, whichever comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shim.ids import IdSequence, hashed_tail, render
from shim.opencode import build
from shim.opencode.build import Wire
from shim.opencode.events import OpenCodeEvent
from shim.projection.diffs import FileChange, turn_diff
from shim.projection.opencode1 import tools
from shim.projection.opencode1.asks import ABORTED
from shim.projection.opencode1.parts import assistant_info, compaction_item, failed_state, model_of, nothing, parts_of, url_of
from shim.projection.opencode1.state import HANDOVER, Conversation, Message, ToolState
from universal.events import ItemDeltaData
from universal.items import FileRefPart, Item, ItemStatus, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from universal.jsonvalue import arr, obj, text, whole

COST_ROUNDING = 1e-9
"""USD. Smaller differences between a turn's cost and its steps' are floating point."""

Emit = Callable[..., None]
"""emit(type, properties, *, urgent=False, legacy=None)"""


class Transcript:
    """The part of the projector that owns messages. `agent` names the tool table; ids depend on the journal alone."""

    def __init__(self, conversation: Conversation, agent: str, emit: Emit) -> None:
        self.conversation = conversation
        self.agent = agent
        self.emit = emit
        self._ids = IdSequence()
        self._by_item: dict[str, str] = {}
        self._call_of_item: dict[str, str] = {}
        self._user_of_item: dict[str, str] = {}
        self._changes: list[FileChange] = []
        self._note = ""
        self.parent_id: str | None = None
        self.open_id: str | None = None
        self.compaction_id: str | None = None
        """The message of a compaction that goes on."""
        self.turn_messages: list[str] = []
        self.awaiting: list[str] = []
        """Messages whose step is over but for the snapshot of what their tools changed."""

    # --- ids and emission --------------------------------------------------------------------------------

    def _id(self, prefix: str, at_ms: int) -> str:
        value = self._ids.next(at_ms)
        return render(prefix, value, hashed_tail(f"{self.conversation.id}:{prefix}:{value}"))

    def _message_updated(self, message: Message) -> None:
        self.emit("message.updated", {"sessionID": self.conversation.id, "info": message.info})

    def _put(self, message: Message, part: Wire, at_ms: int, *, legacy: Callable[[], OpenCodeEvent | None] | None = None) -> None:
        message.parts[part["id"]] = part
        properties = {"sessionID": self.conversation.id, "part": part, "time": at_ms}
        self.emit("message.part.updated", properties, legacy=legacy)

    def _part(self, message: Message, prefix: str, at_ms: int, **fields: Any) -> Wire:
        return {"id": self._id(prefix, at_ms), "sessionID": self.conversation.id, "messageID": message.info["id"], **fields}

    def _say(self, message: Message, words: str, at_ms: int, **more: object) -> None:
        part = self._part(message, "prt", at_ms, type="text", text=words, time={"start": at_ms, "end": at_ms}, **more)
        self._put(message, part, at_ms)

    # --- user messages -----------------------------------------------------------------------------------

    def user(self, item: Item, at_ms: int) -> Message:
        """A prompt. `metadata.opencode` holds what the client sent: message_id, parts, agent, model, ..."""
        given = obj(obj(item.metadata).get("opencode"))
        session = self.conversation.info
        message_id = text(given.get("message_id"))
        if message_id:
            self._ids.saw(message_id, at_ms)
        else:
            message_id = self._id("msg", at_ms)
        model = obj(given.get("model")) or model_of(self.conversation.info, self.agent)
        info: Wire = {
            "id": message_id,
            "sessionID": session["id"],
            "role": "user",
            "time": {"created": at_ms},
            "agent": text(given.get("agent"), session.get("agent") or "build"),
            "model": model,
        }
        info.update({key: given[key] for key in ("system", "tools", "format") if given.get(key) is not None})
        message = Message(info, done=True, finished=True)
        self.conversation.add(message)
        self._user_of_item[item.item_id] = message_id
        self._message_updated(message)
        for part in arr(given.get("parts")) or parts_of(item):
            wire = {k: v for k, v in part.items() if v is not None}
            if wire.get("id"):
                self._ids.saw(wire["id"], at_ms)
            else:
                wire["id"] = self._id("prt", at_ms)
            self._put(message, {**wire, "sessionID": session["id"], "messageID": message_id}, at_ms)
        return message

    def show(self, message: Message) -> None:
        """A message that was made elsewhere, whole: told as it is, and what comes later sorts after it."""
        created = whole(message.info["time"]["created"])
        for id_ in (message.info["id"], *message.parts):
            self._ids.saw(id_, created)
        self._message_updated(message)
        for part in message.parts.values():
            self._put(message, part, created)

    def message_of_item(self, item_id: str) -> str:
        """The id of the user message that this item became; empty if it is not one."""
        return self._user_of_item.get(item_id, "")

    def handed(self, item_id: str, carried: list[str], agent: str, note: str = "") -> None:
        """The prompt of this item is being answered now; `carried` messages went along, `note` tells of it above the answer."""
        self.summarise()
        self._note = note
        self.parent_id = self._user_of_item.get(item_id, self.parent_id)
        for message_id in (*carried, self.parent_id):
            if message_id in self.conversation.messages:
                self.conversation.messages[message_id].known.add(agent)

    def summarise(self, diffs: list[Wire] | None = None) -> None:
        """The user message that is being answered gets the changes of its answer; without `diffs`, what tools have told."""
        message = self.conversation.messages.get(self.parent_id or "")
        changes, self._changes = self._changes, []
        if message is None or "summary" in message.info:
            return
        self.conversation.all_changes.extend(changes)
        diffs = turn_diff(changes, self.conversation.info["directory"]) if diffs is None else diffs
        message.info = {**message.info, "summary": {"diffs": diffs}}
        self._message_updated(message)

    # --- assistant messages ------------------------------------------------------------------------------

    def assistant(self, item: Item, at_ms: int) -> Message:
        """The message of this item, made (with its step-start) if it is new."""
        known = self.conversation.messages.get(self._by_item.get(item.item_id, ""))
        if known is not None:
            return known
        compaction = self.conversation.messages.get(self.compaction_id or "")
        if compaction is not None and not compaction.finished:  # what is said in it is the summary
            self._by_item[item.item_id] = compaction.info["id"]
            return compaction
        return self._new_assistant(at_ms, item)

    def begin_compaction(self, at_ms: int, *, auto: bool) -> None:
        """The agent compacts: a message for the summary, below a user message that says so (there already if a person asked)."""
        parent = self.parent_id
        if auto:
            part = {"type": "compaction", "auto": True}
            made = self.user(compaction_item(self.conversation.id, self._ids.next(at_ms), part), at_ms)
            made.known.add(self.agent)
            self.parent_id = made.info["id"]
        self.compaction_id = self._new_assistant(at_ms, None, compaction=True).info["id"]
        self.parent_id = parent

    def end_compaction(self, summary: str, at_ms: int, *, error: Wire | None = None) -> None:
        """The summary is there, as text of its own or said in the message; or it failed."""
        message = self.conversation.messages.get(self.compaction_id or "")
        self.compaction_id = None
        if message is None or message.finished:
            return
        if summary and not any(p["type"] == "text" for p in message.parts.values()):
            self._say(message, summary, at_ms)
        self._finish(message, at_ms, step=error is None, error=error)

    def _new_assistant(self, at_ms: int, item: Item | None, *, compaction: bool = False) -> Message:
        self.close_step(at_ms)
        session = self.conversation.info
        parent = self.parent_id or self.conversation.last_user()
        user = self.conversation.messages.get(parent or "")
        model = obj(user.info["model"]) if user else model_of(self.conversation.info, self.agent)
        meta = obj(item.metadata) if item else {}
        agent = "compaction" if compaction else user.info["agent"] if user else session.get("agent") or "build"
        extra = {"summary": True} if compaction else {}
        made = self._id("msg", at_ms)
        info = assistant_info(session, made, parent or self._id("msg", at_ms), model, agent, at_ms, **extra)
        message = Message(info)
        if meta.get("origin") != "shell":
            message.known.add(self.agent)
        self.conversation.add(message)
        self.turn_messages.append(info["id"])
        self.open_id = info["id"]
        if item is not None:
            self._by_item[item.item_id] = info["id"]
        self._message_updated(message)
        if (item is not None and meta.get("origin") != "shell") or compaction:
            self._put(message, self._part(message, "prt", at_ms, type="step-start", **self._tree()), at_ms)
        if self._note and not compaction:
            self._say(message, f"*{self._note}*", at_ms, synthetic=True, metadata=HANDOVER)
            self._note = ""
        return message

    def delta(self, data: ItemDeltaData, at_ms: int) -> None:
        """A piece of text, reasoning or tool output."""
        if data.part_type == "tool_output":
            self._tool_output(data, at_ms)
            return
        message = self.conversation.messages.get(self._by_item.get(data.item_id, ""))
        if data.part_type == "tool_input" or message is None or message.done:
            return
        part_id = message.text_parts.get(data.part_index)
        if part_id is None:
            part = self._part(message, "prt", at_ms, type=data.part_type, text="", time={"start": at_ms})
            part_id = message.text_parts[data.part_index] = part["id"]
            message.streaming[part_id] = []
            self._put(message, part, at_ms, legacy=nothing)
        if part_id not in message.streaming:
            return
        message.streaming[part_id].append(data.delta)
        message_id = message.info["id"]
        properties = {
            "sessionID": self.conversation.id,
            "messageID": message_id,
            "partID": part_id,
            "field": "text",
            "delta": data.delta,
        }

        def legacy() -> OpenCodeEvent:
            part = {"part": message.part(part_id), "delta": data.delta}
            return OpenCodeEvent("message.part.updated", {"sessionID": self.conversation.id, **part})

        self.emit("message.part.delta", properties, legacy=legacy)

    def complete(self, item: Item, at_ms: int) -> None:
        """An assistant message is complete: final texts, usage; its step ends when its tools have."""
        message = self.assistant(item, at_ms)
        if message.done:
            return
        for index, part in enumerate(p for p in item.content if isinstance(p, (TextPart, ReasoningPart))):
            self._final_text(message, index, part, at_ms)
        self._end_texts(message, at_ms)
        meta = obj(item.metadata)
        message.done = True
        message.finish = text(meta.get("finish")) or None
        message.info = {**message.info, "tokens": build.tokens(obj(meta.get("usage"))), "cost": meta.get("cost") or 0}
        own = meta.get("origin") == "shell"  # a command of the person's is no step of a model
        if own or (item.status is ItemStatus.FAILED and not message.open_tools):
            self._finish(message, at_ms, step=False)
        else:
            self._finish_if_over(message, at_ms)

    def _final_text(self, message: Message, index: int, part: TextPart | ReasoningPart, at_ms: int) -> None:
        part_id = message.text_parts.get(index)
        if part_id is None and not part.text:
            return
        if part_id is None:
            kind = "text" if isinstance(part, TextPart) else "reasoning"
            made = self._part(message, "prt", at_ms, type=kind, text="", time={"start": at_ms})
            part_id = message.text_parts[index] = made["id"]
            message.parts[part_id] = made
        if part_id in message.streaming:
            message.streaming[part_id] = [part.text]
        start = message.parts[part_id]["time"]["start"]
        message.streaming.pop(part_id, None)
        self._put(message, {**message.parts[part_id], "text": part.text, "time": {"start": start, "end": at_ms}}, at_ms)

    def _end_texts(self, message: Message, at_ms: int) -> None:
        for part_id in list(message.streaming):
            part = message.part(part_id)
            del message.streaming[part_id]
            self._put(message, {**part, "time": {**part["time"], "end": at_ms}}, at_ms)

    def _finish_if_over(self, message: Message, at_ms: int) -> None:
        if not message.done or message.open_tools or message.finished:
            return
        if not (message.had_tools and self.conversation.trees.on):
            self._finish(message, at_ms, step=True)
        elif message.info["id"] not in self.awaiting:
            self.awaiting.append(message.info["id"])
            self.open_id = None if self.open_id == message.info["id"] else self.open_id

    def _tree(self) -> Wire:
        """The newest snapshot, as a field of step parts."""
        trees = self.conversation.trees
        return {"snapshot": trees.last} if trees.on and trees.last else {}

    def snapshot_taken(self, patch: Wire | None, at_ms: int) -> None:
        """`trees.last` is new: steps that waited for it end. `patch`: what was changed since the one before."""
        waiting = [m for id_ in self.awaiting if (m := self.conversation.messages.get(id_)) and not m.open_tools]
        self.awaiting = [id_ for id_ in self.awaiting if self.conversation.messages[id_].open_tools]
        for message in waiting:
            last = message is waiting[-1]
            if not message.finished:
                self._finish(message, at_ms, step=True, patch=patch if last else None)
                patch = None if last else patch
        turn = [m for id_ in self.turn_messages if (m := self.conversation.messages.get(id_))]
        if patch is not None and turn:
            at = next((m for m in reversed(turn) if m.had_tools), turn[-1])
            self._put(at, self._part(at, "prt", at_ms, **patch), at_ms)
        if (current := self.conversation.messages.get(self.open_id or "")) is not None:
            first = next(iter(current.parts.values()), {"type": ""})
            if first["type"] == "step-start" and first.get("snapshot") != self._tree().get("snapshot"):
                self._put(current, {**first, **self._tree()}, at_ms)

    def _settle(self, at_ms: int) -> None:
        """Steps that still wait for a snapshot end without it."""
        waiting, self.awaiting = self.awaiting, []
        for message in [m for id_ in waiting if (m := self.conversation.messages.get(id_)) and not m.finished]:
            self._finish(message, at_ms, step=True, tree=None)

    def _finish(self, message: Message, at_ms: int, *, step: bool, error: Wire | None = None, **snapshot: Wire | None) -> None:
        """`snapshot`: `tree` (default the newest one) as a field of step-finish, `patch` a part."""
        self._end_texts(message, at_ms)
        reason = message.finish or ("tool-calls" if message.had_tools else "stop")
        info = {**message.info, "time": {**message.info["time"], "completed": at_ms}}
        if error is not None:
            info["error"] = error
        elif step:
            counts = {"cost": info["cost"], "tokens": info["tokens"]}
            counts |= snapshot.get("tree", self._tree()) or {}
            self._put(message, self._part(message, "prt", at_ms, type="step-finish", reason=reason, **counts), at_ms)
            info["finish"] = reason
        if (patch := snapshot.get("patch")) is not None:
            self._put(message, self._part(message, "prt", at_ms, **patch), at_ms)
        message.info = info
        message.done = message.finished = True
        if self.open_id == info["id"]:
            self.open_id = None
        self._message_updated(message)

    def close_step(self, at_ms: int) -> None:
        """The model goes on with another message: the step of the last one ends now, but not its calls (a subagent's)."""
        self._settle(at_ms)
        message = self.conversation.messages.get(self.open_id or "")
        if message is not None and not message.finished:
            self._finish(message, at_ms, step=True)

    def _fail_open_tools(self, error: str, at_ms: int, *, interrupted: bool = False) -> None:
        """Calls of this turn that have no result will have none."""
        for message in [m for id_ in self.turn_messages if (m := self.conversation.messages.get(id_))]:
            for call_id in sorted(message.open_tools):
                self._fail_tool(self.conversation.tools[call_id], error, at_ms, interrupted=interrupted)
            message.open_tools.clear()

    # --- tools ---------------------------------------------------------------------------------------------

    def tool_call(self, item: Item, at_ms: int, *, complete: bool) -> None:
        """A tool call is seen (pending) or its arguments are complete (running)."""
        call = next((p for p in item.content if isinstance(p, ToolCallPart)), None)
        if call is None:
            return
        state = self.conversation.tools.get(call.call_id)
        if state is None:
            message = self._message_of(item, at_ms)
            part = self._part(message, "prt", at_ms, type="tool", tool=tools.view_call(self.agent, call.name, {}, []).tool)
            part |= {"callID": call.call_id, "state": {"status": "pending", "input": {}, "raw": ""}}
            view = tools.ToolView(part["tool"], {})
            state = ToolState(message.info["id"], part["id"], call.call_id, call.name, view)
            self.conversation.tools[call.call_id] = state
            message.open_tools.add(call.call_id)
            message.had_tools = self.conversation.trees.used_tools = True
            self._put(message, part, at_ms)
        if complete and state.status == "pending":
            state.view = tools.view_call(self.agent, call.name, tools.arguments_of(call.arguments), self.conversation.todos)
            state.status, state.started_ms = "running", at_ms
            self._running(state, at_ms)
            if state.view.tool == "plan_exit" and state.view.input.get("plan"):
                message = self.conversation.messages[state.message_id]
                self._say(message, str(state.view.input["plan"]), at_ms)

    def _message_of(self, item: Item, at_ms: int) -> Message:
        parent = self.conversation.messages.get(self._by_item.get(item.parent_id or "", ""))
        if parent is not None and not parent.finished:
            return parent
        current = self.conversation.messages.get(self.open_id or "")
        return current if current is not None else self._new_assistant(at_ms, None)

    def _context(self, state: ToolState) -> tools.ToolContext:
        info = self.conversation.messages[state.message_id].info
        return tools.ToolContext(
            self.conversation.info["directory"], self.agent, self.conversation.id, state.child_session_id, info
        )

    def _state_part(self, state: ToolState, wire_state: Wire, at_ms: int) -> None:
        message = self.conversation.messages[state.message_id]
        self._put(message, {**message.parts[state.part_id], "tool": state.view.tool, "state": wire_state}, at_ms)

    def _running(self, state: ToolState, at_ms: int, metadata: Wire | None = None) -> None:
        title, native = tools.running_metadata(state.view, self._context(state))
        wire: Wire = {"status": "running", "input": state.view.input, "time": {"start": state.started_ms}}
        if title is not None:
            wire["title"] = title
        if metadata or native:
            wire["metadata"] = {**(native or {}), **(metadata or {})}
        self._state_part(state, wire, at_ms)

    def child_opened(self, call_id: str, child_session_id: str, at_ms: int) -> None:
        """A subagent's session exists now: its tool card can be opened."""
        if (state := self.conversation.tools.get(call_id)) is not None:
            state.child_session_id = child_session_id
            if state.status == "running":
                self._running(state, at_ms)

    def result_started(self, item: Item) -> None:
        """A tool begins to give output."""
        result = next((p for p in item.content if isinstance(p, ToolResultPart)), None)
        if result is not None:
            self._call_of_item[item.item_id] = result.call_id

    def _tool_output(self, data: ItemDeltaData, at_ms: int) -> None:
        state = self.conversation.tools.get(self._call_of_item.get(data.item_id, ""))
        if state is not None and state.status == "running":
            state.wrote(data.delta)
            self._running(state, at_ms, {"output": state.output})

    def result(self, item: Item, at_ms: int) -> None:
        """A tool has ended, well or not."""
        result = next((p for p in item.content if isinstance(p, ToolResultPart)), None)
        state = self.conversation.tools.get(result.call_id) if result is not None else None
        if result is None or state is None or state.status == "ended":
            return
        message = self.conversation.messages[state.message_id]
        meta = obj(item.metadata)
        interrupted = meta.get("interrupted") is True
        failed_shell = state.view.tool == "bash" and isinstance(meta.get("exit_code"), int)
        if item.status is ItemStatus.FAILED and not failed_shell:
            error = ABORTED if interrupted else state.refused or tools.failure(result.output, self.conversation.id)
            self._fail_tool(state, error, at_ms, interrupted=interrupted)
        else:
            self._complete_tool(state, item, at_ms)
        message.open_tools.discard(state.call_id)
        self._finish_if_over(message, at_ms)

    def _complete_tool(self, state: ToolState, item: Item, at_ms: int) -> None:
        for part in item.content:
            if isinstance(part, FileRefPart) and part.action != "read":
                self._changes.append(FileChange(part.path, part.diff or "", part.action == "write"))
                self.emit("file.edited", {"file": part.path})
        if tools.says_changes(self.agent, state.native_name):
            state.view = tools.ToolView("todowrite", {"todos": list(self.conversation.todos)})
        view = tools.view_result(state.view, item, self._context(state))
        start = state.started_ms or at_ms
        wire: Wire = {
            "status": "completed",
            "input": state.view.input,
            "output": view.output,
            "title": view.title,
            "metadata": view.metadata,
            "time": {"start": start, "end": at_ms},
        }
        if view.attachments:
            message = self.conversation.messages[state.message_id]
            wire["attachments"] = [
                self._part(message, "prt", at_ms, type="file", mime=a.mime or "image/png", url=url_of(a))
                for a in view.attachments
            ]
        state.status = "ended"
        self._state_part(state, wire, at_ms)

    def _fail_tool(self, state: ToolState, error: str, at_ms: int, *, interrupted: bool = False) -> None:
        wire = failed_state(state, error, at_ms, interrupted=interrupted)
        state.status = "ended"
        self._state_part(state, wire, at_ms)

    # --- the end of a turn ---------------------------------------------------------------------------------

    def fail(self, error: Wire, at_ms: int, *, tool_error: str) -> None:
        """The prompt being answered has failed: its message says so, whatever it was doing."""
        if self.open_id is None:
            self._settle(at_ms)
        message = self.conversation.messages.get(self.open_id or "")
        if message is None and self.turn_messages:
            message = self.conversation.messages.get(self.turn_messages[-1])
            if message is not None and {"summary", "error"} <= message.info.keys():
                return  # a compaction that said so itself
            if message is not None and (message.info["parentID"] != self.parent_id or {"summary", "error"} & message.info.keys()):
                message = None
        if message is None:
            message = self._new_assistant(at_ms, None)
        self._fail_open_tools(tool_error, at_ms, interrupted=True)
        self._finish(message, at_ms, step=False, error=error)

    def end_turn(self, turn_cost: float, at_ms: int) -> None:
        """Everything of the turn that is still open ends now; what no step has paid of `turn_cost` goes to the last message."""
        self._fail_open_tools("The agent went on without a result for this tool call.", at_ms)
        self.close_step(at_ms)
        messages = [self.conversation.messages[m] for m in self.turn_messages if m in self.conversation.messages]
        unpaid = turn_cost - sum(m.info["cost"] for m in messages)
        if messages and unpaid > COST_ROUNDING:
            messages[-1].info = {**messages[-1].info, "cost": messages[-1].info["cost"] + unpaid}
            self._message_updated(messages[-1])
        self.summarise()
        session = self.conversation.info
        totals = session["tokens"]
        for message in messages:
            totals = build.add_tokens(totals, message.info["tokens"])
        cost = session["cost"] + sum(m.info["cost"] for m in messages)
        self.conversation.info = {**session, "tokens": totals, "cost": cost}
        self.turn_messages = []
        self.parent_id = self.compaction_id = None
