"""The codec of the mock. Pure. The package's docstring describes the protocol."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from universal import codec as c
from universal.agents import kit
from universal.agents.mock import wire
from universal.agents.mock.wire import PROTOCOL, Bad, Frame, Late, need
from universal.codec import Fact, Output, Signal
from universal.events import ErrorData, EventType, SessionStartedData
from universal.items import ContentPart, FileRefPart, ImagePart, ItemRole, ItemStatus, Json, TextPart, ToolResultPart
from universal.launch import Exit, LaunchOptions, LaunchSpec
from universal.lib.jsonline import digest
from universal.lib.jsonvalue import arr, obj, text
from universal.permissions import REPLIES
from universal.slash_commands import SlashCommand
from universal.turn import Input

NAME = "mock"
CLOSED_KEPT = 512
"""Maximum closed steps and tools that are remembered, to tell late lines (ignored) from wrong ones (unparsed)."""


@dataclass(slots=True)
class _Step:
    item_id: str
    native_id: str
    model: dict[str, Json]
    items: kit.Items[kit.Context]
    parts: dict[str, kit.Part] = field(default_factory=dict[str, kit.Part])


@dataclass(slots=True, kw_only=True)
class _Tool(kit.Call):
    items: kit.Items[kit.Context]


@dataclass(slots=True, kw_only=True)
class _Ask(kit.Ask):
    native_id: str


class MockCodec(kit.LineCodec[kit.Context]):
    """The codec of the mock; see `universal.codec.Codec` for the methods' contract."""

    name = NAME

    def __init__(self, ids: c.IdFactory) -> None:
        super().__init__(kit.Context(NAME, ids))
        self._steps: dict[str, _Step] = {}
        self._tools: dict[str, _Tool] = {}
        self._asks = kit.OpenAsks[_Ask]()
        self._children: dict[str, None] = {}
        self._holds: dict[str, str] = {}
        """Background call -> the run that it belongs to."""
        self._runs: list[str] = []
        """Runs without an answer, oldest first."""
        self._error: dict[str, Json] | None = None
        self._variant: str | None = None
        self._closed: deque[str] = deque(maxlen=CLOSED_KEPT)
        self._resumed = self._has_answered = False

    # --- to the agent --------------------------------------------------------------------------------

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """Return argv: `mock --session=ID [--resume]`. We choose the id, so that it is known at once."""
        self.native_session_id = options.native_session_id or f"mock-{self._ctx.ids('item')}"
        self._resumed = options.resume
        argv = [options.binary or "mock", f"--session={self.native_session_id}"]
        argv += ["--resume"] if options.resume else []
        argv += [f"--mode={options.mode}"] if options.mode else []
        return LaunchSpec(argv=tuple(argv), cwd=options.directory)

    def start(self) -> list[Output]:
        """Return the handshake. Its answer has the catalogue."""
        return [wire.write(type="hello", protocol=PROTOCOL)]

    def _interrupt(self) -> list[Output]:
        runs = dict.fromkeys([*self._holds.values(), *self._runs])
        return [wire.write(type="interrupt", run=run) for run in runs]

    def _on_prompt(self, prompt: c.Prompt) -> list[Output]:
        self._runs.append(prompt.key)
        self._variant = prompt.variant
        optional = {"model": prompt.model, "variant": prompt.variant, "mode": prompt.mode, "system": prompt.system}
        attachments = [wire.attachment(a) for a in prompt.attachments]
        frame = {"type": "prompt", "run": prompt.key, "text": prompt.text, "attachments": attachments, **optional}
        line = wire.write(**{key: value for key, value in frame.items() if value not in (None, [])})
        return [line] if self._has_answered else [line, kit.await_handshake()]

    @property
    def has_conversation(self) -> bool:
        """Whether the agent has answered the handshake, or has begun a new conversation."""
        return self._has_answered or not self._resumed

    def on_timer(self, key: str) -> list[Output]:
        late = kit.handshake_failed("The mock agent", "hello", resumes=not self.has_conversation)
        return [late] if self._runs and not self._has_answered else []

    def _on_permission_reply(self, reply: c.PermissionReply) -> list[Output]:
        ask = self._asks.permission(reply.permission_id)
        if ask is None:
            return []
        frame = {"type": "permission_reply", "id": ask.native_id, "decision": REPLIES[reply.decision]}
        frame |= {**({"message": reply.message} if reply.message else {}), **({"stops": True} if reply.stops else {})}
        return [wire.write(**frame), self._asks.resolve_permission(ask, reply.decision, reply.message)]

    def _on_question_reply(self, reply: c.QuestionReply) -> list[Output]:
        ask = self._asks.question(reply.question_id)
        if ask is None:
            return []
        frame: dict[str, Json] = {"type": "question_reply", "id": ask.native_id, "answers": reply.answers}
        frame |= {**({"message": reply.message} if reply.message else {}), **({"stops": True} if reply.stops else {})}
        return [wire.write(**frame), self._asks.resolve_question(ask, reply.answers, reply.message)]

    # --- from the agent ------------------------------------------------------------------------------

    def _kind_of(self, message: Frame) -> str:
        return text(message.get("type"), "no type")

    def _handle(self, kind: str, message: Frame, line: bytes) -> list[Output]:
        try:
            return super()._handle(kind, message, line)
        except Late:
            self._ctx.ignore(kind)
            return []
        except ValueError as error:  # pydantic's and ours
            return self._stamp((self._ctx.report_unparsed(kind, str(error), message, digest(line)),))

    def _on_eof(self, exit_: Exit) -> list[Output]:
        """Close all open items, of subagents first, because the agent has ended."""
        how = f"signal {exit_.signal}" if exit_.signal else f"code {exit_.code}"
        out: list[Output] = []
        for tool in self._tools.values():
            result = ToolResultPart(call_id=tool.call_id, output=f"The agent exited ({how}) before the tool was done.")
            out += self._result(tool, (result,), ItemStatus.FAILED, dict(kit.INTERRUPTED), None)
        out += self._asks.close()
        out += [self._message(step, ItemStatus.FAILED, {"model": step.model}, None) for step in self._steps.values()]
        error = {"message": f"The mock agent exited ({how}).", "code": "agent_exited"}
        out += [Signal(Input.FAILED, error=error, child=key) for key in self._children]
        for table in (self._tools, self._steps, self._children, self._holds, self._runs):
            table.clear()
        return out

    # --- building facts ------------------------------------------------------------------------------

    def _items(self, child: str | None) -> kit.Items[kit.Context]:
        return kit.Speech(self._ctx, child=child)

    def _message(self, step: _Step, status: ItemStatus, metadata: dict[str, Json], raw: Json) -> Fact:
        item = kit.message_item(step.item_id, step.native_id, status, kit.contents(step.parts.values()), metadata)
        return step.items.item_fact(item, raw)

    def _call(self, status: ItemStatus, tool: _Tool, title: str, raw: Json) -> Fact:
        arguments = "" if tool.arguments is None else wire.line_of(tool.arguments).decode()
        metadata = None if tool.arguments is None else {"input": tool.arguments} | ({"title": title} if title else {})
        return tool.items.item_fact(kit.call_item(tool, status, arguments, metadata, ItemRole.ASSISTANT), raw)

    def _result(
        self, tool: _Tool, content: tuple[ContentPart, ...], status: ItemStatus, metadata: dict[str, Json], raw: Json
    ) -> Iterator[Fact]:
        if tool.arguments is None:  # stopped before the model had completed the call
            yield self._call(ItemStatus.FAILED, tool, "", None)
        yield tool.items.result_fact(tool, content, metadata, raw, status)

    def _status(self, frame: Frame, label: str, detail: str, metadata: dict[str, Json]) -> list[Output]:
        return [self._ctx.status(label, detail, metadata, frame, wire.child_of(frame))]

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
        self._has_answered = True
        models = tuple(wire.model_of(obj(m)) for m in arr(frame.get("models")))
        commands = tuple(SlashCommand(need(obj(m), "name"), text(obj(m).get("description"))) for m in arr(frame.get("commands")))
        self.native_session_id = text(frame.get("session")) or self.native_session_id
        self.catalogue = c.Catalogue(models=models, commands=commands, default_model=models[0].id if models else None)
        return []

    def _step_start(self, frame: Frame) -> list[Output]:
        native = need(frame, "step")
        if native in self._steps or f"step:{native}" in self._closed:
            raise Bad(f"step {native!r} is started twice")
        model = {"provider_id": self.name, "model_id": text(frame.get("model"), "mock"), "variant": self._variant}
        step = self._steps[native] = _Step(self._ctx.ids("item"), native, model, self._items(wire.child_of(frame)))
        return [self._message(step, ItemStatus.IN_PROGRESS, {"model": model}, frame)]

    def _piece(self, frame: Frame) -> list[Output]:
        step = self._steps[self._find(frame, "step")]
        kind: kit.PartKind = "text" if frame["type"] == "text" else "reasoning"
        name = f"{kind}:{need(frame, 'part')}"
        delta = need(frame, "delta")
        part = step.parts.setdefault(name, kit.Part(kind, len(step.parts)))
        part.growing.add(delta)
        return [step.items.delta(step.item_id, step.native_id, delta, part.index, kind, frame)]

    def _step_finish(self, frame: Frame) -> list[Output]:
        native = self._find(frame, "step")
        finish = need(frame, "finish")
        step = self._steps.pop(native)
        self._closed.append(f"step:{native}")
        metadata = {"model": step.model, **wire.usage_of(frame)}
        if finish in ("aborted", "error"):
            return [self._message(step, ItemStatus.FAILED, metadata, frame)]
        metadata["finish"] = finish
        return [self._message(step, ItemStatus.COMPLETED, metadata, frame)]

    def _tool_start(self, frame: Frame) -> list[Output]:
        native, step, name = need(frame, "tool"), self._steps[self._find(frame, "step")], need(frame, "name")
        if native in self._tools or f"tool:{native}" in self._closed:
            raise Bad(f"tool {native!r} is started twice")
        tool = self._tools[native] = _Tool(native, name, self._ctx.ids("item"), step.item_id, items=step.items)
        return [self._call(ItemStatus.IN_PROGRESS, tool, "", frame)]

    def _tool_run(self, frame: Frame) -> list[Output]:
        tool = self._tools[self._find(frame, "tool")]
        tool.arguments = obj(frame.get("input"))
        return [self._call(ItemStatus.COMPLETED, tool, text(frame.get("title")), frame)]

    def _tool_output(self, frame: Frame) -> list[Output]:
        tool = self._tools[self._find(frame, "tool")]
        return list(tool.items.output_piece(tool, need(frame, "delta"), frame))

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
        return list(self._result(tool, (result, *files, *images), status, metadata, frame))

    def _permission(self, frame: Frame) -> list[Output]:
        native, tool = need(frame, "id"), self._tools[self._find(frame, "tool")]
        metadata: dict[str, Json] = {"tool": tool.name, "call_id": tool.call_id, "input": tool.arguments}
        metadata |= {key: frame[key] for key in ("title", "description", "patterns", "always", "diff") if key in frame}
        ask = _Ask(
            ask_id=self._ctx.ids("permission"),
            action=text(frame.get("title"), tool.name),
            metadata=metadata,
            child=tool.items.child,
            native_id=native,
        )
        return [self._asks.begin(ask, frame)]

    def _question(self, frame: Frame) -> list[Output]:
        native, tool = need(frame, "id"), self._tools[self._find(frame, "tool")]
        questions = tuple(wire.question_of(obj(q)) for q in arr(frame.get("questions")))
        if not questions:
            raise Bad("a question without questions")
        ask = _Ask(
            ask_id=self._ctx.ids("question"),
            action=tool.name,
            metadata={"tool": tool.name, "call_id": tool.call_id, "input": tool.arguments},
            child=tool.items.child,
            questions=questions,
            native_id=native,
        )
        return [self._asks.begin(ask, frame)]

    def _withdrawn(self, frame: Frame) -> list[Output]:
        native = need(frame, "id")
        ask = self._asks.find(lambda ask: ask.native_id == native)
        if ask is None:
            raise Late  # our answer and the withdrawal crossed
        return [self._asks.withdrawn(ask, frame)]

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
        items = self._items(key)
        return [
            items.fact(EventType.SESSION_STARTED, SessionStartedData(metadata=metadata), frame),
            items.user_fact((TextPart(text=metadata["prompt"]),), frame, synthetic=True),
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
        details["resets_at"] = frame.get("resets_at")
        details = {key: value for key, value in details.items() if value is not None}
        data = ErrorData(message=need(frame, "message"), code=text(frame.get("code")) or None, details=details or None)
        self._error = data.model_dump(exclude_none=True)
        return [self._items(wire.child_of(frame)).fact(EventType.ERROR, data, frame)]

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

    HANDLERS: ClassVar[kit.Handlers] = {
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
