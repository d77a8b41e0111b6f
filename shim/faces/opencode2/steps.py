"""Assistant messages on the OpenCode 2 face: one for each step of the model. Pure.

Native ends a thought when the model goes on with something else, and a text when its tools begin to work. Here both grow until
their message is complete; so what is open ends before that which shows it (`settle`), and if more of it comes after all, its
whole text is told once more, in the end.

Owner of: `step.started` before what belongs to it; `text.started`, deltas, `text.ended` always; tools: `input.started`, deltas,
`input.ended`, `called`, progress, `success` or `failed`; ordinals, which count for each kind; in GET, a text is "" until it ends.

In: changes of the core's messages and parts, in its order. Out: events, told by the `Teller`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from shim.faces.opencode2 import names, results
from shim.faces.opencode2.events import Wire
from shim.faces.opencode2.session_info import added, counts
from shim.faces.opencode2.state import Conversation2
from shim.faces.opencode2.teller import Teller, message_id
from universal.diffs import relative
from universal.jsonvalue import obj, text
from universal.session.changes import TextGrew
from universal.session.model import (
    Message,
    ModelRef,
    Part,
    Patch,
    Reasoning,
    Session,
    Status,
    StepFinish,
    StepInfo,
    Text,
    ToolCall,
    Usage,
)
from universal.session.reducer import DISMISSED, rejection

Kind: TypeAlias = Literal["text", "reasoning"]
REFUSALS = (rejection(""), DISMISSED)
"""Words of calls that a person refused, and said no more; who says why is heard by the model, as of any error."""
NO_MODEL = ModelRef("", "")


@dataclass(slots=True)
class Step:
    """One message. `places`: part of the core -> (kind, ordinal, index in `content`); `calls`: call -> index in `content`."""

    id: str
    wire: Wire
    content: list[Wire] = field(default_factory=list[Wire])
    places: dict[str, tuple[Kind, int, int]] = field(default_factory=dict[str, tuple[Kind, int, int]])
    counts: dict[Kind, int] = field(default_factory=lambda: {"text": 0, "reasoning": 0})
    ended: set[str] = field(default_factory=set[str])
    calls: dict[str, int] = field(default_factory=dict[str, int])
    streamed: bool = False
    over: bool = False


class Steps:
    """The steps of one session. `names` has the ids of messages that are called otherwise than in the core."""

    def __init__(self, conversation: Conversation2, teller: Teller, session: Session) -> None:
        self._conversation = conversation
        self._session = session
        self._teller = teller
        self._steps: dict[str, Step] = {}
        self._called: dict[str, str] = {}
        self._promised: Step | None = None
        self._held: dict[str, tuple[StepInfo, Message | None]] = {}
        """Open steps whose message is over, by their id of the core: why it is will be told."""
        self.open: dict[str, Step] = {}
        """Those that have not ended, by their id of the core."""
        self.names: dict[str, str] = {}

    def knows(self, core_id: str) -> bool:
        """Whether this message of the core is a step."""
        return core_id in self._steps

    def wire_id(self, core_id: str) -> str:
        """The id that a message of the core has here."""
        return self.names.get(core_id, core_id)

    def show(self, step: Step) -> None:
        """The message as it is now."""
        self._conversation.messages[step.id] = {**step.wire, "content": list(step.content)}

    # --- the message ---------------------------------------------------------------------------------------

    def begin(self, info: StepInfo, snapshot: str | None, *, since: int | None = None) -> None:
        """A message begins. One that a retry has promised keeps the promised id.

        `since`: when the model was asked, for a message that exists only to carry an error. Without it such a step would
        last 0 ms, and clients would show no duration for the turn.
        """
        self.release()
        promised, self._promised = self._promised, None
        at = self._teller.at if since is None or promised is not None else since
        step = promised or self._make(info.id, text(info.extra.get("agent")) or info.mode or "build", info.model, at)
        self.names |= {info.id: step.id} if step.id != info.id else {}
        self._steps[info.id] = self.open[info.id] = step
        if snapshot:
            step.wire = {**step.wire, "snapshot": {"start": snapshot}}
        self._start(step, at)

    def _make(self, id_: str, mode: str, model: ModelRef, at: int) -> Step:
        wire: Wire = {"id": id_, "time": {"created": at}, "type": "assistant", "agent": mode, "model": names.model_ref(model)}
        return Step(id_, wire)

    def _start(self, step: Step, at: int) -> None:
        """Opens the message, or opens it again after a retry; `at` is when the model was asked."""
        step.wire = {key: value for key, value in step.wire.items() if key != "retry"}
        start = obj(step.wire.get("snapshot")).get("start")
        data: Wire = {"assistantMessageID": step.id, "agent": step.wire["agent"], "model": step.wire["model"]}
        data |= {"snapshot": start} if start else {}
        self._teller.tell("session.step.started", {**data, "started": at}, created=at)
        self._adopt(step)
        self.show(step)

    def _adopt(self, step: Step) -> None:
        """A session of which nobody has chosen agent and model has those of its first step."""
        info = self._conversation.info
        self._conversation.info = {"agent": step.wire["agent"], "model": step.wire["model"], **info}

    def streamed(self, core_id: str) -> None:
        """The model has said all of this step; its tools may go on."""
        step = self.open.get(core_id)
        if step is not None and not step.streamed:
            step.streamed = True
            self._teller.tell("session.step.streamed", {"assistantMessageID": step.id})
            step.wire = {**step.wire, "time": {**step.wire["time"], "streamed": self._teller.at}}
            self.show(step)

    def finish(self, info: StepInfo, message: Message | None) -> None:
        """The step is over. `message` has its snapshot and what was changed.

        Agents may close a message before they say that it has failed or was interrupted; native says that alone. So the end of
        one that was broken off is told with what comes next (`release`).
        """
        if info.id not in self.open:
            self._fail_late(self._steps.get(info.id), info)
        elif info.error is not None or not _broken_off(info, message):
            self._finish(info, message)
        else:
            self._held[info.id] = (info, message)

    def release(self) -> None:
        """The turn goes on, or ends: steps that were broken off have ended, and did not fail."""
        held, self._held = self._held, {}
        for info, message in held.values():
            self._finish(info, message)

    def _finish(self, info: StepInfo, message: Message | None) -> None:
        self._held.pop(info.id, None)
        step = self.open.pop(info.id, None)
        if step is None:
            return
        used, cost = info.usage, info.cost or 0
        tokens = counts(used)
        if info.error is not None:
            is_paid = any((cost, used.input, used.output, used.reasoning, used.cache_read, used.cache_write))
            self._fail(step, names.error(info.error), {"cost": cost, "tokens": tokens} if is_paid else {})
            if is_paid:
                self.spend(used, cost)
            return
        if not step.streamed:
            step.streamed = True
            self._teller.tell("session.step.streamed", {"assistantMessageID": step.id})
            step.wire = {**step.wire, "time": {**step.wire["time"], "streamed": self._teller.at}}
        told = {**names.finish("stop" if info.finish is None else info.finish), "cost": cost, "tokens": tokens}
        ends = self._snapshot(message)
        self._teller.tell("session.step.ended", {"assistantMessageID": step.id, **told, **ends})
        snapshot = {**obj(step.wire.get("snapshot")), **({"end": ends["snapshot"], "files": ends["files"]} if ends else {})}
        self._close(step, {**told, **({"snapshot": snapshot} if snapshot else {})})
        self.spend(used, cost)

    def _snapshot(self, message: Message | None) -> Wire:
        parts = list(message.parts.values()) if message is not None else []
        end = next((p.snapshot for p in parts if isinstance(p, StepFinish) and p.snapshot), None)
        if end is None:
            return {}
        directory = self._conversation.info["location"]["directory"]
        files = [relative(name, directory) for p in parts if isinstance(p, Patch) for name in p.files]
        return {"snapshot": end, "files": list(dict.fromkeys(files))}

    def _fail(self, step: Step, error: Wire, spent: Wire) -> None:
        self._teller.tell("session.step.failed", {"assistantMessageID": step.id, "error": error, **spent})
        self._close(step, {"finish": "error", "error": error, **spent})

    def _fail_late(self, step: Step | None, info: StepInfo) -> None:
        """Agents may close their message before they say that it has failed, or was interrupted."""
        if step is not None and info.error is not None and "error" not in step.wire:
            self._fail(step, names.error(info.error), {})

    def _close(self, step: Step, told: Wire) -> None:
        step.over = True
        kept = {key: value for key, value in step.wire.items() if key != "retry"}
        step.wire = {**kept, **told, "time": {**step.wire["time"], "completed": self._teller.at}}
        self.show(step)

    def spend(self, used: Usage, cost: float) -> None:
        """Add to the session's totals, and tell them."""
        info = self._conversation.info
        self.total(added(info["tokens"], counts(used)), info["cost"] + cost)

    def total(self, tokens: Wire, cost: float) -> None:
        """The session's totals."""
        self._conversation.info = {**self._conversation.info, "tokens": tokens, "cost": cost}
        self._teller.tell("session.usage.updated", {"cost": cost, "tokens": tokens})

    # --- retries -------------------------------------------------------------------------------------------

    def retry(self, open_id: str | None, status: Status, mode: str, model: ModelRef | None) -> None:
        """The model is asked again later. Without an open step, one is opened, which the next message will be.

        All attempts count here; `status` counts those after the first one. The attempt that failed was made.
        """
        self.release()
        step = self.open.get(open_id or "") or self._promised
        if step is None:
            step = self._promised = self._promise(mode, model or NO_MODEL)
        error = {"type": "provider.internal", "message": status.message}
        told = {"attempt": status.attempt + 1, "at": status.next_ms, "error": error}
        if "retry" in step.wire and step.wire["retry"]["attempt"] < told["attempt"]:
            self._start(step, self._teller.at)
        self._teller.tell("session.retry.scheduled", {"assistantMessageID": step.id, **told})
        step.wire = {**step.wire, "retry": told}
        self.show(step)

    def _promise(self, mode: str, model: ModelRef) -> Step:
        step = self._make("", mode, model, self._teller.at)
        data: Wire = {"agent": step.wire["agent"], "model": step.wire["model"], "started": self._teller.at}
        event = self._teller.tell("session.step.started", data)
        step.id = message_id(event)
        event.data["assistantMessageID"] = step.id
        step.wire = {**step.wire, "id": step.id}
        self._adopt(step)
        return step

    def again(self) -> None:
        """The wait is over: an open step goes on."""
        for step in self.open.values():
            if "retry" in step.wire:
                self._start(step, self._teller.at)

    def give_up(self, *, interrupted: bool) -> None:
        """The turn ends: a step that was promised never came."""
        step, self._promised = self._promised, None
        if step is not None:
            error = {"type": "aborted", "message": names.STEP_INTERRUPTED}
            self._fail(step, error if interrupted else obj(obj(step.wire.get("retry")).get("error")), {})

    # --- texts ---------------------------------------------------------------------------------------------

    def delta(self, change: TextGrew) -> None:
        """A piece of text."""
        step = self._steps.get(change.message_id)
        place = step.places.get(change.part_id) if step is not None else None
        if step is not None and place is not None and change.part_id not in step.ended:
            data = {"assistantMessageID": step.id, "ordinal": place[1], "delta": change.delta}
            self._teller.tell(f"session.{place[0]}.delta", data)

    def settle(self, core_id: str, *, only: Kind | None = None) -> None:
        """Texts of a message that grow are as they are now: the model has gone on."""
        step, message = self._steps.get(core_id), self._session.messages.get(core_id)
        if step is None or message is None:
            return
        growing = [(part_id, place) for part_id, place in step.places.items() if part_id not in step.ended]
        for part_id, place in growing:
            if only in (None, place[0]):
                part = message.part(part_id)
                assert isinstance(part, (Text, Reasoning))
                self._end(step, part_id, place, part.text)
                self.show(step)

    def part(self, core_id: str, part: Part) -> None:
        """A part of this message is new, or has changed."""
        step = self._steps.get(core_id)
        if step is None:
            return
        if isinstance(part, (Text, Reasoning)):
            self._text(step, core_id, part)
        elif isinstance(part, ToolCall):
            self._tool(step, core_id, part)

    def _text(self, step: Step, core_id: str, part: Text | Reasoning) -> None:
        kind: Kind = "text" if isinstance(part, Text) else "reasoning"
        place = step.places.get(part.id)
        if place is None:
            self.settle(core_id, only="reasoning")
            place = step.places[part.id] = (kind, step.counts[kind], len(step.content))
            step.counts[kind] += 1
            begun = {"time": {"created": self._teller.at}} if kind == "reasoning" else {}
            step.content.append({"type": kind, "text": "", **begun})
            self._teller.tell(f"session.{kind}.started", {"assistantMessageID": step.id, "ordinal": place[1]})
        said = step.content[place[2]]
        is_growing = part.start_ms is not None and part.end_ms is None
        if not is_growing and not (part.id in step.ended and said["text"] == part.text):
            self._end(step, part.id, place, part.text)
        self.show(step)

    def _end(self, step: Step, part_id: str, place: tuple[Kind, int, int], words: str) -> None:
        kind, ordinal, at = place
        said = step.content[at]
        step.ended.add(part_id)
        done = {"time": {**said["time"], "completed": self._teller.at}} if kind == "reasoning" else {}
        step.content[at] = {**said, "text": words, **done}
        data = {"assistantMessageID": step.id, "ordinal": ordinal, "text": words}
        self._teller.tell(f"session.{kind}.ended", data)

    # --- tools ---------------------------------------------------------------------------------------------

    def input_delta(self, call_id: str, delta: str) -> None:
        """A piece of a call's arguments, in the agent's own words."""
        step = self._steps.get(self._called.get(call_id, ""))
        if step is not None and step.content[step.calls[call_id]]["state"]["status"] == "streaming":
            data = {"assistantMessageID": step.id, "id": call_id, "delta": delta}
            self._teller.tell("session.tool.input.delta", data)

    def _tool(self, step: Step, core_id: str, call: ToolCall) -> None:
        call_id = call.call_id
        if call_id not in step.calls:
            self.settle(core_id, only="reasoning")
            step.calls[call_id] = len(step.content)
            self._called[call_id] = core_id
            name = names.tool_name(call.tool)
            begun: Wire = {"type": "tool", "id": call_id, "name": name, "executed": False}
            streaming = {"status": "streaming", "input": ""}
            step.content.append({**begun, "state": streaming, "time": {"created": self._teller.at}})
            self._tell(step, "input.started", call_id, name=name)
        if call.status != "pending" and self._now(step, call_id)["status"] == "streaming":
            self._call(step, call)
        if call.status == "running" and call.metadata:
            self.settle(core_id)
            self._progress(step, call)
        elif call.status in ("completed", "error"):
            self.settle(core_id)
        if call.status == "completed":
            self._success(step, call)
        elif call.status == "error":
            self._failed(step, call)
        self.show(step)

    def _tell(self, step: Step, what: str, call_id: str, **data: object) -> None:
        self._teller.tell(f"session.tool.{what}", {"assistantMessageID": step.id, "id": call_id, **data})

    def _now(self, step: Step, call_id: str) -> Wire:
        return step.content[step.calls[call_id]]["state"]

    def _set(self, step: Step, call_id: str, state: Wire, moment: str | None = None) -> None:
        at = step.calls[call_id]
        old = step.content[at]
        time = {**old["time"], moment: self._teller.at} if moment else old["time"]
        step.content[at] = {**old, "state": state, "time": time}

    def _call(self, step: Step, call: ToolCall) -> None:
        call_id = call.call_id
        tool = step.content[step.calls[call_id]]["name"]
        arguments = names.arguments(tool, call.input)
        self._tell(step, "input.ended", call_id, text=json.dumps(arguments, ensure_ascii=False))
        called: Wire = {"assistantMessageID": step.id, "id": call_id, "input": arguments, "executed": False}
        self._teller.tell("session.tool.called", called, beside={"tool": tool})
        self._set(step, call_id, {"status": "running", "input": arguments, "metadata": {}}, "ran")

    def _progress(self, step: Step, call: ToolCall) -> None:
        call_id = call.call_id
        now = self._now(step, call_id)
        told = results.progress(step.content[step.calls[call_id]]["name"], obj(call.metadata))
        if now["status"] == "running" and told != now["metadata"]:
            self._tell(step, "progress", call_id, metadata=told)
            self._set(step, call_id, {**now, "metadata": told})

    def _success(self, step: Step, call: ToolCall) -> None:
        call_id = call.call_id
        tool = step.content[step.calls[call_id]]["name"]
        arguments = obj(self._now(step, call_id)["input"])
        directory = self._conversation.info["location"]["directory"]
        metadata = results.metadata(tool, arguments, obj(call.metadata), directory)
        told: Wire = {"content": results.content(tool, call), **({"metadata": metadata} if metadata else {})}
        self._tell(step, "success", call_id, **told, executed=False)
        self._set(step, call_id, {"status": "completed", "input": arguments, **told}, "completed")

    def _failed(self, step: Step, call: ToolCall) -> None:
        call_id, meta = call.call_id, obj(call.metadata)
        now = self._now(step, call_id)
        refused = call.refused in REFUSALS
        error = names.tool_error(call.error, interrupted=meta.get("interrupted") is True, refused=refused)
        output = text(meta.get("output"))
        told: Wire = {"error": error, **({"content": [{"type": "text", "text": output}]} if output else {})}
        self._tell(step, "failed", call_id, **told, executed=False)
        self._set(step, call_id, {"status": "error", "input": obj(now["input"]), **told}, "completed")

    # --- rewritten by a person -----------------------------------------------------------------------------

    def rewritten(self, core_id: str, message: Message) -> None:
        """Parts of a message were changed or removed: its content anew."""
        step = self._steps.get(core_id)
        if step is None:
            return
        calls = {entry["id"]: entry for entry in step.content if entry["type"] == "tool"}
        content: list[Wire] = []
        for part in message.all_parts():
            if isinstance(part, ToolCall):
                content += [calls[part.call_id]] if part.call_id in calls else []
            elif isinstance(part, (Text, Reasoning)):
                content.append({"type": "text" if isinstance(part, Text) else "reasoning", "text": part.text})
        step.content = content
        self._teller.tell("session.message.content.updated", {"messageID": step.id, "content": list(content)})
        self.show(step)


def _broken_off(info: StepInfo, message: Message | None) -> bool:
    """Whether a message is over without an end of its own, or a call of it was interrupted."""
    if info.finish is None:
        return True
    calls = [part for part in (message.parts.values() if message is not None else ()) if isinstance(part, ToolCall)]
    return any(obj(call.metadata).get("interrupted") is True for call in calls)
