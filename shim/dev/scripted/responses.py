"""The wire format of OpenAI Responses, which Codex speaks: `POST /v1/responses`, streamed or whole."""

from __future__ import annotations

import json

from shim.dev.scripted.answers import Answer, ScriptedRequest, Turn, text_of
from shim.dev.scripted.tools import Body, Call
from shim.dev.scripted.wire import INPUT_TOKENS, OUTPUT_TOKENS, new_id, words
from universal.items import Json
from universal.lib.jsonvalue import arr, obj

CREATED_S = 1767225600
USAGE: Body = {
    "input_tokens": INPUT_TOKENS,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": OUTPUT_TOKENS,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


def offered_tools(body: Body) -> dict[str, tuple[str, str]]:
    """Offered tools, and tools that a search has found: name -> (type, namespace). MCP: `mcp__server__` + `echo`."""
    out: dict[str, tuple[str, str]] = {}
    search_results = [tool for item in map(obj, arr(body.get("input"))) for tool in arr(item.get("tools"))]
    for tool in map(obj, [*arr(body.get("tools")), *search_results]):
        kind, name = str(tool.get("type", "")), str(tool.get("name") or tool.get("type") or "")
        if kind == "namespace":
            for inner in map(obj, arr(tool.get("tools"))):
                joined = name if name.startswith("mcp") else ""
                out[f"{joined}{inner.get('name', '')}"] = (str(inner.get("type", "function")), name)
        else:
            out[name] = (kind, "")
    return out


def parse_request(body: Body) -> ScriptedRequest:
    """Parse a request. Tool results of one step stand in a row."""
    input_ = body.get("input")
    items = [{"role": "user", "content": input_}] if isinstance(input_, str) else [obj(item) for item in arr(input_)]
    history: list[Turn] = []
    previous = ""
    for item in items:
        kind = str(item.get("type", "message"))
        if kind.endswith("_output") and not previous.endswith("_output"):
            history.append(("tool", ""))
        elif kind == "agent_message":  # a subagent's task, which is marked as encrypted, and its answer to the parent
            parts = [str(obj(part).get("encrypted_content") or "") for part in arr(item.get("content"))]
            history.append(("user", "".join(parts)))
        elif kind == "message" and item.get("role") == "user":
            history.append(("user", text_of(item.get("content"))))
        previous = kind
    return ScriptedRequest(tuple(history), tuple(offered_tools(body)), text_of(body.get("instructions")), body)


def _item(call: Call, tools: dict[str, tuple[str, str]]) -> Body:
    kind, namespace = tools.get(call.name, ("function", ""))
    call_id = new_id("call_")
    if kind == "tool_search":
        search: Body = {"type": "tool_search_call", "id": new_id("ts_"), "call_id": call_id, "status": "completed"}
        return {**search, "execution": "client", "arguments": call.arguments}
    if kind == "custom" and call.free is not None:
        id_ = new_id("ctc_")
        return {"type": "custom_tool_call", "id": id_, "call_id": call_id, "name": call.name, "input": call.free}
    item: Body = {"type": "function_call", "id": new_id("fc_"), "call_id": call_id, "status": "completed"}
    item |= {"name": call.name.removeprefix(namespace), "arguments": json.dumps(call.arguments)}
    return {**item, "namespace": namespace} if namespace else item


class _Stream:
    """Collects events and numbers them."""

    def __init__(self, response: Body) -> None:
        self.out: list[Json] = []
        self.events: list[Body] = [{"type": "response.created", "sequence_number": 0, "response": response}]

    def add(self, kind: str, **data: Json) -> None:
        self.events.append({"type": kind, "sequence_number": len(self.events), **data})

    def add_reasoning(self, text: str) -> None:
        index, id_ = len(self.out), new_id("rs_")
        item: Body = {"type": "reasoning", "id": id_, "summary": []}
        place: Body = {"item_id": id_, "output_index": index, "summary_index": 0}
        self.add("response.output_item.added", output_index=index, item=item)
        self.add("response.reasoning_summary_part.added", **place, part={"type": "summary_text", "text": ""})
        for word in words(text):
            self.add("response.reasoning_summary_text.delta", **place, delta=word)
        self.add("response.reasoning_summary_text.done", **place, text=text)
        item = {**item, "summary": [{"type": "summary_text", "text": text}]}
        self.add("response.output_item.done", output_index=index, item=item)
        self.out.append(item)

    def message(self, text: str, *, whole: bool) -> None:
        index, id_ = len(self.out), new_id("msg_")
        item: Body = {"type": "message", "id": id_, "role": "assistant", "status": "in_progress", "content": []}
        place: Body = {"item_id": id_, "output_index": index, "content_index": 0}
        empty: Body = {"type": "output_text", "text": "", "annotations": []}
        self.add("response.output_item.added", output_index=index, item=item)
        self.add("response.content_part.added", **place, part=empty)
        for word in words(text):
            self.add("response.output_text.delta", **place, delta=word)
        if whole:
            self.add("response.output_text.done", **place, text=text)
            item = {**item, "status": "completed", "content": [{**empty, "text": text}]}
            self.add("response.output_item.done", output_index=index, item=item)
        self.out.append(item)

    def call(self, item: Body) -> None:
        index = len(self.out)
        self.add("response.output_item.added", output_index=index, item=item)
        self.add("response.output_item.done", output_index=index, item=item)
        self.out.append(item)


def frames(answer: Answer, body: Body) -> list[Body]:
    """The events of a streamed answer. The last one has the whole response."""
    response: Body = {"id": new_id("resp_"), "object": "response", "created_at": CREATED_S}
    response |= {"model": body.get("model", "m"), "status": "in_progress", "output": []}
    stream = _Stream(response)
    if answer.reasoning:
        stream.add_reasoning(answer.reasoning)
    if answer.text:
        stream.message(answer.text, whole=not answer.hang)
    tools = offered_tools(body)
    for call in answer.calls:
        stream.call(_item(call, tools))
    if not answer.hang:
        end = "incomplete" if answer.cut else "completed"
        ended: Body = {**response, "status": end, "output": stream.out, "usage": USAGE}
        if answer.cut:
            ended["incomplete_details"] = {"reason": "max_output_tokens"}
        stream.add(f"response.{end}", response=ended)
    return stream.events
