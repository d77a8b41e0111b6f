"""What an agent says, as items: messages with their parts, tool calls, results. For codecs to share.

Owns the life of items: each is started before it is completed, and completed exactly once; the text of a message is
the concatenation of its deltas; each call whose arguments are whole has exactly one result.
A codec calls these in the order in which its agent speaks and passes on the facts.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from universal.codec import Fact, IdFactory
from universal.counting import Kinds
from universal.events import EventData, EventType, ItemData, ItemDeltaData, UnparsedData
from universal.growing import Growing
from universal.items import (
    ContentPart,
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

PartKind: TypeAlias = Literal["text", "reasoning"]
ABANDONED = "The tool call was interrupted before it had a result."


@dataclass(slots=True)
class Context:
    """What the parts of one codec share."""

    agent: str
    ids: IdFactory
    counters: Kinds = field(default_factory=Kinds)

    def ignore(self, what: str) -> None:
        """Count something that is known and not used."""
        self.counters[f"ignored:{what}"] += 1

    def unparsed(self, what: str, error: str, raw: Json, raw_hash: str | None = None) -> Fact:
        """Something that no rule knows."""
        self.counters[f"unparsed:{what}"] += 1
        data = UnparsedData(error=error, location=f"{self.agent} stdout: {what}", raw_hash=raw_hash)
        return Fact(EventType.UNPARSED, data, raw=raw, synthetic=True)

    def status(self, label: str, detail: str | None, metadata: dict[str, Json], raw: Json) -> Fact:
        """A complete item of kind status; `metadata` as listed at `universal.items.Item`."""
        return self._complete(ItemKind.STATUS, StatusPart(label=label, detail=detail), metadata, raw)

    def note(self, words: str, raw: Json) -> Fact:
        """Words for the person that are nobody's message: a warning."""
        return self._complete(ItemKind.SYSTEM, TextPart(text=words), None, raw)

    def _complete(self, kind: ItemKind, part: ContentPart, metadata: dict[str, Json] | None, raw: Json) -> Fact:
        item = Item(
            item_id=self.ids("item"),
            kind=kind,
            role=ItemRole.SYSTEM,
            status=ItemStatus.COMPLETED,
            content=(part,),
            metadata=metadata,
        )
        return Fact(EventType.ITEM_COMPLETED, ItemData(item=item), raw=raw)


@dataclass(slots=True)
class Call:
    """A tool call from its first sign to its result."""

    call_id: str
    name: str
    item_id: str
    parent_id: str
    arguments: dict[str, Json] | None = None
    """None until they are whole."""
    partial: Growing = field(default_factory=Growing)
    result_id: str = ""
    """Item of its result, once it has begun to give output."""
    output: str = ""
    answers: list[list[str]] | None = None
    """What our reply to its question was."""


@dataclass(slots=True)
class _Part:
    kind: PartKind
    index: int
    said: Growing = field(default_factory=Growing)


@dataclass(slots=True)
class _Message:
    item_id: str
    native_id: str
    model: dict[str, Json] | None
    parts: list[_Part] = field(default_factory=list[_Part])
    slots: dict[Hashable, _Part] = field(default_factory=dict[Hashable, _Part])


@dataclass(slots=True)
class Speech:
    """One conversation."""

    ctx: Context
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    """Open calls by their id."""
    child: str | None = None
    _open: _Message | None = None
    _last_id: str = ""

    # --- messages -------------------------------------------------------------------------------------

    @property
    def speaking(self) -> bool:
        """Whether a message is open."""
        return self._open is not None

    def begin(self, raw: Json, *, native_id: str = "", model: dict[str, Json] | None = None) -> Iterator[Fact]:
        """A message begins; one that is still open was cut off."""
        yield from self.end(raw, interrupted=True)
        message = self._open = _Message(self.ctx.ids("item"), native_id, model)
        self._last_id = message.item_id
        item = self._message_item(message, ItemStatus.IN_PROGRESS, None)
        yield self._fact(EventType.ITEM_STARTED, ItemData(item=item), raw)

    def say(self, slot: Hashable, kind: PartKind, text: str, raw: Json, *, synthetic: bool = False) -> Iterator[Fact]:
        """A piece of text for the part in this slot. Parts without text do not exist."""
        message = self._open
        if message is None or not text:
            return
        part = message.slots.get(slot)
        if part is None:
            part = message.slots[slot] = _Part(kind, len(message.parts))
            message.parts.append(part)
        part.said.add(text)
        data = ItemDeltaData(
            item_id=message.item_id,
            native_item_id=message.native_id or None,
            delta=text,
            part_index=part.index,
            part_type=part.kind,
        )
        yield self._fact(EventType.ITEM_DELTA, data, raw, synthetic=synthetic)

    def whole(self, slot: Hashable, kind: PartKind, text: str, raw: Json) -> Iterator[Fact]:
        """The whole text of a part: what was not said yet is one synthetic delta."""
        part = self._open.slots.get(slot) if self._open is not None else None
        said = part.said.text if part is not None else ""
        if text.startswith(said):
            yield from self.say(slot, kind, text.removeprefix(said), raw, synthetic=True)

    def end(self, raw: Json, *, interrupted: bool = False, metadata: dict[str, Json] | None = None) -> Iterator[Fact]:
        """The open message is over, if there is one. `metadata`: usage, cost, finish."""
        message, self._open = self._open, None
        if message is None:
            return
        status = ItemStatus.FAILED if interrupted else ItemStatus.COMPLETED
        item = self._message_item(message, status, {**(metadata or {}), **({"interrupted": True} if interrupted else {})})
        yield self._fact(EventType.ITEM_COMPLETED, ItemData(item=item), raw)

    def user(self, text: str, raw: Json, *, synthetic: bool = False) -> Fact:
        """A message that somebody else put into the conversation."""
        item = Item(
            item_id=self.ctx.ids("item"),
            kind=ItemKind.MESSAGE,
            role=ItemRole.USER,
            status=ItemStatus.COMPLETED,
            content=(TextPart(text=text),),
        )
        return self._fact(EventType.ITEM_COMPLETED, ItemData(item=item), raw, synthetic=synthetic)

    def close(self, raw: Json) -> Iterator[Fact]:
        """Nothing more will come: the open message, then the calls without a result, are reported as they are."""
        yield from self.end(raw, interrupted=True)
        for call in list(self.calls.values()):
            if call.arguments is None:
                del self.calls[call.call_id]
                item = self._call_item(call, ItemStatus.FAILED, call.partial.text, {"interrupted": True})
                fact = self._fact(EventType.ITEM_COMPLETED, ItemData(item=item), raw)
                yield replace(fact, synthetic=True)
            else:
                content = (ToolResultPart(call_id=call.call_id, output=call.output or ABANDONED),)
                for fact in self.result(call, content, {"interrupted": True}, raw, failed=True):
                    yield replace(fact, synthetic=True)

    # --- tools ----------------------------------------------------------------------------------------

    def call(self, call_id: str, name: str, raw: Json) -> Iterator[Fact]:
        """A call begins; its arguments follow. Belongs to the last message."""
        if call_id in self.calls or not call_id:
            return
        call = self.calls[call_id] = Call(call_id, name or "unknown", self.ctx.ids("item"), self._last_id)
        item = self._call_item(call, ItemStatus.IN_PROGRESS, "", None)
        yield self._fact(EventType.ITEM_STARTED, ItemData(item=item), raw)

    def call_delta(self, call_id: str, text: str, raw: Json) -> Iterator[Fact]:
        """A piece of the arguments' JSON text."""
        call = self.calls.get(call_id)
        if call is None or call.arguments is not None or not text:
            return
        call.partial.add(text)
        data = ItemDeltaData(item_id=call.item_id, native_item_id=call_id, delta=text, part_type="tool_input")
        yield self._fact(EventType.ITEM_DELTA, data, raw)

    def call_whole(self, call_id: str, name: str, arguments: dict[str, Json], title: str, raw: Json) -> Iterator[Fact]:
        """The whole arguments, after their deltas or instead of them; a second time nothing."""
        yield from self.call(call_id, name, raw)
        call = self.calls.get(call_id)
        if call is None or call.arguments is not None:
            return
        call.arguments = arguments
        text = json.dumps(arguments, ensure_ascii=False)
        item = self._call_item(call, ItemStatus.COMPLETED, text, {"title": title, "input": arguments})
        yield self._fact(EventType.ITEM_COMPLETED, ItemData(item=item), raw)

    def output(self, call: Call, text: str, raw: Json) -> Iterator[Fact]:
        """More output of a tool that runs."""
        if not text or call.arguments is None:
            return
        if not call.result_id:
            call.result_id = self.ctx.ids("item")
            content = (ToolResultPart(call_id=call.call_id, output=""),)
            item = self._result_item(call, content, ItemStatus.IN_PROGRESS, {})
            yield self._fact(EventType.ITEM_STARTED, ItemData(item=item), raw)
        call.output += text
        data = ItemDeltaData(item_id=call.result_id, native_item_id=call.call_id, delta=text, part_type="tool_output")
        yield self._fact(EventType.ITEM_DELTA, data, raw)

    def result(
        self, call: Call, content: tuple[ContentPart, ...], metadata: dict[str, Json], raw: Json, *, failed: bool
    ) -> Iterator[Fact]:
        """A call's result; the call is over."""
        if self.calls.pop(call.call_id, None) is None:
            return
        if call.answers is not None:
            metadata = {**metadata, "answers": call.answers}
        call.result_id = call.result_id or self.ctx.ids("item")
        status = ItemStatus.FAILED if failed else ItemStatus.COMPLETED
        item = self._result_item(call, content, status, metadata)
        yield self._fact(EventType.ITEM_COMPLETED, ItemData(item=item), raw)

    # --- building -------------------------------------------------------------------------------------

    def _message_item(self, message: _Message, status: ItemStatus, more: dict[str, Json] | None) -> Item:
        """`more` is None while it is in progress."""
        done = more is not None
        metadata = {**({"model": message.model} if message.model else {}), **(more or {})}
        parts = message.parts if done else []
        return Item(
            item_id=message.item_id,
            native_item_id=message.native_id or None,
            kind=ItemKind.MESSAGE,
            role=ItemRole.ASSISTANT,
            status=status,
            content=tuple(TextPart(text=p.said.text) if p.kind == "text" else ReasoningPart(text=p.said.text) for p in parts),
            metadata=metadata or None,
        )

    def _call_item(self, call: Call, status: ItemStatus, arguments: str, metadata: dict[str, Json] | None) -> Item:
        return Item(
            item_id=call.item_id,
            native_item_id=call.call_id,
            parent_id=call.parent_id,
            kind=ItemKind.TOOL_CALL,
            role=ItemRole.TOOL,
            status=status,
            content=(ToolCallPart(name=call.name, arguments=arguments, call_id=call.call_id),),
            metadata=metadata,
        )

    def _result_item(self, call: Call, content: tuple[ContentPart, ...], status: ItemStatus, metadata: dict[str, Json]) -> Item:
        return Item(
            item_id=call.result_id,
            native_item_id=call.call_id,
            parent_id=call.parent_id,
            kind=ItemKind.TOOL_RESULT,
            role=ItemRole.TOOL,
            status=status,
            content=content,
            metadata=metadata or None,
        )

    def _fact(self, type_: EventType, data: EventData, raw: Json, *, synthetic: bool = False) -> Fact:
        return Fact(type_, data, raw=raw, synthetic=synthetic or raw is None, child=self.child)
