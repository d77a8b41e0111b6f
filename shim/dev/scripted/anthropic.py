"""The wire format of Anthropic Messages: `POST /v1/messages`, streamed or whole."""

from __future__ import annotations

import json
from typing import TypeAlias

from shim.dev.scripted.answers import Answer, ScriptedRequest, Turn, text_of
from shim.dev.scripted.tools import Body
from shim.dev.scripted.wire import INPUT_TOKENS, OUTPUT_TOKENS, new_id, slices, words
from universal.lib.jsonvalue import arr, obj

Frame: TypeAlias = tuple[str, Body]
"""(event name, data)."""


def parse_request(body: Body) -> ScriptedRequest:
    """Parse a request. A user message may hold several tool results, and Claude 2.1.330 puts a steered prompt in a system one."""
    history: list[Turn] = []
    for message in map(obj, arr(body.get("messages"))):
        if message.get("role") not in ("user", "system"):
            continue
        content = message.get("content")
        if any(obj(block).get("type") == "tool_result" for block in arr(content)):
            history.append(("tool", ""))
        history.append(("user", text_of(content)))
    names = tuple(str(obj(tool).get("name", "")) for tool in arr(body.get("tools")))
    return ScriptedRequest(tuple(history), names, text_of(body.get("system")), body)


def frames(answer: Answer, model: str, directory: str = "") -> list[Frame]:
    """The events of a streamed answer. `directory` is never cut in two."""
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    head: Body = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": model, "content": []}
    out: list[Frame] = [("message_start", {"message": {**head, "stop_reason": None, "stop_sequence": None, "usage": usage}})]
    blocks: list[tuple[Body, list[Body]]] = []
    if answer.reasoning:
        thoughts: list[Body] = [{"type": "thinking_delta", "thinking": word} for word in words(answer.reasoning)]
        signed: Body = {"type": "signature_delta", "signature": "c2ln"}
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signed]))
    if answer.text:
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in words(answer.text)]))
    for call in answer.calls:
        start: Body = {"type": "tool_use", "id": new_id("toolu_"), "name": call.name, "input": {}}
        pieces: list[Body] = [
            {"type": "input_json_delta", "partial_json": piece} for piece in slices(json.dumps(call.arguments), directory)
        ]
        blocks.append((start, pieces))
    for index, (start, deltas) in enumerate(blocks):
        out.append(("content_block_start", {"index": index, "content_block": start}))
        out += [("content_block_delta", {"index": index, "delta": delta}) for delta in deltas]
        if not answer.hang:
            out.append(("content_block_stop", {"index": index}))
    if not answer.hang:
        stop = "max_tokens" if answer.cut else "tool_use" if answer.calls else "end_turn"
        end: Body = {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": OUTPUT_TOKENS}}
        out += [("message_delta", end), ("message_stop", {})]
    return [(name, {"type": name, **data}) for name, data in out]


def whole(events: list[Frame]) -> Body:
    """The whole answer, for a client that does not stream (Claude's small requests)."""
    message = dict(obj(events[0][1]["message"]))
    blocks: list[Body] = []
    for name, data in events:
        if name == "content_block_start":
            blocks.append(dict(obj(data["content_block"])))
        elif name == "content_block_delta":
            delta, block = obj(data["delta"]), blocks[-1]
            for key in ("text", "thinking", "signature"):
                if key in delta:
                    block[key] += delta[key]
            if "partial_json" in delta:
                block["input"] = (block["input"] or "") + delta["partial_json"]
        elif name == "message_delta":
            message["stop_reason"] = obj(data["delta"])["stop_reason"]
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["input"] or "{}")
    return {**message, "content": blocks}
