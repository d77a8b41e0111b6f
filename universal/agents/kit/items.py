"""Builds the items of the universal schema: messages, tool calls, results, and deltas of their text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, TypeAlias

from universal.agents.kit.context import ContextT
from universal.codec import Fact
from universal.events import EventData, EventType, ItemData, delta_data
from universal.items import (
    ContentPart,
    ImagePart,
    Item,
    ItemKind,
    ItemRole,
    ItemStatus,
    Json,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj

PartKind: TypeAlias = Literal["text", "reasoning"]
DeltaKind: TypeAlias = Literal["text", "reasoning", "tool_input", "tool_output"]

ABANDONED = "The tool call was interrupted before it had a result."
"""The result of a call that has none."""
INTERRUPTED: dict[str, Json] = {"interrupted": True}
"""`metadata` of an item that was cut off."""


class GrowingText:
    """A text that joins its pieces only when it is read, so that appending costs the same at any length."""

    __slots__ = ("_pieces", "add")

    def __init__(self, text: str = "") -> None:
        self._pieces = [text] if text else []
        self.add = self._pieces.append

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


@dataclass(frozen=True, slots=True)
class Result:
    """A tool's result: its content, and metadata as listed at `universal.items.Item`."""

    content: tuple[ContentPart, ...]
    metadata: dict[str, Json]
    failed: bool = False


def image(data: str, mime: str) -> ImagePart:
    """An image by its bytes in base64."""
    mime = mime or "image/png"
    return ImagePart(path=f"data:{mime};base64,{data}", mime=mime)


def images_of(content: Json) -> Iterator[ImagePart]:
    """The images of a list of content blocks. Anthropic's wire has their bytes inside of `source`."""
    for row in map(obj, arr(content)):
        source = obj(row.get("source")) or row
        if row.get("type") == "image" and (data := get_text(source, "data")):
            yield image(data, get_text(source, "media_type", "mimeType"))


@dataclass(slots=True)
class Part:
    """A part of a message that grows. `index` is its place in the message."""

    kind: PartKind
    index: int = 0
    growing: GrowingText = field(default_factory=GrowingText)

    def add_rest(self, whole: str) -> str:
        """Add the rest of the whole text after the deltas, and return it. "" if the deltas do not match."""
        text = self.growing.text
        rest = whole.removeprefix(text) if whole.startswith(text) else ""
        if rest:
            self.growing.add(rest)
        return rest


@dataclass(slots=True)
class Call:
    """A tool call from its first sign to its result."""

    call_id: str
    name: str
    item_id: str
    parent_id: str | None
    arguments: dict[str, Json] | None = None
    """None until the arguments are complete."""
    partial: GrowingText = field(default_factory=GrowingText)
    """The JSON text of the arguments so far."""
    result_id: str = ""
    """Id of the result's item, set with the first output."""
    output: str = ""
    """Output that was sent as deltas."""
    answers: list[list[str]] | None = None
    """The person's answers to its question."""
    is_refused: bool = False
    """Whether a person has refused it without words. The agent may give it the result of an interrupted call."""
    native_id: str = field(default="", kw_only=True)
    """The agent's id of the item that shows it, if it differs from the call's."""


def note_refusal(call: Call | None) -> None:
    """A person has refused this call without words, which ends the turn."""
    if call is not None:
        call.is_refused = True


def title_of(name: str, arguments: Mapping[str, Json], keys: Sequence[str]) -> str:
    """A line for a person about a call: the first of these arguments, its first question, or else the tool's name."""
    questions = [get_text(obj(row), "question") for row in arr(arguments.get("questions"))]
    return (get_text(arguments, *keys) or "".join(questions[:1])).partition("\n")[0][:200] or name


def dumps(value: Json) -> str:
    """JSON text of arguments."""
    return json.dumps(value, ensure_ascii=False)


def contents(parts: Iterable[Part]) -> tuple[ContentPart, ...]:
    """The content of a complete message."""
    return tuple(TextPart(text=p.growing.text) if p.kind == "text" else ReasoningPart(text=p.growing.text) for p in parts)


@dataclass(slots=True)
class Items(Generic[ContextT]):
    """Builds the facts about the items of one thread: the conversation itself, or (`child`) a subagent's.

    A fact without a native message is synthetic: an agent's terminal runs here, so its output is in no line of the agent.
    """

    CALL_ROLE: ClassVar[ItemRole] = ItemRole.TOOL

    ctx: ContextT
    child: str | None = field(default=None, kw_only=True)

    def fact(self, type_: EventType, data: EventData, raw: Json, *, synthetic: bool = False) -> Fact:
        return Fact(type_, data, raw=raw, synthetic=synthetic or raw is None, child=self.child)

    def item_fact(self, item: Item, raw: Json, *, synthetic: bool = False) -> Fact:
        """An item has started, or is complete, as its status says."""
        type_ = EventType.ITEM_STARTED if item.status is ItemStatus.IN_PROGRESS else EventType.ITEM_COMPLETED
        return self.fact(type_, ItemData(item=item), raw, synthetic=synthetic)

    def delta(
        self, item_id: str, native_id: str | None, text: str, index: int, kind: DeltaKind, raw: Json, *, synthetic: bool = False
    ) -> Fact:
        data = delta_data(item_id, native_id or None, text, index, kind)
        return Fact(EventType.ITEM_DELTA, data, raw, synthetic or raw is None, self.child)

    def user_fact(self, content: tuple[ContentPart, ...], raw: Json, *, native_id: str = "", synthetic: bool = False) -> Fact:
        """The facts of a complete message of the user, or of another sender."""
        item = Item(
            item_id=self.ctx.ids("item"),
            native_item_id=native_id or None,
            kind=ItemKind.MESSAGE,
            role=ItemRole.USER,
            status=ItemStatus.COMPLETED,
            content=content,
        )
        return self.item_fact(item, raw, synthetic=synthetic)

    # --- calls and their results ------------------------------------------------------------------------

    def call_fact(self, call: Call, status: ItemStatus, raw: Json, *, title: str | None = None, synthetic: bool = False) -> Fact:
        """A call begins, is complete with its arguments, or has failed without them."""
        text, metadata = call.partial.text, dict(INTERRUPTED) if status is ItemStatus.FAILED else None
        if status is ItemStatus.COMPLETED and call.arguments is not None:
            text, metadata = dumps(call.arguments), {**({} if title is None else {"title": title}), "input": call.arguments}
        return self.item_fact(call_item(call, status, text, metadata, self.CALL_ROLE), raw, synthetic=synthetic)

    def output_piece(self, call: Call, text: str, raw: Json) -> Iterator[Fact]:
        """A piece of a running call's output. The result begins with the first."""
        if not call.result_id:
            yield self.result_fact(call, output_part(call), None, raw, ItemStatus.IN_PROGRESS)
        call.output += text
        yield self.delta(call.result_id, call.native_id or call.call_id, text, 0, "tool_output", raw)

    def result_fact(
        self,
        call: Call,
        content: tuple[ContentPart, ...],
        metadata: dict[str, Json] | None,
        raw: Json,
        status: ItemStatus,
        *,
        synthetic: bool = False,
    ) -> Fact:
        """The result of a call begins or is complete."""
        call.result_id = call.result_id or self.ctx.ids("item")
        return self.item_fact(self._result_item(call, content, metadata, status), raw, synthetic=synthetic)

    def _result_item(
        self, call: Call, content: tuple[ContentPart, ...], metadata: dict[str, Json] | None, status: ItemStatus
    ) -> Item:
        return result_item(call, status, content, metadata)


def end_status(*, failed: bool) -> ItemStatus:
    """The status of an item that is over."""
    return ItemStatus.FAILED if failed else ItemStatus.COMPLETED


def message_item(
    item_id: str, native_id: str | None, status: ItemStatus, content: tuple[ContentPart, ...], metadata: dict[str, Json]
) -> Item:
    """The item of an agent's message."""
    return Item(
        item_id=item_id,
        native_item_id=native_id or None,
        kind=ItemKind.MESSAGE,
        role=ItemRole.ASSISTANT,
        status=status,
        content=content,
        metadata=metadata or None,
    )


def call_item(
    call: Call,
    status: ItemStatus,
    arguments: str,
    metadata: dict[str, Json] | None,
    role: ItemRole = ItemRole.TOOL,
) -> Item:
    """The item of a tool call. `arguments`: their JSON text so far."""
    return Item(
        item_id=call.item_id,
        native_item_id=call.native_id or call.call_id,
        parent_id=call.parent_id,
        kind=ItemKind.TOOL_CALL,
        role=role,
        status=status,
        content=(ToolCallPart(name=call.name, arguments=arguments, call_id=call.call_id),),
        metadata=metadata or None,
    )


def result_item(
    call: Call,
    status: ItemStatus,
    content: tuple[ContentPart, ...],
    metadata: dict[str, Json] | None,
    *,
    native_id: str | None = None,
    parent_id: str = "",
) -> Item:
    """The item of a tool result. `parent_id`: if it differs from the call's parent."""
    if call.is_refused and metadata:
        metadata = {key: value for key, value in metadata.items() if key not in INTERRUPTED}
    return Item(
        item_id=call.result_id,
        native_item_id=native_id,
        parent_id=parent_id or call.parent_id,
        kind=ItemKind.TOOL_RESULT,
        role=ItemRole.TOOL,
        status=status,
        content=content,
        metadata=metadata or None,
    )


def output_part(call: Call, output: str = "") -> tuple[ToolResultPart]:
    """The output of a call as content of its result."""
    return (ToolResultPart(call_id=call.call_id, output=output),)
