"""Makes the items of Pi's messages: text and thinking, tool calls with their growing output, results.

Parts are found by `contentIndex`, because with `openai-completions` all `*_end` come at the end of the message. Source:
recordings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from universal.agents import kit
from universal.agents.pi.tools import read_result, text_of, title_of
from universal.agents.pi.wire import FINISH, NAME, Msg, cost_of, model_id, usage_of
from universal.codec import Fact
from universal.items import Json
from universal.lib.jsonline import get_int, get_text
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text


@dataclass(slots=True)
class Voice:
    """Lines about messages and tools go in, facts come out."""

    ctx: kit.Context
    speech: kit.Speech
    directory: str = ""
    _slots: dict[int, str] = field(default_factory=dict[int, str])
    """Place in the message -> call id."""

    def message(self, msg: Msg, level: str) -> Iterator[Fact]:
        """Begin an assistant message. A message that has failed already is left out."""
        native = obj(msg.get("message"))
        self._slots = {}
        if get_text(native, "stopReason") not in ("error", "aborted"):
            yield from self._begin(native, level, msg)

    def _begin(self, native: Msg, level: str, msg: Msg) -> Iterator[Fact]:
        model: dict[str, Json] = {"provider_id": NAME, "model_id": model_id(native), "variant": level or None}
        yield from self.speech.begin(msg, native_id=get_text(native, "responseId"), model=model)

    def delta(self, msg: Msg) -> Iterator[Fact]:
        event = obj(msg.get("assistantMessageEvent"))
        kind = "text" if event.get("type") == "text_delta" else "reasoning"
        yield from self.speech.say(get_int(event, "contentIndex"), kind, as_text(event.get("delta")), msg)

    def part_end(self, msg: Msg) -> Iterator[Fact]:
        event = obj(msg.get("assistantMessageEvent"))
        kind = "text" if event.get("type") == "text_end" else "reasoning"
        yield from self.speech.whole(get_int(event, "contentIndex"), kind, as_text(event.get("content")), msg)

    def call(self, msg: Msg) -> Iterator[Fact]:
        """Begin a call. 0.87 names it; before, it is found in the message so far."""
        event = obj(msg.get("assistantMessageEvent"))
        place = get_int(event, "contentIndex")
        rows = arr(obj(event.get("partial")).get("content"))
        so_far = obj(rows[place]) if 0 <= place < len(rows) else {}
        call_id = get_text(event, "id") or get_text(so_far, "id")
        if call_id and self.speech.is_speaking:
            self._slots[place] = call_id
            yield from self.speech.call(call_id, get_text(event, "toolName") or get_text(so_far, "name"), msg)

    def call_delta(self, msg: Msg) -> Iterator[Fact]:
        event = obj(msg.get("assistantMessageEvent"))
        call_id = self._slots.get(get_int(event, "contentIndex"), "")
        yield from self.speech.call_delta(call_id, as_text(event.get("delta")), msg)

    def call_end(self, msg: Msg) -> Iterator[Fact]:
        yield from self._call(obj(obj(msg.get("assistantMessageEvent")).get("toolCall")), msg)

    def _call(self, block: Msg, msg: Msg) -> Iterator[Fact]:
        arguments, name = obj(block.get("arguments")), get_text(block, "name") or "unknown"
        yield from self.speech.call_whole(get_text(block, "id"), name, arguments, title_of(name, arguments), msg)

    def message_end(self, msg: Msg, level: str) -> Iterator[Fact]:
        """End a message with its whole content. It ends before its tools run."""
        native = obj(msg.get("message"))
        stop, usage = get_text(native, "stopReason"), obj(native.get("usage"))
        failed = stop in ("error", "aborted")
        blocks = [obj(block) for block in arr(native.get("content"))]
        if not self.speech.is_speaking and blocks:
            yield from self._begin(native, level, msg)
        for place, block in enumerate(blocks):
            kind = get_text(block, "type")
            if kind == "text":
                yield from self.speech.whole(place, "text", as_text(block.get("text")), msg)
            elif kind == "thinking":
                yield from self.speech.whole(place, "reasoning", as_text(block.get("thinking")), msg)
            elif kind == "toolCall":
                if not failed:
                    yield from self._call(block, msg)
            else:
                yield self.ctx.report_unparsed(f"block/{kind or '?'}", "unknown content block", msg)
        metadata: dict[str, Json] = {"usage": usage_of(usage), "cost": cost_of(usage)}
        if stop in FINISH:
            metadata["finish"] = FINISH[stop]
        yield from self.speech.end(msg, interrupted=failed, metadata=metadata)

    # --- tools ------------------------------------------------------------------------------------------

    def tool(self, msg: Msg) -> Iterator[Fact]:
        """Begin to run a tool. Its call is complete now at the latest."""
        block = {"id": msg.get("toolCallId"), "name": msg.get("toolName"), "arguments": msg.get("args")}
        yield from self._call(block, msg)

    def output(self, msg: Msg) -> Iterator[Fact]:
        """Add the output so far. Pi keeps only the end of a long output, which cannot be sent in pieces."""
        output = text_of(obj(msg.get("partialResult")).get("content"))
        return self.speech.output_so_far(get_text(msg, "toolCallId"), output, "tool_execution_update", msg)

    def result(self, msg: Msg) -> Iterator[Fact]:
        call = self.speech.calls.get(get_text(msg, "toolCallId"))
        if call is None:
            self.ctx.ignore("tool_execution_end of no open call")
            return
        yield from self.speech.call_whole(call.call_id, call.name, {}, call.name, msg)
        failed = msg.get("isError") is True
        native = obj(msg.get("result"))
        result = read_result(call.call_id, call.name, call.arguments or {}, native, failed=failed, directory=self.directory)
        yield from self.speech.result(call, result.content, result.metadata, msg, failed=failed)
