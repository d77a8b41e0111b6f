"""The wire format of Gemini: `POST /v1beta/models/MODEL:generateContent`, and `:streamGenerateContent` for a stream."""

from __future__ import annotations

import json

from shim.dev.scripted.answers import Answer, ScriptedRequest, Turn, text_of
from shim.dev.scripted.schemas import value_for
from shim.dev.scripted.tools import Body
from shim.dev.scripted.wire import INPUT_TOKENS, OUTPUT_TOKENS, new_id, words
from universal.items import Json
from universal.lib.jsonvalue import arr, obj

USAGE: Body = {
    "promptTokenCount": INPUT_TOKENS,
    "candidatesTokenCount": OUTPUT_TOKENS,
    "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
}


def _tools(body: Body) -> list[Body]:
    """The offered tools in the words of the other formats."""
    rows = [obj(row) for group in arr(body.get("tools")) for row in arr(obj(group).get("functionDeclarations"))]
    return [{"name": row.get("name"), "parameters": row.get("parametersJsonSchema") or row.get("parameters")} for row in rows]


def parse_request(body: Body) -> ScriptedRequest:
    """Parse a request. The results of one step are parts of one content."""
    history: list[Turn] = []
    for content in map(obj, arr(body.get("contents"))):
        if content.get("role") == "model":
            continue
        parts = arr(content.get("parts"))
        if any("functionResponse" in obj(part) for part in parts):
            history.append(("tool", ""))
        history.append(("user", text_of(parts)))
    tools = _tools(body)
    system = text_of(obj(body.get("systemInstruction")).get("parts"))
    return ScriptedRequest(tuple(history), tuple(str(tool["name"]) for tool in tools), system, {**body, "tools": list(tools)})


def in_schema(body: Body) -> Answer | None:
    """The answer to a request for JSON in a schema: Gemini CLI asks so which model is to answer. None for any other."""
    settings = obj(body.get("generationConfig"))
    if settings.get("responseMimeType") != "application/json":
        return None
    return Answer(json.dumps(value_for(obj(settings.get("responseJsonSchema") or settings.get("responseSchema")))))


def _chunk(head: Body, parts: list[Json], finish: str = "") -> Body:
    candidate: Body = {"content": {"role": "model", "parts": parts}, "index": 0}
    end: Body = {"usageMetadata": USAGE} if finish else {}
    return {**head, **end, "candidates": [{**candidate, "finishReason": finish} if finish else candidate]}


def frames(answer: Answer, model: str) -> list[Body]:
    """The chunks of a streamed answer."""
    head: Body = {"responseId": new_id("resp_"), "modelVersion": model}
    thought: list[Json] = [{"text": f"**Thinking** {answer.reasoning}", "thought": True}]  # a summary, and its headline
    out = [_chunk(head, thought)] if answer.reasoning else []
    out += [_chunk(head, [{"text": word}]) for word in words(answer.text)]
    calls = [{"functionCall": {"id": new_id("call_"), "name": call.name, "args": call.arguments}} for call in answer.calls]
    if not answer.hang:
        out.append(_chunk(head, list(calls), "MAX_TOKENS" if answer.cut else "STOP"))
    return out


def whole(answer: Answer, model: str) -> Body:
    """The whole answer, for a client that does not stream."""
    chunks = frames(answer, model)
    parts = [part for chunk in chunks for part in arr(obj(obj(obj(arr(chunk["candidates"])[0])["content"]))["parts"])]
    return _chunk({"responseId": new_id("resp_"), "modelVersion": model}, parts, "STOP")
