"""The wire format of OpenAI Chat Completions: `POST /v1/chat/completions`, streamed or whole."""

from __future__ import annotations

import json

from shim.dev.scripted.answers import Answer, ScriptedRequest, Turn, text_of
from shim.dev.scripted.tools import Body
from shim.dev.scripted.wire import INPUT_TOKENS, OUTPUT_TOKENS, new_id, slices, words
from universal.items import Json
from universal.lib.jsonvalue import arr, obj

CREATED_S = 1767225600
USAGE: Body = {
    "prompt_tokens": INPUT_TOKENS,
    "completion_tokens": OUTPUT_TOKENS,
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


def parse_request(body: Body) -> ScriptedRequest:
    """Parse a request. Tool results of one step are messages in a row."""
    history: list[Turn] = []
    system: list[str] = []
    previous: Json = ""
    for message in map(obj, arr(body.get("messages"))):
        role = message.get("role")
        if role == "tool" and previous != "tool":
            history.append(("tool", ""))
        elif role == "user":
            history.append(("user", text_of(message.get("content"))))
        elif role in ("system", "developer"):
            system.append(text_of(message.get("content")))
        previous = role
    names = tuple(str(obj(obj(tool).get("function")).get("name", "")) for tool in arr(body.get("tools")))
    return ScriptedRequest(tuple(history), names, "\n".join(system), body)


def _finish(answer: Answer) -> str:
    return "length" if answer.cut else "tool_calls" if answer.calls else "stop"


def _calls(answer: Answer) -> list[Body]:
    return [
        {
            "index": index,
            "id": new_id("call_"),
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for index, call in enumerate(answer.calls)
    ]


def frames(answer: Answer, model: str, directory: str = "") -> list[Body]:
    """The chunks of a streamed answer. `directory` is never cut in two."""
    head: Body = {
        "id": new_id("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": CREATED_S,
        "model": model,
    }

    def chunk(delta: Body, finish: str | None = None) -> Body:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    out = [chunk({"role": "assistant", "content": ""})]
    out += [chunk({"reasoning_content": word}) for word in words(answer.reasoning)]
    out += [chunk({"content": word}) for word in words(answer.text)]
    for call in _calls(answer):
        function = obj(call["function"])
        out.append(chunk({"tool_calls": [{**call, "function": {"name": function["name"], "arguments": ""}}]}))
        for piece in slices(str(function["arguments"]), directory):
            out.append(chunk({"tool_calls": [{"index": call["index"], "function": {"arguments": piece}}]}))
    if not answer.hang:
        out += [chunk({}, _finish(answer)), {**head, "choices": [], "usage": USAGE}]
    return out


def whole(answer: Answer, model: str) -> Body:
    """The whole answer, for a client that does not stream."""
    message: Body = {"role": "assistant", "content": answer.text}
    if answer.calls:
        message["tool_calls"] = _calls(answer)
    head: Body = {"id": new_id("chatcmpl-"), "object": "chat.completion", "created": CREATED_S, "model": model}
    return {**head, "choices": [{"index": 0, "message": message, "finish_reason": _finish(answer)}], "usage": USAGE}
