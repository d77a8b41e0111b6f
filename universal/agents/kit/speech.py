"""Makes the items of an agent with a simple protocol: messages with their parts, tool calls, results.

Each item is started before it is completed, and completed exactly once. The text of a message is the concatenation of its deltas.
Each call with complete arguments has exactly one result. A codec calls the methods in the order of the agent's messages, and
returns the facts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from universal.agents.kit.context import Context
from universal.agents.kit.items import (
    ABANDONED,
    INTERRUPTED,
    Call,
    Items,
    Part,
    PartKind,
    contents,
    end_status,
    message_item,
    output_part,
    result_item,
)
from universal.codec import Fact
from universal.items import ContentPart, Item, ItemStatus, Json, TextPart


@dataclass(slots=True)
class _Message:
    item_id: str
    native_id: str
    model: dict[str, Json] | None
    parts: list[Part] = field(default_factory=list[Part])
    slots: dict[Hashable, Part] = field(default_factory=dict[Hashable, Part])


@dataclass(slots=True)
class Speech(Items[Context]):
    """The items of one conversation."""

    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    """Open calls by their id."""
    _open: _Message | None = None
    _last_id: str = ""

    # --- messages -------------------------------------------------------------------------------------

    @property
    def is_speaking(self) -> bool:
        return self._open is not None

    def begin(self, raw: Json, *, native_id: str = "", model: dict[str, Json] | None = None) -> Iterator[Fact]:
        """Begin a message. A message that is still open was cut off."""
        yield from self.end(raw, interrupted=True)
        message = self._open = _Message(self.ctx.ids("item"), native_id, model)
        self._last_id = message.item_id
        yield self.item_fact(self._message_item(message, ItemStatus.IN_PROGRESS, None), raw)

    def say(self, slot: Hashable, kind: PartKind, text: str, raw: Json, *, synthetic: bool = False) -> Iterator[Fact]:
        """Add a piece of text to the part in this slot. The part begins with its first text."""
        message = self._open
        if message is None or not text:
            return
        part = message.slots.get(slot)
        if part is None:
            part = message.slots[slot] = Part(kind, len(message.parts))
            message.parts.append(part)
        part.growing.add(text)
        yield self._delta(message, part, text, raw, synthetic=synthetic)

    def whole(self, slot: Hashable, kind: PartKind, text: str, raw: Json) -> Iterator[Fact]:
        """Add the whole text of a part. Text without deltas becomes one synthetic delta."""
        part = self._open.slots.get(slot) if self._open is not None else None
        said = part.growing.text if part is not None else ""
        if text.startswith(said):
            yield from self.say(slot, kind, text.removeprefix(said), raw, synthetic=True)

    def end(self, raw: Json, *, interrupted: bool = False, metadata: dict[str, Json] | None = None) -> Iterator[Fact]:
        """End the open message, if there is one. `metadata`: usage, cost, finish."""
        message, self._open = self._open, None
        if message is None:
            return
        more = {**(metadata or {}), **(INTERRUPTED if interrupted else {})}
        yield self.item_fact(self._message_item(message, end_status(failed=interrupted), more), raw)

    def user(self, text: str, raw: Json, *, synthetic: bool = False) -> Fact:
        """The facts of a message of the user, or of another sender."""
        return self.user_fact((TextPart(text=text),), raw, synthetic=synthetic)

    def close(self, raw: Json) -> Iterator[Fact]:
        """Complete the open message, then the calls without a result, because no more messages will come."""
        yield from self.end(raw, interrupted=True)
        for call in list(self.calls.values()):
            if call.arguments is None:
                del self.calls[call.call_id]
                yield self.call_fact(call, ItemStatus.FAILED, raw, synthetic=True)
            else:
                content = output_part(call, call.output or ABANDONED)
                for fact in self.result(call, content, dict(INTERRUPTED), raw, failed=True):
                    yield fact._replace(synthetic=True)

    # --- tools ----------------------------------------------------------------------------------------

    def call(self, call_id: str, name: str, raw: Json) -> Iterator[Fact]:
        """Begin a call of the last message. Its arguments follow."""
        if call_id in self.calls or not call_id:
            return
        call = self.calls[call_id] = Call(call_id, name or "unknown", self.ctx.ids("item"), self._last_id)
        yield self.call_fact(call, ItemStatus.IN_PROGRESS, raw)

    def call_delta(self, call_id: str, text: str, raw: Json) -> Iterator[Fact]:
        """Add a piece of the arguments' JSON text."""
        call = self.calls.get(call_id)
        if call is None or call.arguments is not None or not text:
            return
        call.partial.add(text)
        yield self.delta(call.item_id, call_id, text, 0, "tool_input", raw, synthetic=raw is None)

    def call_whole(self, call_id: str, name: str, arguments: dict[str, Json], title: str, raw: Json) -> Iterator[Fact]:
        """Complete a call by its whole arguments, after their deltas or instead of them. Only the first time counts."""
        yield from self.call(call_id, name, raw)
        call = self.calls.get(call_id)
        if call is None or call.arguments is not None:
            return
        call.arguments = arguments
        yield self.call_fact(call, ItemStatus.COMPLETED, raw, title=title)

    def output(self, call: Call, text: str, raw: Json) -> Iterator[Fact]:
        """Add output of a call that runs."""
        if text and call.arguments is not None:
            yield from self.output_piece(call, text, raw)

    def output_so_far(self, call_id: str, text: str, kind: str, raw: Json) -> Iterator[Fact]:
        """Add what is new of the whole output of a call. What an agent has shortened cannot be sent in pieces."""
        call = self.calls.get(call_id)
        if call is None or not text.startswith(call.output):
            self.ctx.ignore(f"{kind} that continues nothing")
            return
        yield from self.output(call, text.removeprefix(call.output), raw)

    def result(
        self, call: Call, content: tuple[ContentPart, ...], metadata: dict[str, Json], raw: Json, *, failed: bool
    ) -> Iterator[Fact]:
        if self.calls.pop(call.call_id, None) is None:
            return
        if call.answers is not None:
            metadata = {**metadata, "answers": call.answers}
        yield self.result_fact(call, content, metadata, raw, end_status(failed=failed))

    # --- building -------------------------------------------------------------------------------------

    def _message_item(self, message: _Message, status: ItemStatus, more: dict[str, Json] | None) -> Item:
        """`more` is None while the message is in progress."""
        metadata = {**({"model": message.model} if message.model else {}), **(more or {})}
        content = contents(message.parts) if more is not None else ()
        return message_item(message.item_id, message.native_id, status, content, metadata)

    def _result_item(
        self, call: Call, content: tuple[ContentPart, ...], metadata: dict[str, Json] | None, status: ItemStatus
    ) -> Item:
        return result_item(call, status, content, metadata, native_id=call.call_id)

    def _delta(self, message: _Message, part: Part, text: str, raw: Json, *, synthetic: bool) -> Fact:
        synthetic = synthetic or raw is None
        return self.delta(message.item_id, message.native_id, text, part.index, part.kind, raw, synthetic=synthetic)
