"""The codec of the mock. Pure. The package's docstring describes the protocol."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias, assert_never

from universal import codec as c
from universal.agents.mock import wire
from universal.agents.mock.wire import PROTOCOL, Bad, Frame, Late, need
from universal.codec import Fact, Output, Signal
from universal.event_counts import Kinds
from universal.events import (
    ErrorData,
    EventData,
    EventType,
    ItemData,
    ItemDeltaData,
    PermissionData,
    QuestionData,
    SessionStartedData,
    UnparsedData,
)
from universal.items import (
    ContentPart,
    FileRefPart,
    ImagePart,
    Item,
    ItemKind,
    ItemRole,
    ItemStatus,
    Json,
    ReasoningPart,
    StatusPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from universal.jsonvalue import arr, obj, text
from universal.turn import Input

CLOSED_KEPT = 512
"""Maximum closed steps and tools that are remembered, to tell late lines (ignored) from wrong ones (unparsed)."""
_Said: TypeAlias = tuple[Literal["text", "reasoning"], list[str]]


@dataclass(slots=True)
class _Step:
    item_id: str
    native: str
    child: str | None
    model: dict[str, Json]
    parts: dict[str, _Said] = field(default_factory=dict[str, "_Said"])

    def content(self) -> tuple[ContentPart, ...]:
        joined = [(kind, "".join(pieces)) for kind, pieces in self.parts.values()]
        return tuple(TextPart(text=t) if kind == "text" else ReasoningPart(text=t) for kind, t in joined)


@dataclass(slots=True)
class _Tool:
    item_id: str
    native: str
    name: str
    parent: str
    child: str | None
    input: dict[str, Json] | None = None
    """None until the call is complete."""
    result_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Ask:
    native: str
    data: PermissionData | QuestionData
    child: str | None


class MockCodec:
    """The codec of the mock; see `universal.codec.Codec` for the methods' contract."""

    name = "mock"

    def __init__(self, ids: c.IdFactory) -> None:
        self.catalogue: c.Catalogue | None = None
        self.native_session_id: str | None = None
        self._ids = ids
        self._steps: dict[str, _Step] = {}
        self._tools: dict[str, _Tool] = {}
        self._asks: dict[str, _Ask] = {}
        self._children: dict[str, None] = {}
        self._holds: dict[str, str] = {}
        """Background call -> the run that it belongs to."""
        self._runs: list[str] = []
        """Runs without an answer, oldest first."""
        self._error: dict[str, Json] | None = None
        self._variant: str | None = None
        self._closed: deque[str] = deque(maxlen=CLOSED_KEPT)
        self._counts = Kinds()

    # --- to the agent --------------------------------------------------------------------------------

    def launch(self, options: c.LaunchOptions) -> c.LaunchSpec:
        """Return argv: `mock --session=ID [--resume]`. We choose the id, so that it is known at once."""
        self.native_session_id = options.native_session_id or f"mock-{self._ids('item')}"
        argv = [options.binary or "mock", f"--session={self.native_session_id}"]
        argv += ["--resume"] if options.resume else []
        argv += [f"--mode={options.mode}"] if options.mode else []
        return c.LaunchSpec(argv=tuple(argv), cwd=options.directory)

    def start(self) -> list[Output]:
        """Return the handshake. Its answer has the catalogue."""
        return [wire.write(type="hello", protocol=PROTOCOL)]

    def send(self, command: c.Command) -> list[Output]:
        """Translate a command to lines. Answers to closed requests give []."""
        match command:
            case c.Prompt():
                return self._send_prompt(command)
            case c.Interrupt():
                runs = dict.fromkeys([*self._holds.values(), *self._runs])
                return [wire.write(type="interrupt", run=run) for run in runs]
            case c.PermissionReply():
                return self._send_permission(command)
            case c.QuestionReply():
                return self._send_answers(command)
            case _:
                assert_never(command)

    def _send_prompt(self, prompt: c.Prompt) -> list[Output]:
        self._runs.append(prompt.key)
        self._variant = prompt.variant
        optional = {"model": prompt.model, "variant": prompt.variant, "mode": prompt.mode, "system": prompt.system}
        attachments = [wire.attachment(a) for a in prompt.attachments]
        frame = {"type": "prompt", "run": prompt.key, "text": prompt.text, "attachments": attachments, **optional}
        return [wire.write(**{key: value for key, value in frame.items() if value not in (None, [])})]

    def _send_permission(self, reply: c.PermissionReply) -> list[Output]:
        ask = self._asks.get(reply.permission_id)
        if ask is None or not isinstance(ask.data, PermissionData):
            return []
        del self._asks[reply.permission_id]
        metadata = {**(ask.data.metadata or {}), **({"message": reply.message} if reply.message else {})}
        resolved = ask.data.model_copy(update={"status": reply.decision, "metadata": metadata})
        frame = {"type": "permission_reply", "id": ask.native, "decision": wire.DECISIONS[reply.decision]}
        return [
            wire.write(**frame, **({"message": reply.message} if reply.message else {})),
            Fact(EventType.PERMISSION_RESOLVED, resolved, synthetic=True, child=ask.child),
        ]

    def _send_answers(self, reply: c.QuestionReply) -> list[Output]:
        ask = self._asks.get(reply.question_id)
        if ask is None or not isinstance(ask.data, QuestionData):
            return []
        del self._asks[reply.question_id]
        message: dict[str, Json] = {"message": reply.message} if reply.message else {}
        resolved = wire.question_with_answers(ask.data, reply.answers)
        resolved = resolved.model_copy(update={"metadata": {**(resolved.metadata or {}), **message}}) if message else resolved
        return [
            wire.write(type="question_reply", id=ask.native, answers=reply.answers, **message),
            Fact(EventType.QUESTION_RESOLVED, resolved, synthetic=True, child=ask.child),
        ]

    # --- from the agent ------------------------------------------------------------------------------

    def receive(self, line: bytes) -> list[Output]:
        """Handle one line. Never raises: an unknown line becomes `agent.unparsed`."""
        kind = "not JSON"
        frame: Json = None
        try:
            frame = wire.parse(line)
            kind = text(obj(frame).get("type"), "no type")
            handler = self.HANDLERS.get(kind)
            if handler is None:
                raise Bad(f"unknown kind {kind!r}")
            return handler(self, obj(frame))
        except Late:
            self._counts[f"ignored:{kind}"] += 1
            return []
        except ValueError as error:  # errors of parsing, of pydantic and of this codec
            self._counts[f"unparsed:{kind}"] += 1
            raw = frame if frame is not None else line.decode(errors="replace")
            data = UnparsedData(error=str(error), location=f"mock/{kind}", raw_hash=hashlib.sha256(line).hexdigest())
            return [Fact(EventType.UNPARSED, data, raw, synthetic=True, native_session_id=self.native_session_id)]

    def eof(self, exit_: c.Exit) -> list[Output]:
        """Close all open items, of subagents first, because the agent has ended."""
        how = f"signal {exit_.signal}" if exit_.signal else f"code {exit_.code}"
        out: list[Output] = []
        for tool in self._tools.values():
            result = ToolResultPart(call_id=tool.native, output=f"The agent exited ({how}) before the tool was done.")
            out += self._result_item(tool, (result,), ItemStatus.FAILED, {"interrupted": True}, None)
        for ask_id in list(self._asks):
            out += self._withdraw(ask_id, None, synthetic=True)
        for step in self._steps.values():
            out.append(self._message(EventType.ITEM_COMPLETED, step, ItemStatus.FAILED, {"model": step.model}, None))
        error = {"message": f"The mock agent exited ({how}).", "code": "agent_exited"}
        out += [Signal(Input.FAILED, error=error, child=key) for key in self._children]
        for gone in (self._tools, self._asks, self._steps, self._children, self._holds, self._runs):
            gone.clear()
        return out

    def counters(self) -> Mapping[str, int]:
        """`unparsed:KIND`, `ignored:KIND`."""
        return dict(self._counts)

    # --- building facts ------------------------------------------------------------------------------

    def _fact(self, type_: EventType, data: EventData, raw: Json, child: str | None = None) -> Fact:
        """A fact from a native line. Without one (`raw` None) it is synthetic."""
        return Fact(type_, data, raw, synthetic=raw is None, child=child, native_session_id=self.native_session_id)

    def _message(self, type_: EventType, step: _Step, status: ItemStatus, metadata: dict[str, Json], raw: Json) -> Fact:
        item = Item(
            item_id=step.item_id,
            native_item_id=step.native,
            kind=ItemKind.MESSAGE,
            role=ItemRole.ASSISTANT,
            status=status,
            content=step.content(),
            metadata=metadata,
        )
        return self._fact(type_, ItemData(item=item), raw, step.child)

    def _call_item(self, status: ItemStatus, tool: _Tool, title: str, raw: Json) -> Fact:
        arguments = "" if tool.input is None else wire.line_of(tool.input).decode()
        metadata = None if tool.input is None else {"input": tool.input} | ({"title": title} if title else {})
        item = Item(
            item_id=tool.item_id,
            native_item_id=tool.native,
            parent_id=tool.parent,
            kind=ItemKind.TOOL_CALL,
            role=ItemRole.ASSISTANT,
            status=status,
            content=(ToolCallPart(name=tool.name, arguments=arguments, call_id=tool.native),),
            metadata=metadata,
        )
        type_ = EventType.ITEM_STARTED if status is ItemStatus.IN_PROGRESS else EventType.ITEM_COMPLETED
        return self._fact(type_, ItemData(item=item), raw, tool.child)

    def _result_item(
        self, tool: _Tool, content: tuple[ContentPart, ...], status: ItemStatus, metadata: dict[str, Json], raw: Json
    ) -> list[Output]:
        started = status is ItemStatus.IN_PROGRESS
        tool.result_id = tool.result_id or self._ids("item")
        item = Item(
            item_id=tool.result_id,
            native_item_id=tool.native,
            parent_id=tool.parent,
            kind=ItemKind.TOOL_RESULT,
            role=ItemRole.TOOL,
            status=status,
            content=content,
            metadata=metadata or None,
        )
        fact = self._fact(EventType.ITEM_STARTED if started else EventType.ITEM_COMPLETED, ItemData(item=item), raw, tool.child)
        if tool.input is None and not started:  # stopped before the model had completed the call
            return [self._call_item(ItemStatus.FAILED, tool, "", None), fact]
        return [fact]

    def _status(self, frame: Frame, label: str, detail: str, metadata: dict[str, Json]) -> list[Output]:
        item = Item(
            item_id=self._ids("item"),
            kind=ItemKind.STATUS,
            status=ItemStatus.COMPLETED,
            content=(StatusPart(label=label, detail=detail),),
            metadata=metadata,
        )
        return [self._fact(EventType.ITEM_COMPLETED, ItemData(item=item), frame, wire.child_of(frame))]

    def _withdraw(self, ask_id: str, raw: Json, *, synthetic: bool = False) -> list[Output]:
        ask = self._asks.pop(ask_id)
        if isinstance(ask.data, PermissionData):
            rejected: EventData = ask.data.model_copy(update={"status": "reject"})
            type_ = EventType.PERMISSION_RESOLVED
        else:
            rejected = wire.question_with_answers(ask.data, None)
            type_ = EventType.QUESTION_RESOLVED
        return [Fact(type_, rejected, raw, synthetic=synthetic, child=ask.child, native_session_id=self.native_session_id)]

    def _find(self, frame: Frame, key: Literal["step", "tool"]) -> str:
        """The open step or tool of a line. Raises Late, Bad."""
        native = need(frame, key)
        if native in (self._steps if key == "step" else self._tools):
            return native
        if f"{key}:{native}" in self._closed:
            raise Late
        raise Bad(f"{key} {native!r} was never started")

    # --- handlers ------------------------------------------------------------------------------------

    def _hello(self, frame: Frame) -> list[Output]:
        models = tuple(wire.model_of(obj(m)) for m in arr(frame.get("models")))
        commands = tuple(
            c.SlashCommand(need(obj(m), "name"), text(obj(m).get("description"))) for m in arr(frame.get("commands"))
        )
        self.native_session_id = text(frame.get("session")) or self.native_session_id
        self.catalogue = c.Catalogue(models=models, commands=commands, default_model=models[0].id if models else None)
        return []

    def _step_start(self, frame: Frame) -> list[Output]:
        native = need(frame, "step")
        if native in self._steps or f"step:{native}" in self._closed:
            raise Bad(f"step {native!r} is started twice")
        model = {"provider_id": self.name, "model_id": text(frame.get("model"), "mock"), "variant": self._variant}
        step = self._steps[native] = _Step(self._ids("item"), native, wire.child_of(frame), model)
        return [self._message(EventType.ITEM_STARTED, step, ItemStatus.IN_PROGRESS, {"model": model}, frame)]

    def _piece(self, frame: Frame) -> list[Output]:
        step = self._steps[self._find(frame, "step")]
        kind: Literal["text", "reasoning"] = "text" if frame["type"] == "text" else "reasoning"
        name = f"{kind}:{need(frame, 'part')}"
        delta = need(frame, "delta")
        step.parts.setdefault(name, (kind, []))[1].append(delta)
        index = list(step.parts).index(name)
        data = ItemDeltaData(item_id=step.item_id, native_item_id=step.native, delta=delta, part_index=index, part_type=kind)
        return [self._fact(EventType.ITEM_DELTA, data, frame, step.child)]

    def _step_finish(self, frame: Frame) -> list[Output]:
        native = self._find(frame, "step")
        finish = need(frame, "finish")
        step = self._steps.pop(native)
        self._closed.append(f"step:{native}")
        metadata = {"model": step.model, **wire.usage_of(frame)}
        if finish in ("aborted", "error"):
            return [self._message(EventType.ITEM_COMPLETED, step, ItemStatus.FAILED, metadata, frame)]
        metadata["finish"] = finish
        return [self._message(EventType.ITEM_COMPLETED, step, ItemStatus.COMPLETED, metadata, frame)]

    def _tool_start(self, frame: Frame) -> list[Output]:
        native, step, name = need(frame, "tool"), self._steps[self._find(frame, "step")], need(frame, "name")
        if native in self._tools or f"tool:{native}" in self._closed:
            raise Bad(f"tool {native!r} is started twice")
        tool = self._tools[native] = _Tool(self._ids("item"), native, name, step.item_id, step.child)
        return [self._call_item(ItemStatus.IN_PROGRESS, tool, "", frame)]

    def _tool_run(self, frame: Frame) -> list[Output]:
        tool = self._tools[self._find(frame, "tool")]
        tool.input = obj(frame.get("input"))
        return [self._call_item(ItemStatus.COMPLETED, tool, text(frame.get("title")), frame)]

    def _tool_output(self, frame: Frame) -> list[Output]:
        tool, delta, out = self._tools[self._find(frame, "tool")], need(frame, "delta"), list[Output]()
        if tool.result_id is None:
            out += self._result_item(tool, (ToolResultPart(call_id=tool.native, output=""),), ItemStatus.IN_PROGRESS, {}, frame)
        data = ItemDeltaData(
            item_id=tool.result_id or "", native_item_id=tool.native, delta=delta, part_index=0, part_type="tool_output"
        )
        return [*out, self._fact(EventType.ITEM_DELTA, data, frame, tool.child)]

    def _tool_result(self, frame: Frame) -> list[Output]:
        native = self._find(frame, "tool")
        files = [
            FileRefPart.model_validate({key: obj(f).get(key) for key in ("path", "action", "diff")})
            for f in arr(frame.get("files"))
        ]
        images = [ImagePart.model_validate({key: obj(i).get(key) for key in ("path", "mime")}) for i in arr(frame.get("images"))]
        result = ToolResultPart(call_id=native, output=text(frame.get("output")))
        tool = self._tools.pop(native)
        self._closed.append(f"tool:{native}")
        metadata = {key: value for key, value in obj(frame.get("meta")).items() if key in wire.RESULT_META}
        status = ItemStatus.COMPLETED if frame.get("ok") is True else ItemStatus.FAILED
        return self._result_item(tool, (result, *files, *images), status, metadata, frame)

    def _permission(self, frame: Frame) -> list[Output]:
        native, tool = need(frame, "id"), self._tools[self._find(frame, "tool")]
        metadata: dict[str, Json] = {"tool": tool.name, "call_id": tool.native, "input": tool.input}
        metadata |= {key: frame[key] for key in ("title", "description", "patterns", "always", "diff") if key in frame}
        data = PermissionData(
            permission_id=self._ids("permission"),
            action=text(frame.get("title"), tool.name),
            status="requested",
            metadata=metadata,
        )
        self._asks[data.permission_id] = _Ask(native, data, tool.child)
        return [self._fact(EventType.PERMISSION_REQUESTED, data, frame, tool.child)]

    def _question(self, frame: Frame) -> list[Output]:
        native, tool = need(frame, "id"), self._tools[self._find(frame, "tool")]
        questions = tuple(wire.question_of(obj(q)) for q in arr(frame.get("questions")))
        if not questions:
            raise Bad("a question without questions")
        data = QuestionData(
            question_id=self._ids("question"),
            prompt=questions[0].question,
            options=tuple(o.label for o in questions[0].options),
            status="requested",
            questions=questions,
            metadata={"tool": tool.name, "call_id": tool.native, "input": tool.input},
        )
        self._asks[data.question_id] = _Ask(native, data, tool.child)
        return [self._fact(EventType.QUESTION_REQUESTED, data, frame, tool.child)]

    def _withdrawn(self, frame: Frame) -> list[Output]:
        native = need(frame, "id")
        ours = next((key for key, ask in self._asks.items() if ask.native == native), None)
        if ours is None:
            raise Late  # our answer and the withdrawal crossed
        return self._withdraw(ours, frame)

    def _todo(self, frame: Frame) -> list[Output]:
        todos = [obj(t) for t in arr(frame.get("todos"))]
        return self._status(frame, "todo", wire.left_of(todos), {"todos": todos})

    def _mode(self, frame: Frame) -> list[Output]:
        return self._status(frame, "mode", need(frame, "mode"), {"mode": need(frame, "mode")})

    def _retry(self, frame: Frame) -> list[Output]:
        message = need(frame, "message")
        return self._status(frame, "retry", message, {"message": message, **wire.wait_of(frame)})

    def _compaction(self, frame: Frame) -> list[Output]:
        return self._status(frame, "compaction", "", wire.compaction_of(frame))

    def _subagent_start(self, frame: Frame) -> list[Output]:
        key = self._find(frame, "tool")
        metadata = {"call_id": key, "title": text(frame.get("title")), "agent": text(frame.get("agent"), "general")}
        metadata["prompt"] = text(frame.get("prompt"))
        self._children[key] = None
        said = TextPart(text=metadata["prompt"])
        done = ItemStatus.COMPLETED
        prompt = Item(item_id=self._ids("item"), kind=ItemKind.MESSAGE, role=ItemRole.USER, status=done, content=(said,))
        return [
            self._fact(EventType.SESSION_STARTED, SessionStartedData(metadata=metadata), frame, key),
            Fact(EventType.ITEM_COMPLETED, ItemData(item=prompt), raw=frame, synthetic=True, child=key),
            Signal(Input.ACTIVITY, child=key),
        ]

    def _subagent_end(self, frame: Frame) -> list[Output]:
        key, status = need(frame, "tool"), need(frame, "status")
        if key not in self._children:
            raise Bad(f"subagent {key!r} does not run")
        del self._children[key]
        if status == "completed":
            return [Signal(Input.DONE, child=key)]
        error = {"message": f"The subagent was {status}."}
        return [Signal(Input.FAILED, error=error, aborted=status == "aborted", child=key)]

    def _background_start(self, frame: Frame) -> list[Output]:
        key = self._find(frame, "tool")
        self._holds[key] = self._runs[-1] if self._runs else ""
        return [Signal(Input.OPENED, key=key)]

    def _background_end(self, frame: Frame) -> list[Output]:
        key = need(frame, "tool")
        if self._holds.pop(key, None) is None:
            raise Bad(f"{key!r} does not run in the background")
        return [Signal(Input.CLOSED, key=key)]

    def _wake(self, frame: Frame) -> list[Output]:
        self._runs.append(need(frame, "run"))
        return [Signal(Input.ACTIVITY)]

    def _native_error(self, frame: Frame) -> list[Output]:
        details = {"status_code": frame.get("status"), "is_retryable": frame.get("retryable"), "hint": frame.get("hint")}
        details = {key: value for key, value in details.items() if value is not None}
        data = ErrorData(message=need(frame, "message"), code=text(frame.get("code")) or None, details=details or None)
        self._error = data.model_dump(exclude_none=True)
        return [self._fact(EventType.ERROR, data, frame, wire.child_of(frame))]

    def _on_done(self, frame: Frame) -> list[Output]:
        run, status = need(frame, "run"), need(frame, "status")
        error, self._error = self._error, None
        if run not in self._runs:
            raise Late  # reported before
        self._runs.remove(run)
        if self._runs:
            # Unprompted work is over, but a prompt that was sent meanwhile is not answered yet.
            raise Late
        metadata = wire.usage_of(frame) or None
        if status == "completed":
            return [Signal(Input.DONE, metadata=metadata)]
        message = "Interrupted" if status == "aborted" else "The mock agent failed."
        return [Signal(Input.FAILED, error=error or {"message": message}, aborted=status == "aborted", metadata=metadata)]

    HANDLERS: ClassVar[dict[str, Callable[[MockCodec, Frame], list[Output]]]] = {
        "hello": _hello,
        "step_start": _step_start,
        "text": _piece,
        "thinking": _piece,
        "step_finish": _step_finish,
        "tool_start": _tool_start,
        "tool_run": _tool_run,
        "tool_output": _tool_output,
        "tool_result": _tool_result,
        "permission": _permission,
        "question": _question,
        "withdrawn": _withdrawn,
        "todo": _todo,
        "mode": _mode,
        "retry": _retry,
        "compaction": _compaction,
        "subagent_start": _subagent_start,
        "subagent_end": _subagent_end,
        "background_start": _background_start,
        "background_end": _background_end,
        "wake": _wake,
        "error": _native_error,
        "done": _on_done,
    }
