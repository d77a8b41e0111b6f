"""Makes the items of what Claude sends: messages with text and thinking, tool calls and their results.

There is one `Transcript` for the conversation and one for each subagent. Each item is started before it is completed, and
completed exactly once. The text of a message is the concatenation of its deltas.
Source: recordings; the order of lines within a message is in docs/agents-wire.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from universal.agents import kit
from universal.agents.claude.tools import title_of
from universal.agents.claude.wire import FINISH, IGNORED_BLOCKS, IGNORED_DELTAS, Msg, get_text, usage_of
from universal.codec import Fact
from universal.events import EventType, ItemDeltaData, delta_data
from universal.items import Item, ItemStatus, Json, TextPart
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text

TEXT_OF_DELTA: dict[Json, str] = {"text_delta": "text", "thinking_delta": "thinking"}
"""Kind of a delta -> the field with its text."""
LINES = 64
"""How many `assistant` lines of a thread can be taken back. A refused answer has one for each block."""
SYNTHETIC_MODEL = "<synthetic>"
"""`model` of messages that the CLI wrote itself: answers of slash commands, errors."""


@dataclass(slots=True)
class Context(kit.Context):
    """The context that the parts of a codec share."""

    model_of: Callable[[str], dict[str, Json]]
    """`metadata.model` for a model that a message names."""


@dataclass(slots=True)
class Call(kit.Call):
    """A tool call. Its arguments are complete with the `assistant` line."""

    thread: str | None = None
    """Key of the subagent that makes the call; None for the main conversation."""


@dataclass(slots=True)
class _Part(kit.Part):
    confirmed: bool = False
    """True after the `assistant` line, which has the whole text."""


@dataclass(slots=True)
class _Message:
    item_id: str
    native_id: str
    model: str
    streamed: bool
    usage: Msg
    stop_reason: str = ""
    parts: list[_Part] = field(default_factory=list[_Part])
    blocks: dict[int, _Part | Call | str] = field(default_factory=dict[int, "_Part | Call | str"])
    """Open stream blocks by their index. A str is the kind of a part that has no text yet."""
    calls: bool = False


@dataclass(slots=True)
class Transcript(kit.Items[Context]):
    """The items of one thread: its lines go in, facts come out.

    `calls` is shared by all threads of a codec: call id -> call without a result.
    """

    calls: dict[str, Call]
    _open: _Message | None = None
    _item_ids: dict[str, str] = field(default_factory=dict[str, str])
    """Message id -> item id of the last messages, because tool calls may come after the end of their message."""
    _lines: dict[str, str] = field(default_factory=dict[str, str])
    """uuid of the last `assistant` lines -> item id of their message, because Claude may take lines back."""

    # --- the stream -----------------------------------------------------------------------------------

    def stream(self, event: Msg, raw: Msg) -> Iterator[Fact]:
        """Handle a `stream_event`, an event of the model's API."""
        kind = get_text(event, "type")
        message = self._open
        if kind == "message_start":
            yield from self._begin(obj(event.get("message")), raw, streamed=True)
        elif message is None:
            self.ctx.ignore(f"{kind} outside of a message")
        elif kind == "content_block_start":
            yield from self._block_start(message, _index(event), obj(event.get("content_block")), raw)
        elif kind == "content_block_delta":
            yield from self.piece(event, raw)
        elif kind == "message_delta":
            message.stop_reason = get_text(obj(event.get("delta")), "stop_reason") or message.stop_reason
            message.usage = {**message.usage, **{k: v for k, v in obj(event.get("usage")).items() if v is not None}}
        elif kind == "message_stop":
            is_lost = obj(raw.get("abandoned_blocks")).get("from_block_index") == 0
            yield from self._end(raw, interrupted=is_lost or not message.stop_reason)

    def piece(self, event: Msg, raw: Msg, native_session_id: str | None = None) -> Sequence[Fact]:
        """Handle a `content_block_delta`. Nearly all lines are one, so a text that has begun takes no further calls.

        In: `native_session_id`, with which the facts are stamped here.
        """
        message, given = self._open, event.get("delta")
        delta = cast("Msg", given) if type(given) is dict else {}
        kind = delta.get("type")
        index, text = event.get("index"), delta.get(TEXT_OF_DELTA.get(kind, "")) if isinstance(kind, str) else None
        part = message.blocks.get(index) if message is not None and isinstance(index, int) else None
        if message is not None and isinstance(part, _Part) and text and isinstance(text, str):  # nearly always
            part.growing.add(text)
            data = ItemDeltaData.from_fields(
                {
                    "item_id": message.item_id,
                    "native_item_id": message.native_id or None,
                    "delta": text,
                    "part_index": part.index,
                    "part_type": part.kind,
                }
            )
            return (Fact(EventType.ITEM_DELTA, data, raw, False, self.child, native_session_id),)
        kind = get_text(delta, "type")
        if message is None:
            self.ctx.ignore("content_block_delta outside of a message")
        elif kind in ("text_delta", "thinking_delta"):
            return self._say(message, _index(event), as_text(delta.get(kind[:-6])), raw, native_session_id)
        elif kind == "input_json_delta":
            call, text = message.blocks.get(_index(event)), as_text(delta.get("partial_json"))
            if isinstance(call, Call) and text:
                call.partial.add(text)
                return (self._text_fact(call.item_id, call.call_id, text, 0, "tool_input", raw, native_session_id),)
        else:
            return tuple(self.ctx.leave_out("delta", kind, IGNORED_DELTAS, "delta", raw))
        return ()

    def _begin(self, native: Msg, raw: Msg, *, streamed: bool) -> Iterator[Fact]:
        yield from self.boundary(raw)
        message = _Message(
            item_id=self.ctx.ids("item"),
            native_id=get_text(native, "id"),
            model=get_text(native, "model"),
            streamed=streamed,
            usage=obj(native.get("usage")),
        )
        self._open = message
        self._item_ids[message.native_id] = message.item_id
        if len(self._item_ids) > 8:
            del self._item_ids[next(iter(self._item_ids))]
        yield self.item_fact(self._message_item(message, ItemStatus.IN_PROGRESS), raw)

    def _block_start(self, message: _Message, index: int, block: Msg, raw: Msg) -> Iterator[Fact]:
        kind = get_text(block, "type")
        if kind in ("text", "thinking"):
            message.blocks[index] = kind
            yield from self._say(message, index, as_text(block.get(kind)), raw)
        elif kind == "tool_use" and get_text(block, "id"):
            if get_text(block, "id") in self.calls:
                self.ctx.ignore("tool_use, again")
                return
            call = self._call(message, block)
            message.blocks[index] = call
            yield self.call_fact(call, ItemStatus.IN_PROGRESS, raw)
        else:
            yield from self.ctx.leave_out("block", kind, IGNORED_BLOCKS, "content block", raw)

    def _say(self, message: _Message, index: int, text: str, raw: Msg, native_session_id: str | None = None) -> Sequence[Fact]:
        """Add a piece of text to a block. A part begins with its first text, so empty blocks make no part."""
        if not text:
            return ()
        part = message.blocks.get(index)
        if not isinstance(part, _Part):
            part = self._part(message, "reasoning" if part == "thinking" else "text")
            message.blocks[index] = part
        part.growing.add(text)
        return (self._text_fact(message.item_id, message.native_id, text, part.index, part.kind, raw, native_session_id),)

    # --- whole lines ----------------------------------------------------------------------------------

    def assistant(self, line: Msg) -> Iterator[Fact]:
        """Handle an `assistant` line: one or more blocks of a message, after their deltas or instead of them."""
        native = obj(line.get("message"))
        native_id = get_text(native, "id") or get_text(line, "uuid")
        blocks = [obj(block) for block in arr(native.get("content"))]
        late = self._open is None or self._open.native_id != native_id
        if late and native_id in self._item_ids and not any(block.get("type") in ("text", "thinking") for block in blocks):
            for block in blocks:
                yield from self._tool_use(block, self._item_ids[native_id], line)
            return
        if late:
            yield from self._begin({**native, "id": native_id}, line, streamed=False)
        message = self._open
        if message is None:
            return
        self._lines[get_text(line, "uuid")] = message.item_id
        if len(self._lines) > LINES:
            del self._lines[next(iter(self._lines))]
        for block in blocks:
            yield from self._whole_block(message, block, line)
        if get_text(native, "stop_reason") and not message.streamed:
            message.stop_reason = get_text(native, "stop_reason")
            yield from self._end(line, interrupted=False)

    def _whole_block(self, message: _Message, block: Msg, raw: Msg) -> Iterator[Fact]:
        kind = get_text(block, "type")
        if kind == "tool_use":
            message.calls = True
            yield from self._tool_use(block, message.item_id, raw)
        elif kind in ("text", "thinking"):
            yield from self._whole_text(message, "reasoning" if kind == "thinking" else "text", as_text(block.get(kind)), raw)
        else:
            yield from self.ctx.leave_out("block", kind, IGNORED_BLOCKS, "content block", raw)

    def _whole_text(self, message: _Message, kind: Literal["text", "reasoning"], text: str, raw: Msg) -> Iterator[Fact]:
        part = next((p for p in message.parts if p.kind == kind and not p.confirmed), None)
        if part is None:
            if not text:
                return
            part = self._part(message, kind)
        part.confirmed = True
        if rest := part.add_rest(text):
            yield self.delta(message.item_id, message.native_id, rest, part.index, kind, raw, synthetic=True)

    def _tool_use(self, block: Msg, parent_id: str, raw: Msg) -> Iterator[Fact]:
        call_id = get_text(block, "id")
        call = self.calls.get(call_id)
        if block.get("type") != "tool_use" or not call_id or (call is not None and call.arguments is not None):
            self.ctx.ignore("tool_use, again")
            return
        if call is None:
            call = self._call(None, block, parent_id)
            call.arguments = obj(block.get("input"))
            yield self.call_fact(call, ItemStatus.IN_PROGRESS, raw)
        call.arguments = obj(block.get("input"))
        yield self.call_fact(call, ItemStatus.COMPLETED, raw, title=title_of(call.name, call.arguments))

    def result(self, call: Call, result: kit.Result, raw: Msg) -> Iterator[Fact]:
        """Handle a tool's result, which ends its call, and also a message that was not streamed."""
        if self._open is not None and not self._open.streamed:
            yield from self._end(raw, interrupted=False)
        self.calls.pop(call.call_id, None)
        if call.arguments is None:
            yield self.call_fact(call, ItemStatus.COMPLETED, raw)
        metadata = result.metadata if call.answers is None else {**result.metadata, "answers": call.answers}
        yield self.result_fact(call, result.content, metadata, raw, kit.end_status(failed=result.failed))

    def retract(self, uuids: Iterable[str], raw: Msg) -> Iterator[Fact]:
        """Take back the messages that have no other lines than these: another model answers instead. Twice is as once."""
        items = {item_id for uuid in uuids if (item_id := self._lines.pop(uuid, ""))} - set(self._lines.values())
        if items:
            if self._open is not None and self._open.item_id in items:
                yield from self._end(raw, interrupted=False)
            yield self.ctx.status("retracted", None, {"item_ids": sorted(items)}, raw, child=self.child)

    def user(self, text: str, raw: Json, *, synthetic: bool) -> Fact:
        """A message of the person, or the task that the agent gives a subagent."""
        return self.user_fact((TextPart(text=text),), raw, synthetic=synthetic)

    # --- ends -----------------------------------------------------------------------------------------

    def boundary(self, raw: Json) -> Iterator[Fact]:
        """A line came that follows only a finished message. A message that still streams was cut off."""
        if self._open is not None:
            yield from self._end(raw, interrupted=self._open.streamed)

    def close(self, raw: Json) -> Iterator[Fact]:
        """Complete the open message, then the calls without a result, because no more lines will come."""
        yield from self.boundary(raw)
        for call in [call for call in self.calls.values() if call.thread == self.child]:
            yield from self.abandon(call, raw)

    def abandon(self, call: Call, raw: Json) -> Iterator[Fact]:
        """End a call that will never have a result, or not even complete arguments."""
        self.calls.pop(call.call_id, None)
        if call.arguments is None:
            yield self.call_fact(call, ItemStatus.FAILED, raw, synthetic=True)
        else:
            content = kit.output_part(call, kit.ABANDONED)
            yield self.result_fact(call, content, dict(kit.INTERRUPTED), raw, ItemStatus.FAILED, synthetic=True)

    def _end(self, raw: Json, *, interrupted: bool) -> Iterator[Fact]:
        message, self._open = self._open, None
        if message is not None:
            yield self.item_fact(self._message_item(message, kit.end_status(failed=interrupted)), raw)

    # --- building -------------------------------------------------------------------------------------

    def _part(self, message: _Message, kind: Literal["text", "reasoning"]) -> _Part:
        part = _Part(kind, len(message.parts))
        message.parts.append(part)
        return part

    def _call(self, message: _Message | None, block: Msg, parent_id: str = "") -> Call:
        if message is not None:
            message.calls = True
        call = Call(
            call_id=get_text(block, "id"),
            name=get_text(block, "name") or "unknown",
            item_id=self.ctx.ids("item"),
            parent_id=message.item_id if message else parent_id,
            thread=self.child,
        )
        self.calls[call.call_id] = call
        return call

    def _message_item(self, message: _Message, status: ItemStatus) -> Item:
        is_done = status is not ItemStatus.IN_PROGRESS
        metadata: dict[str, Json] = {}
        if message.model == SYNTHETIC_MODEL:
            metadata["synthetic_text"] = True
        elif message.model:
            metadata["model"] = self.ctx.model_of(message.model)
        if is_done:
            if message.usage and message.model != SYNTHETIC_MODEL:
                metadata["usage"] = usage_of(message.usage)
            finish = FINISH.get(message.stop_reason, message.stop_reason) or ("tool-calls" if message.calls else "")
            if finish and status is ItemStatus.COMPLETED:
                metadata["finish"] = finish
            if status is ItemStatus.FAILED:
                metadata["interrupted"] = True
        content = kit.contents(message.parts) if is_done else ()
        return kit.message_item(message.item_id, message.native_id, status, content, metadata)

    def _text_fact(
        self,
        item_id: str,
        native_id: str,
        text: str,
        index: int,
        kind: kit.DeltaKind,
        raw: Json,
        native_session_id: str | None = None,
    ) -> Fact:
        """A delta that already has the id of the conversation."""
        data = delta_data(item_id, native_id or None, text, index, kind)
        return Fact(EventType.ITEM_DELTA, data, raw, False, self.child, native_session_id)


def _index(event: Msg) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else -1
