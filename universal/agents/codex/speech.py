"""Makes the items of one Codex thread: a message for each model call, its text and reasoning, tool calls and results.

Codex reports items, and the tokens of a model call when the call and its tools are done, but no begin of a model call. So a
message begins with the first item after the tokens, and ends with the tokens (`thread/tokenUsage/updated`) or with the turn. A
command that still runs when the model goes on was put into the background: its call ends there, and later output is counted and
not shown (recording `slow_bash_long`). Each item is started before it is completed, and completed once. A text equals its deltas.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace

from universal.agents import kit
from universal.agents.codex.tools import BACKGROUND, LATE_ARGUMENTS, TOOLS, Display, changes_of
from universal.agents.codex.wire import IGNORED_ITEMS, Msg, usage_of
from universal.codec import Fact
from universal.items import ImagePart, Item, ItemStatus, Json, TextPart
from universal.lib.jsonline import digest, get_int, get_text
from universal.lib.jsonrpc import Id
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text


@dataclass(slots=True)
class Context(kit.Context):
    """The context that the parts of a codec share."""

    model_of: Callable[[], dict[str, Json]]
    """`metadata.model` of a message."""
    directory: Callable[[], str]
    """The agent's directory. A command in it does not name it."""

    def report_unparsed(self, kind: str, error: str, raw: Json, raw_hash: str | None = None) -> Fact:
        """Count and report a native message that no rule knows, with the hash of its JSON."""
        raw_hash = raw_hash or digest(kit.dumps(raw).encode("utf-8", "replace"))
        return kit.Context.report_unparsed(self, kind, error, raw, raw_hash)


@dataclass(slots=True)
class Call(kit.Call):
    """A tool call from its first sign to its result."""

    display: Display = field(kw_only=True)
    source: Msg = field(kw_only=True)
    """The native item at its start."""
    refusal: str = ""
    """Why a rule or a person has refused the call, which Codex is not told."""


@dataclass(slots=True)
class _Message:
    item_id: str
    parts: dict[str, kit.Part] = field(default_factory=dict[str, kit.Part])
    unfinished: set[str] = field(default_factory=set[str])
    """Native items of this message that have started and not completed."""
    calls: bool = False


@dataclass(slots=True)
class Thread(kit.Items[Context]):
    """The items of one thread: of the main conversation (`child` None) or of a subagent."""

    thread_id: str
    turn_id: str = ""
    """The turn that runs, "" between turns."""
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    usage: dict[str, int] = field(default_factory=dict[str, int])
    """Tokens of the running turn."""
    error: Msg = field(default_factory=dict[str, Json])
    """The last error without a retry. The end of the turn repeats it."""
    resting: str = ""
    """A sign that the turn is over, without `turn/completed`; see `wire.ENDS`."""
    read_id: Id = None
    """Id of our question whether it is over."""
    compacting: bool = False
    """True if we asked for the next compaction."""
    _total: int = -1
    _open: _Message | None = None
    _synthetic_calls: int = 0

    @property
    def only_calls(self) -> bool:
        """Whether a call runs, and nothing is being said."""
        return bool(self.calls) and not (self._open is not None and self._open.unfinished)

    # --- items ----------------------------------------------------------------------------------------

    def on_item_started(self, item: Msg, raw: Msg) -> Iterator[Fact]:
        kind, id_ = get_text(item, "type"), get_text(item, "id")
        if kind in ("agentMessage", "reasoning", "plan"):
            message = yield from self._message(raw)
            message.unfinished.add(id_)
        elif kind == "contextCompaction":
            yield self.ctx.status("compaction", None, {"phase": "started", "auto": not self.compacting}, raw, self.child)
        elif kind in TOOLS and id_ not in self.calls:
            if kind == "subAgentActivity" and get_text(item, "kind") != "started":
                self.ctx.ignore("subAgentActivity, later")
                return
            yield from self.call(id_, self._display_of(kind, item), item, raw, whole=kind not in LATE_ARGUMENTS)
        elif kind not in ("userMessage", "exitedReviewMode") and kind not in IGNORED_ITEMS and kind not in TOOLS:
            yield self.ctx.report_unparsed(f"item/{kind or '?'}", "unknown kind of item", raw)

    def _display_of(self, kind: str, item: Msg) -> Display:
        display = TOOLS[kind][0](item)
        if display.arguments.get("workdir") == self.ctx.directory():
            return replace(display, arguments={k: v for k, v in display.arguments.items() if k != "workdir"})
        return display

    def on_item_completed(self, item: Msg, raw: Msg) -> Iterator[Fact]:
        """`item/completed`. Starts an item that was not started."""
        kind, id_ = get_text(item, "type"), get_text(item, "id")
        if kind in ("agentMessage", "plan", "exitedReviewMode"):
            yield from self._whole(id_, "text", as_text(item.get("review" if kind == "exitedReviewMode" else "text")), raw)
        elif kind == "reasoning":
            for number, text in enumerate(map(as_text, arr(item.get("summary")))):
                yield from self._whole(f"{id_}/summary/{number}", "reasoning", text, raw)
            for number, text in enumerate(map(as_text, arr(item.get("content")))):
                yield from self._whole(f"{id_}/content/{number}", "reasoning", text, raw)
        elif kind == "userMessage":
            yield from self._user(item, raw)
        elif kind == "contextCompaction":
            yield self.ctx.status("compaction", None, {"phase": "completed", "auto": not self.compacting}, raw, self.child)
            self.compacting = False
        elif kind in TOOLS:
            yield from self._tool_completed(kind, id_, item, raw)
        else:
            yield from self.ctx.leave_out("item", kind, IGNORED_ITEMS, "kind of item", raw)
        if self._open is not None:
            self._open.unfinished.discard(id_)

    def _tool_completed(self, kind: str, id_: str, item: Msg, raw: Msg) -> Iterator[Fact]:
        if kind == "subAgentActivity" and get_text(item, "kind") != "started":
            return
        if id_ not in self.calls:
            if not self.turn_id or get_text(obj(raw.get("params")), "turnId") != self.turn_id or kind == "commandExecution":
                self.ctx.ignore("item/completed of a call that is over")
                return
            yield from self.on_item_started(item, raw)
        call = self.calls[id_]
        show, result = TOOLS[kind]
        if call.arguments is None:
            call.display = show(item)
            call.name = call.display.name
            yield self._complete(call, raw)
        elif kind == "fileChange" and not changes_of(item):
            item = {**item, "changes": call.source.get("changes")}
        outcome = result(item)
        if call.refusal and get_text(item, "status") == "declined":
            outcome = replace(outcome, content=kit.output_part(call, call.refusal))
        yield self.result(call, outcome, raw)

    def _user(self, item: Msg, raw: Msg) -> Iterator[Fact]:
        """The echo of a prompt. Our prompt is shown already; a subagent's is its task."""
        if self.child is None:
            self.ctx.ignore("item/userMessage, our own prompt")
            return
        parts = [obj(part) for part in arr(item.get("content"))]
        texts = [TextPart(text=part["text"]) for part in parts if isinstance(part.get("text"), str)]
        images = [ImagePart(path=path) for part in parts if (path := get_text(part, "url", "path"))]
        yield self.user_fact((*texts, *images), raw, native_id=get_text(item, "id"))

    # --- texts ----------------------------------------------------------------------------------------

    def say(self, key: str, kind: kit.PartKind, text: str, raw: Msg, *, synthetic: bool = False) -> Iterator[Fact]:
        """A piece of text for a part of the open message. `key` names the part: the native item and its place in it."""
        if not text:
            return
        message = yield from self._message(raw)
        part = message.parts.get(key)
        if part is None:
            part = message.parts[key] = kit.Part(kind, len(message.parts))
        part.growing.add(text)
        yield self.delta(message.item_id, key.partition("/")[0], text, part.index, part.kind, raw, synthetic=synthetic)

    def _whole(self, key: str, kind: kit.PartKind, text: str, raw: Msg) -> Iterator[Fact]:
        """Add the whole text of a part. The rest after its deltas becomes one more delta."""
        part = self._open.parts.get(key) if self._open is not None else None
        said = part.growing.text if part is not None else ""
        if text.startswith(said):
            yield from self.say(key, kind, text[len(said) :], raw, synthetic=True)

    # --- calls ----------------------------------------------------------------------------------------

    def call(self, call_id: str, display: Display, source: Msg, raw: Msg, *, whole: bool = True) -> Iterator[Fact]:
        """A tool call begins; `whole`: its arguments are known."""
        message = yield from self._message(raw)
        message.calls = True
        call = Call(call_id, display.name, self.ctx.ids("item"), message.item_id, display=display, source=source)
        self.calls[call_id] = call
        yield self.call_fact(call, ItemStatus.IN_PROGRESS, raw)
        if whole:
            yield self._complete(call, raw)

    def _complete(self, call: Call, raw: Json) -> Fact:
        """The arguments of a call are known."""
        call.arguments = call.display.arguments
        return self.call_fact(call, ItemStatus.COMPLETED, raw, title=call.display.title)

    def synthetic_call(self, display: Display, result: Callable[[str], kit.Result], raw: Msg) -> Iterator[Fact]:
        """A call of which Codex reports only the effect (`update_plan`)."""
        self._synthetic_calls += 1
        call_id = f"{display.name}_{self.turn_id or self.thread_id}_{self._synthetic_calls}"
        for fact in self.call(call_id, display, {}, raw):
            yield fact._replace(synthetic=True)
        yield self.result(self.calls[call_id], result(call_id), raw)._replace(synthetic=True)

    def output(self, id_: str, text: str, raw: Msg) -> Iterator[Fact]:
        call = self.calls.get(id_)
        if call is None:
            self.ctx.ignore("output of a call that is over")
        elif text:
            yield from self.output_piece(call, text, raw)

    def result(self, call: Call, outcome: kit.Result, raw: Json) -> Fact:
        self.calls.pop(call.call_id, None)
        return self.result_fact(call, outcome.content, outcome.metadata, raw, kit.end_status(failed=outcome.failed))

    def _leave(self, raw: Json, *, interrupted: bool) -> Iterator[Fact]:
        """End calls without a result, because the model went on without them."""
        for call in list(self.calls.values()):
            if call.arguments is None:
                yield self._complete(call, raw)._replace(synthetic=True)
            rest = kit.ABANDONED if interrupted and not call.output else "" if interrupted else BACKGROUND
            output = "\n".join(filter(None, (call.output.removesuffix("\n"), rest)))
            metadata: dict[str, Json] = dict(kit.INTERRUPTED) if interrupted else {"background": True}
            outcome = kit.Result(kit.output_part(call, output), metadata, interrupted)
            yield self.result(call, outcome, raw)._replace(synthetic=True)

    # --- steps and turns ------------------------------------------------------------------------------

    def tokens(self, usage: Msg, raw: Msg) -> Iterator[Fact]:
        """`thread/tokenUsage/updated`: a model call is over. The same total again is no new call."""
        total, last = get_int(obj(usage.get("total")), "totalTokens"), usage_of(obj(usage.get("last")))
        repeated, self._total = total == self._total, total
        if not self.turn_id:
            self.ctx.ignore("thread/tokenUsage/updated between turns")
            return
        if repeated:
            last = dict.fromkeys(last, 0)
        self.usage = kit.add_usage(self.usage, last)
        yield from self._end(raw, interrupted=False, usage=last)

    def begin_turn(self, turn_id: str) -> None:
        self.turn_id, self.usage, self.error = turn_id, {}, {}

    def cut(self, raw: Msg) -> Iterator[Fact]:
        """End a message whose connection broke. Codex tries again, with a new message."""
        if self._open is not None and self._open.unfinished:
            yield from self._end(raw, interrupted=True)

    def close(self, raw: Json, *, interrupted: bool) -> Iterator[Fact]:
        if self._open is not None:
            yield from self._end(raw, interrupted=bool(self._open.unfinished))
        yield from self._leave(raw, interrupted=interrupted)
        self.turn_id = ""

    def _message(self, raw: Msg) -> Generator[Fact, None, _Message]:
        if self._open is None:
            yield from self._leave(raw, interrupted=False)
            self._open = _Message(self.ctx.ids("item"))
            yield self.item_fact(self._message_item(self._open, ItemStatus.IN_PROGRESS), raw)
        return self._open

    def _end(self, raw: Json, *, interrupted: bool, usage: dict[str, int] | None = None) -> Iterator[Fact]:
        message, self._open = self._open, None
        if message is not None:
            yield self.item_fact(self._message_item(message, kit.end_status(failed=interrupted), usage), raw)

    # --- building -------------------------------------------------------------------------------------

    def _message_item(self, message: _Message, status: ItemStatus, usage: dict[str, int] | None = None) -> Item:
        metadata: dict[str, Json] = {"model": self.ctx.model_of()}
        if usage:
            metadata["usage"] = usage
        if status is ItemStatus.COMPLETED:
            metadata["finish"] = "tool-calls" if message.calls else "stop"
        elif status is ItemStatus.FAILED:
            metadata["interrupted"] = True
        native_id = next((key.partition("/")[0] for key in message.parts), None)
        content = kit.contents(message.parts.values()) if status is not ItemStatus.IN_PROGRESS else ()
        return kit.message_item(message.item_id, native_id, status, content, metadata)
